"""Being an agent: the connection, its sessions, their turns, and what a turn can say and do.

Nothing is imported here: the first steps of `coupler serve` must not pay for the rest.
"""
