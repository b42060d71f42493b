"""`coupler agents doctor`: what an agent can do here, and what is wrong with it."""
