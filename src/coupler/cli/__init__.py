"""The command line: one module a command, composing the layers below; large commands are packages.

`coupler.__main__` dispatches `serve` and `record`, for which an editor waits, and `exec`, `run` and
`resume`, for which a script waits, without importing the others; `main` has the rest, imported when it is
called. Nothing heavy is imported at module level of what an editor waits for.

Commands print by `output` and by nothing else: what they show may come from anybody, and is cleaned on its
way. Several share `terminal` (formats, questions, files of the user), `agent_options` (AGENT, permissions
and MCP servers), `store_access` (the store, redacted), `exit_codes`, and the options and signals of `main`.
"""
