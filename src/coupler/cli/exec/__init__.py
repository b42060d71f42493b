"""`coupler exec`: one prompt to an agent, for scripts.

`exec` is the command, `exec_output` prints answers and events, and asks what has to be asked.
"""
