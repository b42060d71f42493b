"""What `run` steps do: scripts in which values are never text of the shell, and their processes."""
