"""Sessions as JSON: the format `coupler-session/1`, which docs/cli.md describes.

Later versions may add keys and types of events; what is there keeps its name and meaning.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from coupler.agent.history import Happening, TranscriptTurn, Unreadable
from coupler.cli.sessions.wording import quiet_json, timestamp
from coupler.events import Compaction, Content, Notice, Plan, Text, Thought, ToolCall

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord

FORMAT = "coupler-session/1"


def to_json(record: SessionRecord, turns: Iterable[TranscriptTurn], *, is_held: bool) -> Iterator[str]:
    """The whole session, in pieces: a long one never stands in memory twice."""
    head = as_json(msgspec.json.encode({"format": FORMAT, "session": whole(record)}))
    yield head.removesuffix("\n}") + ',\n  "turns": ['
    separator = "\n"
    for turn in turns:
        text = as_json(msgspec.json.encode(_turn(turn, is_held=is_held)))
        # A line end in JSON is never inside a string.
        yield separator + "    " + text.replace("\n", "\n    ")
        separator = ",\n"
    yield "\n  ]\n}\n"


def as_json(encoded: bytes) -> str:
    """JSON for people and terminals: indented, and with nothing in it that a terminal obeys."""
    return quiet_json(msgspec.json.format(encoded, indent=2).decode())


def summary(record: SessionRecord) -> dict[str, Any]:
    """What a list says of a session."""
    return {
        "id": record.id,
        "title": record.title,
        "agent": record.agent,
        "cwd": record.cwd,
        "additional_directories": record.roots,
        "turns": record.turns,
        "created_at": timestamp(record.created_at),
        "updated_at": timestamp(record.updated_at),
    }


def whole(record: SessionRecord) -> dict[str, Any]:
    """All that is kept of a session beside its turns."""
    return {
        **summary(record),
        "settings": _raw_json(record.settings),
        "usage": _raw_json(record.usage),
        "state": _state(record.state),
    }


def _raw_json(text: str | None) -> Any:
    """JSON as it is kept; as a string if it is broken."""
    if text is None:
        return None
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return Raw(text.encode())


def _state(packed: bytes | None) -> dict[str, Any] | None:
    """The agent's own memory, whose first byte says what the others are."""
    if not packed:
        return None
    content = packed[1:]
    if packed[:1] == b"j":
        try:
            msgspec.json.decode(content)
            return {"json": Raw(content)}
        except (msgspec.DecodeError, RecursionError):
            pass
    return {"base64": base64.b64encode(content).decode()}


def _turn(turn: TranscriptTurn, *, is_held: bool) -> dict[str, Any]:
    return {
        "number": turn.number,
        "started_at": timestamp(turn.started_at),
        "prompt": turn.prompt,
        "events": [_event(happening) for happening in turn.happenings],
        "end": {
            "outcome": turn.outcome(is_held=is_held),
            "reason": turn.end.reason if turn.end is not None else None,
            "error": turn.end.error if turn.end is not None else None,
            "at": timestamp(turn.ended_at) if turn.end is not None else None,
        },
    }


def _event(happening: Happening) -> dict[str, Any]:
    kind, fields = _fields(happening)
    return {"type": kind, "at": timestamp(happening.at), **fields}


def _fields(happening: Happening) -> tuple[str, dict[str, Any]]:
    match happening.event:
        case Text(text, message_id):
            return "text", {"message_id": message_id, "text": text}
        case Thought(text, message_id):
            return "thought", {"message_id": message_id, "text": text}
        case Content(block, role, message_id):
            return "content", {"message_id": message_id, "role": role, "block": block}
        case Plan(entries):
            return "plan", {"entries": entries}
        case Notice(severity, title, description):
            return "notice", {"severity": severity, "title": title, "description": description}
        case Compaction(id, status, summary, error):
            return "compaction", {
                "id": id,
                "status": status,
                "summary": None if summary is UNSET else summary,
                "error": None if error is UNSET else error,
            }
        case ToolCall() as call:
            return "tool_call", _call(call)
        case Unreadable(kind, key, body):
            return "unreadable", {"kind": kind, "key": key, **_body(body)}


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "title": call.title,
        "name": call.name,
        "kind": call.kind,
        "status": call.status,
        "locations": call.locations,
        "input": call.raw_input,
        "output": call.raw_output,
        "content": call.content,
        "meta": call.meta,
    }


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
