"""The hard floor: what no rule, mode, remembered choice or answer of a user lets an agent do.

It is judged on the parsed command. What would for certain wreck a machine, a home or what lies around the
session is denied; what may be such a thing, and is only known when it runs, is asked about each time.
"""
