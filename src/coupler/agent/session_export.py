"""Exports a session as JSON or Markdown.

JSON is the format `coupler-session/2`, which docs/cli.md describes; its events are in the one JSON form, of
`events/json_form.py`. Later versions may add keys and events; what is there keeps its name and meaning. In
Markdown the agent's text is Markdown already and stands as it is; what it left open is closed, so that it
cannot swallow what comes after it. Everything else is quoted, fenced or escaped. The passages of a
conversation are shared with `coupler sessions show` and `coupler chat`.
"""

from __future__ import annotations

import base64
import contextlib
import difflib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from coupler.agent.content import fenced
from coupler.agent.history import (
    TranscriptEntry,
    TranscriptEvent,
    TranscriptTurn,
    TurnOutcome,
    UnreadableEntry,
)
from coupler.agent.output import redact
from coupler.agent.turn import compaction_text
from coupler.events import Compaction, Content, Notice, Plan, Text, Thought, ToolCall
from coupler.events.events import CANCELLED_META
from coupler.events.json_form import JsonObject, json_object
from coupler.redaction.known_secrets import masker_for
from coupler.runtime.formatting import size, timestamp, universal_time
from coupler.runtime.terminal_text import clean, one_line, terminal_safe_json

if TYPE_CHECKING:
    from coupler.redaction.masker import Masker
    from coupler.store.sessions import SessionRecord


FORMAT = "coupler-session/2"

LONGEST_DIFF = 20_000
"""Lines of a file up to which what changed is worked out; above, it takes minutes."""

JSON_STATE = b"j"
"""The first byte of an agent's state that is JSON."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")


class TranscriptPassage(NamedTuple):
    """Text to be read, a note in place of what cannot be shown, or a block to be kept as it is."""

    text: str = ""
    note: str = ""
    code: str = ""
    language: str = ""


def to_json(record: SessionRecord, turns: Iterable[TranscriptTurn], *, is_held: bool) -> Iterator[str]:
    """The whole session as JSON, in pieces: a long one never stands in memory twice."""
    head = as_json(msgspec.json.encode({"format": FORMAT, "session": full_summary(record)}))
    yield head.removesuffix("\n}") + ',\n  "turns": ['
    separator = "\n"
    for turn in turns:
        text = as_json(msgspec.json.encode(_turn_json(turn, is_held=is_held)))
        # A line end in JSON is never inside a string.
        yield separator + "    " + text.replace("\n", "\n    ")
        separator = ",\n"
    yield "\n  ]\n}\n"


def as_json(encoded: bytes) -> str:
    """Formats JSON for people and terminals: indented, and with nothing in it that a terminal obeys."""
    return terminal_safe_json(msgspec.json.format(encoded, indent=2).decode())


def summary(record: SessionRecord) -> dict[str, Any]:
    """A session as a list shows it."""
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


def full_summary(record: SessionRecord) -> dict[str, Any]:
    """A session with all that is stored of it beside its turns."""
    return {
        **summary(record),
        "settings": _raw_json(record.settings),
        "usage": _raw_json(record.usage),
        "state": _state_json(record.state),
    }


def _raw_json(text: str | None) -> Any:
    """JSON as it is stored; as a string if it is broken."""
    if text is None:
        return None
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return Raw(text.encode())


def _state_json(packed: bytes | None) -> dict[str, Any] | None:
    """The agent's own state, whose first byte says what the others are."""
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


def _turn_json(turn: TranscriptTurn, *, is_held: bool) -> dict[str, Any]:
    return {
        "number": turn.number,
        "started_at": timestamp(turn.started_at),
        "prompt": turn.prompt,
        "events": [_event_json(entry) for entry in turn.entries],
        "end": {
            "outcome": turn.outcome(is_held=is_held),
            "reason": turn.end.reason if turn.end is not None else None,
            "error": turn.end.error if turn.end is not None else None,
            "at": timestamp(turn.ended_at) if turn.end is not None else None,
        },
    }


def _event_json(entry: TranscriptEntry) -> JsonObject:
    event = entry.event
    if isinstance(event, UnreadableEntry):
        fields = {"kind": event.kind, "key": event.key, **_unreadable_json(event.body)}
        return {"event": "unreadable", "at": timestamp(entry.at), **fields}
    told = json_object(event)
    return {"event": told.pop("event"), "at": timestamp(entry.at), **told}


def _unreadable_json(body: bytes) -> dict[str, str]:
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def to_markdown(record: SessionRecord, turns: Iterable[TranscriptTurn], pid: int | None) -> Iterator[str]:
    """The session as a Markdown document, in pieces."""
    yield from _header_markdown(record)
    for turn in turns:
        for part in _turn_markdown(turn, pid):
            yield f"\n{part}\n"


