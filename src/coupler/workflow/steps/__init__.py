"""`run` steps: scripts in which values are never read as script, and their processes.

A rendered script comes in, and its output and exit code go out. `shell_script` puts values into the script
as expansions of variables, and `run` runs it in a process group of its own and parses what it wrote.
"""
