"""Where tools look for somebody to tell of output before their end: LangGraph's `runtime.emit_output_delta`.

LangGraph fills that place itself if it is asked for the stream of mode `tools`; but then it also listens to
every token of every model, for nothing, and each of them takes longer. So the place is filled here; a version
of LangGraph that has it elsewhere is asked for that stream.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Writer = Callable[[Any], None]

_place: ContextVar[Writer | None] | None
try:
    from langgraph.pregel._tools import _tool_call_writer as _place
except ImportError:
    _place = None

IS_KNOWN = _place is not None
"""Whether the place is where it was; if not, what tools put out comes by the stream."""


def write_to(writer: Writer | None) -> Writer | None:
    """Have the tools of the running code write to this from now on; returns what they wrote to before."""
    if _place is None:
        return None
    before = _place.get()
    _place.set(writer)
    return before
