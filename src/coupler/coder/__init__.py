"""The built-in coding agent: answers prompts of `coupler serve` that name no workflow.

`served` is what is served, `agent` is one session of it. A session's `setup` is its profile (`profiles`), its
model (`model`) and the configuration; `assembly` puts the LangChain agent of it together.

Its tools are the editor's, those of `tools`, `skills`, and `sub_agents` with `other_agents`. Around the model
stand `prompt` with `instructions`, `modes`, `hooks`, and `compaction`, which keeps the conversation small.
`turn_limits` ends turns that lead nowhere, and `undo` undoes and redoes turns.
"""
