"""Runs child processes, and handles files, directories, logs and threads of the system.

`process` starts a child in a process group of its own and ends the whole group; `commands` runs a command to
its end on top of that; `environment` decides which program runs and which variables it sees; `guard` ends
groups whose owner was killed. `paths` resolves paths and `files` reads and replaces files without following
links out of a session's directories. `directories` and `logs` are light: they run before an editor's first
answer. `threads` runs blocking work beside the event loop, `extras` imports optional packages,
`exceptions` tells what went wrong.
"""
