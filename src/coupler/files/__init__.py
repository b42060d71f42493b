"""Files inside of a session's directories: which ones a path may mean, and how they are read and replaced.

Both sides of the protocol need that: an agent for its turns, a client for what its agent asks.
"""
