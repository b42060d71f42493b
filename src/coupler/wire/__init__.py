"""JSON-RPC 2.0 between two peers: frames, ordering, fairness, limits, transports.

This layer knows no ACP. It imports the standard library and msgspec, and nothing is imported here, so
that a program which only takes over stdio does not pay for the rest.
"""
