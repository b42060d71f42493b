"""`coupler doctor`: one page about this installation, what is wrong with it, and what to do about it."""
