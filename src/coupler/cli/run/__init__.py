"""`coupler run`, `coupler resume` and `coupler runs`: a workflow with its progress, questions and outputs.

`run` is the commands and their options, `execution` a run from its start to the exit code. `progress` shows
it on a terminal, `questions` answers what it asks, and `runs` lists, shows and cancels what was run.
"""
