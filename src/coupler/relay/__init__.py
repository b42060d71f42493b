"""Any ACP agent served again through Coupler: `serve(connect(…))`, `coupler serve -- COMMAND…`.

To the editor it is an agent of Coupler's like any other, so its sessions are kept, its requests pass the
permission rules, and no secret gets past the veil, whatever the agent behind it knows of these. To that
agent it is a client that has what its own editor has. A `Relay` is the agent as a whole, a `Relayed` is one
session: one session here is one session there.
"""
