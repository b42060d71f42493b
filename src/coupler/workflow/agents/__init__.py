"""Agents in steps: which agent a step means, its sessions, its permissions, and what it says.

An `agent` or `converse` step comes in, and its result goes out. `agent_setup` settles everything before a
process is started, with what `agent_start` resolves and renders; `agents` starts processes and opens
sessions, and shares them among the steps of a run; `prompts` sends the prompt and waits for the answer.
Meanwhile `agent_events` turns what the agent does into events of the run and counts its usage, `permission`
decides what it may do, and `editor_access` serves its files, forms and pages.
"""
