"""Workflows: YAML files that mix commands, agents, approvals and conversations, and what runs them.

`reading` makes a `Workflow` of a file, `validation` checks it, `engine` runs it over a journal in the store.
What happens is one ordered stream of `happenings`, which every front end projects. Jinja2 and PyYAML come
with the extra `workflows` and are imported on use.
"""
