"""Workflows as an agent that editors talk to: slash commands, and runs shown in their turns.

A prompt comes in, and tool calls, messages and a plan go out. `served` serves one file; `workflow_agent` is
the agent of a session, whose slash commands `commands` keeps up to date. `arguments` parses what was typed
behind a command, and `run_turns` runs the workflow in the turn. `projection` and `step_calls` show the run,
`dialogs` asks its questions, and `chat_messages` has the texts.
"""
