"""A conversation that outgrows the window of its model: what is cut, and what is written in its place."""
