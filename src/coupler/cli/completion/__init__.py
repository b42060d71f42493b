"""`coupler completion`: the shell completes commands, options, and the names of what there is."""
