"""JSON-RPC 2.0 between two peers, over pipes or in one process.

Bytes come in from a `transport` (`pipe_transport` over file descriptors, `stdio` for our own stdin and
stdout), `frames` splits them into lines, `messages` decodes the envelope of each, and a `peer` matches
answers to requests and hands the rest to its endpoint. What goes out waits in the `outbox`, where sessions
take turns. `tap` stands between two other peers: it passes their bytes on unchanged and records them. Nothing
here knows ACP.
"""
