"""`coupler init`: the first files of a project, or of a user."""
