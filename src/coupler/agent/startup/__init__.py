"""Takes a process that serves an agent from its start to its end.

`preflight` tells whether the settings were valid at an earlier start, and `early_answer` answers `initialize`
from what that start stored, before anything else is imported. `loading` imports the target while the
connection is already served, `serve` runs the connection over stdin and stdout with its `serve_options`, and
`shutdown` ends the process on EOF and on signals, with nothing left running.
"""
