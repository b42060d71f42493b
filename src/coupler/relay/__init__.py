"""Relays any ACP agent through Coupler: `serve(connect(…))`, `coupler serve -- COMMAND…`.

To the editor it is an agent of Coupler's like any other: its sessions are stored, its requests pass the
permission rules, and secrets are redacted, whatever the relayed agent knows of these. To that agent it is a
client that has what its own editor has. `relay` starts the agent and advertises what both can do together;
`session` pairs each of our sessions with one of the agent's; `mirror` shows what the agent says as a turn of
ours. What the agent asks for comes the other way: `permission` decides, `editor` passes files, terminals and
elicitations on to the editor or serves them here.
"""
