"""`coupler exec`: one prompt to any agent, and its answer."""
