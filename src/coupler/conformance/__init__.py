"""Tests whether an agent or a client keeps to the protocol.

`assertion` registers what is asserted: probes that drive the candidate, rules that judge a trace, and
scenarios that provoke a client; those about agents are in `agent/`, those about clients in `client/`.
`examination` runs them against an agent (`candidate`), `client_examination` against a client or with a person
at an editor; `report` holds the results and `rendering` prints them as text, JSON, JUnit or HTML.
`scripted_client` and `scripted_agent` are peers that do exactly what a script says, on the line transport and
the client's answers in `peers`; `reading` helps rules to read traces. `play`, `socket_relay`, `mcp_probe` and
`mcp_witness` are programs that candidates start.
"""
