"""Reads values from traces, in which any JSON value may stand anywhere.

What is absent or of another type is None.
"""

from __future__ import annotations

import json
import math
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from coupler.recording.traces import Side, Trace, TraceEntry, TraceExchange, TraceUpdate
from coupler.runtime.formatting import shortened

CONVERSATION_UPDATES = (
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
)
"""The updates that are part of the conversation."""

STATE_UPDATES = (
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
    "compaction_update",
    "compaction_summary_chunk",
    "notice",
)
"""The updates that tell the state of a session, which may change at any time."""

EMPTY_RESULTS = (
    "authenticate",
    "logout",
    "session/load",
    "session/resume",
    "session/delete",
    "session/close",
    "session/set_mode",
    "fs/write_text_file",
    "terminal/kill",
    "terminal/release",
)
"""The methods of both sides whose results may be empty objects."""

OPTIONAL_UPDATES = {
    "compaction_update": "session.compaction",
    "compaction_summary_chunk": "session.compaction",
    "notice": "session.notices",
    "plan_update": "plan",
    "plan_removed": "plan",
    "subagent_update": "subagents",
    "session_message": "subagents",
    "session_message_chunk": "subagents",
}
"""Updates that need a client capability, with that capability."""


class RequestSpan(NamedTuple):
    """The time between a request about a session and its answer, in numbers of entries."""

    session: str
    begin: int
    end: float
    exchange: TraceExchange

    def holds(self, update: TraceUpdate) -> bool:
        """True if an update of this session came between the request and its answer."""
        return update.session == self.session and self.begin < update.entry.number < self.end


def spans(trace: Trace, *methods: str) -> list[RequestSpan]:
    """Return the spans of the client's requests of some methods; one without an answer never ends."""
    return [
        RequestSpan(session, exchange.request.number, math.inf if answer is None else answer.number, exchange)
        for exchange in trace.exchanges()
        if exchange.method in methods and isinstance(session := exchange.params.get("sessionId"), str)
        for answer in (exchange.answer,)
    ]


def value_at(value: Any, path: str) -> Any:
    """Return a value deep in an object, by its dotted path."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def items(value: Any) -> list[Any]:
    """Return the items of an array; none for any other value."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in an array."""
    return [item for item in items(value) if isinstance(item, dict)]


def text_of_chunks(updates: list[TraceUpdate], kind: str) -> str:
    """Return the text of all chunks of one kind."""
    texts = [value_at(update.body, "content.text") for update in updates if update.kind == kind]
    return "".join(text for text in texts if isinstance(text, str))


def shown(value: Any, limit: int = 200) -> str:
    """Return a value as JSON, cut if it is long: whoever reads it may write in any language."""
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = json.dumps(value, ensure_ascii=False, default=str)
    return shortened(text, limit)


def is_null_for_nothing(answer: TraceEntry, trace: Trace) -> bool:
    """True if an answer has null for an empty result, as on the protocol's own pages and with many peers."""
    if answer.message.get("result", {}) is not None:
        return False
    asker: Side = "client" if answer.sender == "agent" else "agent"
    methods = [exchange.method for exchange in trace.exchanges(sender=asker) if exchange.answer is answer]
    return any(method in EMPTY_RESULTS for method in methods)


def is_absolute(path: Any) -> bool:
    """True if this is an absolute path on POSIX or on Windows, as the trace may come from either."""
    return isinstance(path, str) and (
        PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()
    )


def is_count(value: Any) -> bool:
    """True if this is an integer that is not negative; true and false are none."""
    return type(value) is int and value >= 0
