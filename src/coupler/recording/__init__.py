"""Traces of what two peers said: recorded, masked, written, read and replayed."""
