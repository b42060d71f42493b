"""Finds secrets and masks them in values, streams and logs."""
