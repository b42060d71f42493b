"""The built-in coding agent: what `coupler serve` answers with when a prompt is for no workflow.

`served` is what is served, `agent` is one session of it, and `assembly` builds the LangChain agent of that
session from its parts: `model`, `tools`, `modes`, `context`, and what a `profile` makes of them.
"""
