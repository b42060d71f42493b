"""`coupler check`: whether a peer keeps to the protocol."""
