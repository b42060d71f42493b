"""Being a client: start any ACP agent, hold sessions with it, and receive what it says as typed events."""

import logging

# What is wrong with an agent's messages is not printed into a program that has not set up logging. The
# agent's own log is left alone: an agent in this process shows its tracebacks there.
for _name in ("coupler.client", "coupler.schema", "coupler.wire"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
