"""The tools of the coder: each asks for permission itself, and shows what it does in the model's own call."""
