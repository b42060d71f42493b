"""Commands that the coder runs: in the background, in a sandbox, and what is told of what they write."""
