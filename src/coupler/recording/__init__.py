"""Records the messages between a client and an agent, and replays them.

`coupler record` puts a tap (`coupler.wire.tap`) between two peers; it feeds `writer`, a process of its own
that cuts the bytes into lines, validates and masks them (`masking`) and writes a trace. `traces` holds a
trace in memory, reads and writes its files, and validates messages by the published schema. `replay` plays a
trace again, as the agent or as the client, and `replay_difference` compares a replayed conversation with the
recorded one.
"""
