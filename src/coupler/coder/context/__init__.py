"""What the coder knows before it is asked: instructions, skills, the state of its repository.

All of it was written by others. It is read in bounded size and time, nothing in it is run, and what cannot be
read is noted and never the end of a turn.
"""
