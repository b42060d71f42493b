"""What can be wrong with a model before it is asked anything."""

from __future__ import annotations


class ModelError(Exception):
    """A model cannot be used; the message says what to do. It never holds a key."""
