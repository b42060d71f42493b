"""What can be known to go wrong with a workflow before it runs."""
