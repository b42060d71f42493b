"""Looking at the protocol from outside: traces of what was said, and whether it was right."""
