"""Serves LangChain and LangGraph agents as Coupler agents, and gives them what `coupler.acp` offers.

A graph comes in by `adapters`; `graph_agent` is its agent for any number of sessions, and `graph_run` one
prompt, from a checkpoint (`checkpoints`) to the next. LangChain's callbacks go out as ACP updates:
`projection` hears and tells them, with `messages` for answers, `tool_calls`, `tool_arguments` and
`presentation` for tool calls, `plan`, `usage` and `content`. `interrupts` and `errors` say how a run stops,
and `answers` reads what users answer to interrupts in the chat.

`current` is the prompt as nodes and tools reach it. `middleware`, `modes` and `mcp_tools` are what authors
put into their agents, `editor_tools` the editor's files and terminals. `permission` decides about tool calls,
and `tool_guard` puts it before the tools of every graph.
"""
