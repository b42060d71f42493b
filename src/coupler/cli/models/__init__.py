"""`coupler models`: models that run on this machine, fetched, listed and removed.

`command` has the commands, `installing` tells how a model gets here, `packages` asks pip or uv for packages,
`unpacking` takes the model out of one, and `trial` asks it for a word.
"""
