"""Recordings of other tools, read as traces: acpx's streams, and the traces of the Rust conductor.

An acpx stream has one message a line, and lines of its own between them that carry a `schema`. Nothing says
who sent a message: its method does, and an answer belongs to the open request with its id. The conductor
names both ends of every message; taken is what the client and its neighbour said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from coupler.inspect.trace import Side, id_key
from coupler.schema.base import DecodingError
from coupler.schema.decoding import resolve
from coupler.schema.methods import METHODS

Sent: TypeAlias = tuple[Side, float, bytes]

ACPX_JOURNAL = "acpx.session.journal."
EVENTS = frozenset({"request", "response", "notification"})


def foreign_lines(lines: list[bytes]) -> list[Sent] | None:
    """Who sent what and when, if this is a recording of one of these tools; None if it is not."""
    first = _object_in(next((line for line in lines if line.strip()), b"")) or {}
    read: Callable[[list[dict[str, Any]]], list[Sent]]
    if first.get("jsonrpc") == "2.0" or str(first.get("schema")).startswith(ACPX_JOURNAL):
        read = _acpx
    elif first.get("type") in EVENTS and {"ts", "from", "to"} <= first.keys():
        read = _conductor
    else:
        return None
    objects = [_object_in(line) for line in lines if line.strip()]
    return read([value for value in objects if value is not None]) or None


def _acpx(messages: list[dict[str, Any]]) -> list[Sent]:
    sent: list[Sent] = []
    open_requests: list[tuple[Side, str, str]] = []
    for message in messages:
        if "jsonrpc" not in message:
            continue  # a line of acpx's own
        method = message.get("method")
        if isinstance(method, str):
            sender = _sender_of(method)
            if "id" in message:
                open_requests.append((sender, id_key(message["id"]), method))
        else:
            sender = _answerer(message, open_requests)
        sent.append((sender, 0.0, msgspec.json.encode(message)))
    return sent


def _sender_of(method: str) -> Side:
    known = METHODS.get(method)
    return "agent" if known is not None and known.direction == "client" else "client"


def _answerer(answer: dict[str, Any], open_requests: list[tuple[Side, str, str]]) -> Side:
    """Both sides count their own ids, so that two requests may wait for it: the result tells which."""
    key = id_key(answer.get("id"))
    waiting = [request for request in reversed(open_requests) if request[1] == key]
    fitting = [request for request in waiting if _fits(answer, request[2])]
    if not waiting:
        return "agent"
    request = (fitting or waiting)[0]
    open_requests.remove(request)
    return "agent" if request[0] == "client" else "client"


def _fits(answer: dict[str, Any], method: str) -> bool:
    known = METHODS.get(method)
    if "result" not in answer or known is None or known.result is None:
        return True
    try:
        msgspec.convert(answer["result"] or {}, known.result, dec_hook=resolve)
    except (msgspec.ValidationError, DecodingError, RecursionError):
        return False
    return True


def _conductor(events: list[dict[str, Any]]) -> list[Sent]:
    sent: list[Sent] = []
    for event in events:
        ends = [str(event.get(name)).lower() for name in ("from", "to")]
        if "client" not in ends or event.get("protocol") == "mcp":
            continue
        message: dict[str, Any] = {"jsonrpc": "2.0"}
        message |= {name: event[name] for name in ("id", "method", "params") if event.get(name) is not None}
        if event.get("type") == "response":
            message["error" if event.get("is_error") else "result"] = event.get("payload")
        at = event.get("ts")
        sender: Side = "client" if ends[0] == "client" else "agent"
        sent.append((sender, float(at) if isinstance(at, int | float) else 0.0, msgspec.json.encode(message)))
    return sent


def _object_in(line: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
