"""Workflows: YAML files that mix commands, agents, approvals and conversations, and their engine.

`language` reads a file into a `Workflow` and finds what it calls, `validation` checks it, and `engine` runs
its steps over a journal in the store. `steps` runs shell commands, `agents` prompts agents, `expressions`
renders templates. What happens is one ordered stream of events in `journal`, which every front end shows:
the terminal's in `cli`, and that of editors in `editor`. `errors` has the errors of all of them.

Jinja2 and PyYAML come with the extra `workflows` and are imported on use.
"""
