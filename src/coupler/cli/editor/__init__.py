"""`coupler editor`: the settings that put an agent into an editor, printed or written."""
