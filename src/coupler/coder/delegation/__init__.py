"""Work that the coder gives to others: to a coder with a context of its own, or to another agent.

`roster` knows who there is, `sub_agent` and `other_agent` are the two kinds, `in_process` and `remote` have
them work, and `outcome` is what comes of it.
"""
