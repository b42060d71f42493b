"""A program that finds files and lines: a process of its own, of the standard library only."""
