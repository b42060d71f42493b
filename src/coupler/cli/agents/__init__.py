"""`coupler agents` and `coupler login`: which agents there are, whether they work, and how to log in to them.

`agents` is the list, `agent_doctor` starts agents and says what is wrong with them, `login` logs in.
"""
