"""From the start of the process to its end: the early answer, loading, serving, shutdown."""
