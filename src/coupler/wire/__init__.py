"""JSON-RPC 2.0 between two peers: frames, ordering, fairness, limits, transports."""
