"""`coupler run` and `coupler resume`: a workflow with its progress, its questions and its outputs.

`run` is the commands and their options, `execution` a run from its start to the exit code. `progress` shows
it on a terminal, and `questions` answers what it asks.
"""
