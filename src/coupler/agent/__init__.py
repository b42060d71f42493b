"""Serves an agent to an ACP client: the connection, its sessions, and what a turn can say and do.

A `serve()` call or a target such as `app.py:agent` comes in (`startup`) and becomes an `AgentFactory`
(`factory`), which gives each session an `Agent` (`agent`). `connection` answers `initialize` (`capabilities`)
and routes requests to `sessions`; `archive` finds stored sessions and replays them. A `session` runs one
`turn` at a time; what the turn says goes through `output`, which redacts it, journals it (`history`) and
sends it.

A turn works through `tool_call`, `permission`, `files`, `terminal`, `elicitation` and `mcp_servers`, and
through `blocking` from a plain function. `editor` is the client as the agent sees it, `auth` its
authentication methods, `content` checks what agents hand over, `errors` has the error table. Nothing is
imported here: `coupler serve` has to start fast.
"""