def _header_markdown(record: SessionRecord) -> Iterator[str]:
    yield f"# {escape_markdown(one_line(record.title or '') or 'A session without a title')}\n\n"
    yield f"- Session: {code_span(record.id)}\n"
    yield f"- Agent: {code_span(record.agent)}\n"
    yield f"- Directory: {code_span(record.cwd)}\n"
    for root in record.roots:
        yield f"- Additional directory: {code_span(root)}\n"
    yield f"- Begun: {universal_time(record.created_at)}\n"
    yield f"- Last change: {universal_time(record.updated_at)}\n"
    yield f"- Turns: {record.turns}\n"


def _turn_markdown(turn: TranscriptTurn, pid: int | None) -> Iterator[str]:
    outcome = turn.outcome(is_held=pid is not None)
    yield f"## Turn {turn.number}"
    yield f"*{universal_time(turn.started_at)}*"
    if turn.prompt:
        yield "### User"
        yield from (quote_markdown(_passage_markdown(passage)) for passage in passages_of_prompt(turn.prompt))
    if turn.entries:
        yield "### Agent"
    for event in events_to_read(turn):
        yield from _event_markdown(event, outcome)
    end = describe_end(turn, outcome, pid)
    if end:
        yield f"**{escape_markdown(end)}**"


def _event_markdown(event: TranscriptEvent, outcome: TurnOutcome) -> Iterator[str]:
    match event:
        case Text(text):
            yield close_markdown(clean(text).strip("\n"))
        case Thought(text):
            yield quote_markdown(f"*Thought*\n\n{clean(text).strip()}")
        case Content(block):
            yield _passage_markdown(passage_of_block(block))
        case Plan(entries):
            marks = {"completed": "[x]"}
            tasks = (
                f"- {marks.get(entry.status, '[ ]')} {escape_markdown(one_line(entry.content))}"
                + (" *(in progress)*" if entry.status == "in_progress" else "")
                for entry in entries
            )
            yield "\n".join(["**Plan**", "", *tasks])
        case Notice() as notice:
            yield quote_markdown(escape_markdown(describe_notice(notice)))
        case Compaction() as compaction:
            yield quote_markdown(describe_compaction(compaction))
        case ToolCall() as call:
            yield from _call_markdown(call, status_of(call, outcome))
        case UnreadableEntry(kind):
            yield f"*(an entry of the kind {escape_markdown(one_line(str(kind)))} cannot be read)*"


def _call_markdown(call: ToolCall, status: str) -> Iterator[str]:
    yield f"**Tool:** {escape_markdown(title_of(call))} *({escape_markdown(status)})*"
    given = input_of(call)
    if given:
        yield code_block(given, "json")
    yield from (_passage_markdown(passage) for passage in passages_of_output(call))


def _passage_markdown(passage: TranscriptPassage) -> str:
    parts = []
    if passage.note:
        parts.append(f"*[{escape_markdown(passage.note)}]*")
    if passage.text:
        parts.append(close_markdown(passage.text.strip("\n")))
    if passage.code:
        parts.append(code_block(passage.code, passage.language))
    return "\n\n".join(parts)


def write_export(pieces: Iterable[str], path: Path, *, replaces: bool = True) -> None:
    """Write an export to a file, which gets its name, or its new content, when all is written.

    Unless it `replaces` what is there, it raises FileExistsError.
    """
    if not replaces:
        with path.open("x"):
            pass  # the name is ours from here on
    try:
        _write_export(pieces, path)
    except BaseException:
        if not replaces:
            path.unlink()
        raise


