"""Tool calls: one id from the first token to the end, and how they look."""
