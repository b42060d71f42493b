"""`coupler sessions`: what was kept of conversations, listed, shown, exported and deleted."""
