"""`coupler run` and `coupler resume`: a workflow with its progress, its questions and its outputs."""
