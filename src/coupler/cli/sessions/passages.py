"""What stands in a conversation, as passages that a terminal and a document show each in its own way."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from coupler.agent.history import Outcome, Told, TranscriptTurn
from coupler.agent.tool_call import CANCELLED_META
from coupler.cli.sessions.wording import clean, one_line, quiet_json, size
from coupler.events import Compaction, Notice, Plan, ToolCall

LONGEST_DIFF = 20_000
"""Lines of a file up to which what changed is worked out; above, it takes minutes."""


class Passage(NamedTuple):
    """Text to be read, a note in place of what cannot be shown, or a block to be kept as it is."""

    text: str = ""
    note: str = ""
    code: str = ""
    language: str = ""


def events_to_read(turn: TranscriptTurn) -> list[Told]:
    """What happened, with the plan once: where it was made, and as it stood in the end."""
    events = [happening.event for happening in turn.happenings]
    plans = [event for event in events if isinstance(event, Plan)]
    first = events.index(plans[0]) if plans else -1
    return [
        plans[-1] if index == first else event
        for index, event in enumerate(events)
        if index == first or not isinstance(event, Plan)
    ]


def of_prompt(prompt: Iterable[Raw]) -> list[Passage]:
    """What the user sent."""
    return [_of_decoded_block(_decoded(raw)) for raw in prompt]


def of_block(block: Any) -> Passage:
    """A piece of a message that is not text."""
    return _of_decoded_block(msgspec.to_builtins(block))


def of_output(call: ToolCall) -> list[Passage]:
    """What a tool call shows."""
    return [_of_item(msgspec.to_builtins(item)) for item in call.content]


def title_of(call: ToolCall) -> str:
    """What the call is called, in one line."""
    return one_line(call.title) or one_line(call.name or "") or "(no title)"


def input_of(call: ToolCall) -> str:
    """What the tool was given, in one line of JSON."""
    return "" if call.raw_input is None else quiet_json(msgspec.json.encode(call.raw_input).decode())


def status_of(call: ToolCall, outcome: Outcome) -> str:
    """How a call went, in a word."""
    if call.is_open and outcome == "interrupted":
        return "interrupted"
    if call.status == "failed" and call.meta == CANCELLED_META:
        return "cancelled"
    return one_line(call.status).replace("_", " ")


def spoken_end(turn: TranscriptTurn, outcome: Outcome, pid: int | None) -> str:
    """How the turn ended, in a sentence; nothing if the agent just had said all."""
    reason = (turn.end.reason or "") if turn.end is not None else ""
    error = (turn.end.error or "") if turn.end is not None else ""
    match outcome:
        case "interrupted":
            return "Interrupted: the process ended before the turn did."
        case "open":
            return f"No end yet: the session is open in the process {pid}."
        case "cancelled":
            return "Cancelled."
        case "failed":
            return f"Failed: {one_line(error)}"
        case "ended" if reason == "end_turn":
            return ""
        case "ended":
            return f"Ended: {one_line(reason).replace('_', ' ')}."


def spoken_notice(notice: Notice) -> str:
    """A notice in a line or two."""
    description = f"\n{clean(notice.description)}" if notice.description else ""
    return f"{one_line(notice.severity).capitalize()}: {one_line(notice.title)}{description}"


def spoken_compaction(compaction: Compaction) -> str:
    """That the agent shortened its context."""
    from coupler.agent.turn import spoken_compaction as spoken

    if compaction.status == "in_progress":
        return "Summarizing the earlier conversation was not finished."
    return clean(spoken(compaction))


def _decoded(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _of_decoded_block(block: Any) -> Passage:
    if not isinstance(block, dict):
        return Passage(note="something that cannot be read")
    kind = _string(block, "type")
    match kind:
        case "text":
            return Passage(text=clean(_string(block, "text")))
        case "image" | "audio":
            data = _size_of_base64(_string(block, "data"))
            return Passage(note=f"{kind}, {one_line(_string(block, 'mimeType'))}, {data}")
        case "resource_link":
            return Passage(note=_named(block))
        case "resource":
            return _of_resource(block.get("resource"))
    return Passage(note=f"something of the kind {one_line(kind) or 'unknown'}")


def _of_resource(resource: Any) -> Passage:
    if not isinstance(resource, dict):
        return Passage(note="something that cannot be read")
    if "text" in resource:
        return Passage(note=_named(resource), code=clean(_string(resource, "text")))
    return Passage(note=f"{_named(resource)}, {_size_of_base64(_string(resource, 'blob'))}")


def _of_item(item: Any) -> Passage:
    match item.get("type"):
        case "content":
            passage = _of_decoded_block(item.get("content"))
            # A program's output is no prose.
            return passage._replace(text="", code=passage.text) if passage.text else passage
        case "diff":
            return Passage(note=one_line(_string(item, "path")), code=_difference(item), language="diff")
        case "terminal":
            return Passage(note="output in a terminal of the editor")
    return Passage(note=f"something of the kind {one_line(_string(item, 'type')) or 'unknown'}")


def _difference(item: dict[str, Any]) -> str:
    before, after = (clean(_string(item, key)).splitlines() for key in ("oldText", "newText"))
    if max(len(before), len(after)) > LONGEST_DIFF:
        return "\n".join([*(f"-{line}" for line in before), *(f"+{line}" for line in after)])
    # The first two lines name the files.
    return "\n".join([*difflib.unified_diff(before, after, lineterm="")][2:])


def _named(resource: dict[str, Any]) -> str:
    name, uri = one_line(_string(resource, "name")), one_line(_string(resource, "uri"))
    return f"{name} ({uri})" if name and name != uri else uri or "something without a name"


def _string(block: dict[str, Any], key: str) -> str:
    value = block.get(key)
    return value if isinstance(value, str) else ""


def _size_of_base64(data: str) -> str:
    return size(len(data.rstrip("=")) * 3 // 4)
