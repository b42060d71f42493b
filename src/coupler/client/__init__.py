"""Drives any ACP agent: starts it, opens sessions, sends prompts and receives typed events.

`remote` is the agent as its user holds it: it starts the process, opens, loads, resumes and lists sessions,
and starts a dead agent again. `connection` is one run of that process: it sends requests, routes updates and
the agent's own requests to their session, and explains failures. `quirks` knows what is particular about
agents. `session` folds updates into a session's state and settings; `prompt` follows one prompt from its
sending to its `reply`, within rounds, time and budget. What an agent asks of its client is answered by
`policy` (with `rules` and `actions`), `files`, `terminals` and `elicitation`; `tools`, `resources` and
`output` offer it Python functions and ask for typed answers. `observation` tells observers and OpenTelemetry
what happens; `pool` and `kept_sessions` use sessions again; `errors` holds what all of them raise.
"""

import logging

# What is wrong with an agent's messages is not printed into a program that has not set up logging. The
# agent's own log is left alone: an agent in this process shows its tracebacks there.
for _name in ("coupler.client", "coupler.schema", "coupler.wire"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
