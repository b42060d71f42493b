"""The hard floor: denies what no rule, mode, remembered choice or answer of a user lets an agent do.

It is judged on the parsed command. What would for certain wreck a machine, a home or what lies around the
session is denied; what may do so, and is only known when it runs, is asked about each time. `floor` judges a
whole line, with all readings of its words from `expansion` and all texts that `hidden_text` finds in it;
`destructive_programs` knows what programs do with their arguments, and `places` which paths nobody lets an
agent destroy.
"""