def _write_export(pieces: Iterable[str], path: Path) -> None:
    is_file = path.is_file()
    if path.exists() and not is_file:
        # A device or a pipe must not be replaced.
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(pieces)
        return
    path = path.resolve()
    draft = path.with_name(f".coupler-export-{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as stream:
            if is_file:
                shutil.copymode(path, draft)
            stream.writelines(pieces)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def redacted_title(record: SessionRecord) -> str:
    """The title of a session, redacted; empty if it has none."""
    return masker_for(record.cwd).mask(record.title or "")


def redacted_record(record: SessionRecord) -> SessionRecord:
    """A session's record, redacted; its directories and ids stay."""
    masker = masker_for(record.cwd)
    return msgspec.structs.replace(
        record,
        title=redacted_title(record) or record.title,
        settings=_redacted_json(record.settings.encode(), masker).decode(),
        usage=None if record.usage is None else _redacted_json(record.usage.encode(), masker).decode(),
        state=_redacted_state(record.state, masker),
    )


def redacted_turns(record: SessionRecord, turns: Iterable[TranscriptTurn]) -> Iterator[TranscriptTurn]:
    """A session's turns, redacted."""
    masker = masker_for(record.cwd)
    return (redact(turn, masker) for turn in turns)


def _redacted_state(state: bytes | None, masker: Masker) -> bytes | None:
    if state is None or state[:1] != JSON_STATE:
        return None if state is None else masker.mask_bytes(state)
    return JSON_STATE + _redacted_json(state[1:], masker)


def _redacted_json(text: bytes, masker: Masker) -> bytes:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return masker.mask_bytes(text)
    shown = redact(value, masker)
    return text if shown is value else msgspec.json.encode(shown)


def escape_markdown(text: str) -> str:
    """Escapes a text so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def code_span(text: str) -> str:
    """Formats a code span, which takes backticks too."""
    text = one_line(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def code_block(text: str, language: str = "") -> str:
    """Formats a block of code, with a fence that is longer than any in it."""
    return fenced(text.rstrip("\n"), language)


def quote_markdown(text: str) -> str:
    """Formats a quotation: what is left open in it ends with it."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def close_markdown(text: str) -> str:
    """Closes a fence or a comment that a Markdown text left open."""
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            # A line such as ```a``` is code in a line, no fence.
            fence = "" if match[1][0] == "`" and "`" in match[2] else match[1]
        elif match[1].startswith(fence) and not match[2].strip():
            fence = ""
    if fence:
        return f"{text}\n{fence}"
    return f"{text}\n-->" if text.rfind("<!--") > text.rfind("-->") else text


def events_to_read(turn: TranscriptTurn) -> list[TranscriptEvent]:
    """The events of a turn, with the plan once: where it was made, and as it stood in the end."""
    events = [entry.event for entry in turn.entries]
    plans = [event for event in events if isinstance(event, Plan)]
    first = events.index(plans[0]) if plans else -1
    return [
        plans[-1] if index == first else event
        for index, event in enumerate(events)
        if index == first or not isinstance(event, Plan)
    ]


def passages_of_prompt(prompt: Iterable[Raw]) -> list[TranscriptPassage]:
    """The passages of a prompt."""
    return [_of_decoded_block(_decoded(raw)) for raw in prompt]


def passage_of_block(block: Any) -> TranscriptPassage:
    """The passage of a content block."""
    return _of_decoded_block(msgspec.to_builtins(block))


def passages_of_output(call: ToolCall) -> list[TranscriptPassage]:
    """The passages of a tool call's content."""
    return [_of_item(msgspec.to_builtins(item)) for item in call.content]


def title_of(call: ToolCall) -> str:
    """The title of a tool call, in one line."""
    return one_line(call.title) or one_line(call.name or "") or "(no title)"


def input_of(call: ToolCall) -> str:
    """The input of a tool call, in one line of JSON."""
    return "" if call.raw_input is None else terminal_safe_json(msgspec.json.encode(call.raw_input).decode())


def status_of(call: ToolCall, outcome: TurnOutcome) -> str:
    """The status of a tool call, in a word."""
    if call.is_open and outcome == "interrupted":
        return "interrupted"
    if call.status == "failed" and call.meta == CANCELLED_META:
        return "cancelled"
    return one_line(call.status).replace("_", " ")


def describe_end(turn: TranscriptTurn, outcome: TurnOutcome, pid: int | None) -> str:
    """Says how the turn ended; empty for `end_turn`."""
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


def describe_notice(notice: Notice) -> str:
    """Formats a notice in a line or two."""
    description = f"\n{clean(notice.description)}" if notice.description else ""
    return f"{one_line(notice.severity).capitalize()}: {one_line(notice.title)}{description}"


def describe_compaction(compaction: Compaction) -> str:
    """Says that the agent shortened its context."""
    if compaction.status == "in_progress":
        return "Summarizing the earlier conversation was not finished."
    return clean(compaction_text(compaction))


def _decoded(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _of_decoded_block(block: Any) -> TranscriptPassage:
    if not isinstance(block, dict):
        return TranscriptPassage(note="something that cannot be read")
    kind = _string(block, "type")
    match kind:
        case "text":
            return TranscriptPassage(text=clean(_string(block, "text")))
        case "image" | "audio":
            data = _size_of_base64(_string(block, "data"))
            return TranscriptPassage(note=f"{kind}, {one_line(_string(block, 'mimeType'))}, {data}")
        case "resource_link":
            return TranscriptPassage(note=_named(block))
        case "resource":
            return _of_resource(block.get("resource"))
    return TranscriptPassage(note=f"something of the kind {one_line(kind) or 'unknown'}")


def _of_resource(resource: Any) -> TranscriptPassage:
    if not isinstance(resource, dict):
        return TranscriptPassage(note="something that cannot be read")
    if "text" in resource:
        return TranscriptPassage(note=_named(resource), code=clean(_string(resource, "text")))
    return TranscriptPassage(note=f"{_named(resource)}, {_size_of_base64(_string(resource, 'blob'))}")


def _of_item(item: Any) -> TranscriptPassage:
    match item.get("type"):
        case "content":
            passage = _of_decoded_block(item.get("content"))
            # A program's output is no prose.
            return passage._replace(text="", code=passage.text) if passage.text else passage
        case "diff":
            return TranscriptPassage(
                note=one_line(_string(item, "path")), code=_difference(item), language="diff"
            )
        case "terminal":
            return TranscriptPassage(note="output in a terminal of the editor")
    return TranscriptPassage(note=f"something of the kind {one_line(_string(item, 'type')) or 'unknown'}")


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
