"""Runs: lists of steps from top to bottom, beside each other and again, over a journal."""
