"""Checks of a workflow before it runs.

A workflow that could be read comes in, and its problems go out, with their positions. `checks` goes through
texts, ways, files, agents and calls; `names` checks the names in expressions by what `views` says that each
step can see; `findings` collects the problems.
"""
