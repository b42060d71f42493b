"""`coupler doctor`: one page about this installation, what is wrong with it, and what to do about it.

`doctor` is the command: it runs the examiners and writes what they find. `installation`, `project` and
`services` are the examiners, one function `examine_NAME` for each section.
"""
