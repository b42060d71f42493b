"""What may be done with a field whose value is wrong; named after the schema's `x-deserialize-…` markers."""

from __future__ import annotations

from enum import Flag, auto


class Leniency(Flag):
    STRICT = 0
    DEFAULT_ON_ERROR = auto()
    DEFAULT_ON_NULL = auto()
    SKIP_INVALID_ITEMS = auto()
    KEEP_UNKNOWN_STRING = auto()


STRICT = Leniency.STRICT
DEFAULT_ON_ERROR = Leniency.DEFAULT_ON_ERROR
DEFAULT_ON_NULL = Leniency.DEFAULT_ON_NULL
SKIP_INVALID_ITEMS = Leniency.SKIP_INVALID_ITEMS
KEEP_UNKNOWN_STRING = Leniency.KEEP_UNKNOWN_STRING
