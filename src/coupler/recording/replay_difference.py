"""Compares a replayed conversation with the recorded one, exchange by exchange.

What differs in every run is normalized first: ids are numbered in the order in which they appear, times are
left out, and the chunks of one text are joined.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from coupler.recording.masking import CHUNK_UPDATES
from coupler.recording.replay import ReplayScript, scripts_of, session_of
from coupler.recording.traces import Trace, TraceEntry

GENERATED_ID_KEYS = frozenset(
    {"sessionId", "toolCallId", "messageId", "terminalId", "elicitationId", "requestId"}
)
"""Keys whose values differ in every run."""

STATE_UPDATES = frozenset(
    {"available_commands_update", "config_option_update", "current_mode_update", "session_info_update"}
    | {"usage_update"}
)
"""Updates about the session as a whole: their position between others, and repetitions, mean nothing."""

TIMESTAMP_KEYS = frozenset({"updatedAt", "createdAt", "timestamp", "lastUpdated"})

MOST_SHOWN_CHARACTERS = 300
"""Characters of a value that are shown."""


class AgentMessage(NamedTuple):
    """One thing that an agent said: its kind and content."""

    kind: str
    content: Any

    def __str__(self) -> str:
        return f"{self.kind} {shortened(self.content)}"


class Difference(NamedTuple):
    """The differences of one exchange. `title` is for people; the lines begin with -, + or ~."""

    title: str
    lines: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return not self.lines


def differences(recorded: Trace, played: Trace) -> Iterator[Difference]:
    """Compare every exchange of the recording, in order, and list those that were added."""
    before, after = scripts_of(recorded), scripts_of(played)
    ids_before, ids_after = IdNumbering(), IdNumbering()
    for number, script in enumerate(before):
        other = after[number] if number < len(after) else None
        old = _sorted(_messages_of(script, ids_before))
        if other is None:
            yield Difference(_title(number, script), ("- it did not come to this request",))
            continue
        new = _sorted(_messages_of(other, ids_after))
        if script.exchange is not None or old or new:
            yield Difference(_title(number, script), tuple(_compared(old, new)))


class IdNumbering:
    """Numbers ids by their first appearance, each kind separately."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._standing: dict[tuple[Any, str], Any] = {}

    def is_repeated(self, message: AgentMessage, session: Any) -> bool:
        """Return whether an update repeats the last state of a session."""
        if message.kind not in STATE_UPDATES:
            return False
        before = self._standing.get((session, message.kind))
        self._standing[session, message.kind] = message.content
        return bool(before == message.content)

    def equal(self, value: Any) -> Any:
        """Return the value without what differs in every run."""
        if isinstance(value, list):
            return [self.equal(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: self._number(key, item)
            if key in GENERATED_ID_KEYS and isinstance(item, str)
            else self.equal(item)
            for key, item in value.items()
            if key != "_meta" and key not in TIMESTAMP_KEYS
        }

    def _number(self, key: str, id: str) -> str:
        if (key, id) not in self._numbers:
            self._counts[key] = self._counts.get(key, 0) + 1
            self._numbers[key, id] = f"{key} {self._counts[key]}"
        return self._numbers[key, id]


def shortened(value: Any) -> str:
    """Format a value as one line of JSON, cut if it is long."""
    text = msgspec.json.encode(value).decode()
    return (
        text
        if len(text) <= MOST_SHOWN_CHARACTERS
        else f"{text[:MOST_SHOWN_CHARACTERS]}… +{len(text) - MOST_SHOWN_CHARACTERS}"
    )


def _messages_of(script: ReplayScript, ids: IdNumbering) -> Iterator[AgentMessage]:
    """Return what the agent said in an exchange, with the chunks of one text joined."""
    text: AgentMessage | None = None
    for step in script.steps:
        if step.action in ("await answer", "await cancel"):
            continue
        message = _message_of(step.entry, ids)
        if ids.is_repeated(message, session_of(step.entry)):
            continue
        if text is not None and _continues(text, message):
            joined = text.content["content"]["text"] + message.content["content"]["text"]
            text = AgentMessage(
                text.kind, {**text.content, "content": {**text.content["content"], "text": joined}}
            )
            continue
        if text is not None:
            yield text
            text = None
        if message.kind in CHUNK_UPDATES and _has_text(message):
            text = message
        else:
            yield message
    if text is not None:
        yield text


def _sorted(messages: Iterable[AgentMessage]) -> list[AgentMessage]:
    """Keep the order, but put updates about the session as a whole after all others."""
    return sorted(messages, key=lambda message: message.kind if message.kind in STATE_UPDATES else "")


def _message_of(entry: TraceEntry, ids: IdNumbering) -> AgentMessage:
    message = entry.message
    if not message:
        return AgentMessage("a line that is no message:", entry.line.decode(errors="replace"))
    if entry.is_answer:
        kind = "error" if "error" in message else "result"
        return AgentMessage(kind, ids.equal(message[kind]))
    params = message.get("params")
    if (
        entry.method == "session/update"
        and isinstance(params, dict)
        and isinstance(params.get("update"), dict)
    ):
        update = dict(params["update"])
        return AgentMessage(str(update.pop("sessionUpdate", "update")), ids.equal(update))
    return AgentMessage(entry.method or "message", ids.equal(params))


def _continues(text: AgentMessage, message: AgentMessage) -> bool:
    """Return whether a message is the next chunk of the same text."""
    if message.kind != text.kind or not _has_text(message):
        return False
    rests = [{**each.content, "content": {**each.content["content"], "text": ""}} for each in (text, message)]
    return bool(rests[0] == rests[1])


def _has_text(message: AgentMessage) -> bool:
    content = message.content.get("content") if isinstance(message.content, dict) else None
    return isinstance(content, dict) and isinstance(content.get("text"), str)


def _compared(old: list[AgentMessage], new: list[AgentMessage]) -> Iterator[str]:
    keys = [[msgspec.json.encode(each, order="sorted") for each in side] for side in (old, new)]
    matcher = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            yield from _changed(old[old_from:old_to], new[new_from:new_to])


def _changed(old: list[AgentMessage], new: list[AgentMessage]) -> Iterator[str]:
    """Pair messages of one kind in the same position as changed; the rest is missing or extra."""
    kinds = difflib.SequenceMatcher(
        None, [each.kind for each in old], [each.kind for each in new], autojunk=False
    )
    for tag, old_from, old_to, new_from, new_to in kinds.get_opcodes():
        if tag == "equal":
            for before, after in zip(old[old_from:old_to], new[new_from:new_to], strict=True):
                yield from (f"~ {before.kind} {line}" for line in _paths(before.content, after.content))
            continue
        yield from (f"- {message}" for message in old[old_from:old_to])
        yield from (f"+ {message}" for message in new[new_from:new_to])


def _paths(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """List what is different, each with its path."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            place = f"{path}.{key}" if path else str(key)
            if key not in after:
                yield f"{place}: {shortened(before[key])} is missing"
            elif key not in before:
                yield f"{place}: {shortened(after[key])} is new"
            else:
                yield from _paths(before[key], after[key], place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _paths(*pair, f"{path}[{index}]")
    else:
        yield f"{path or 'value'}: {shortened(before)} → {shortened(after)}"


def _title(number: int, script: ReplayScript) -> str:
    if script.exchange is None:
        return "before the first request"
    return f"{number}. {script.method}{_words_of(script.exchange.params)}"


def _words_of(params: dict[str, Any]) -> str:
    prompt: Iterable[Any] = params.get("prompt") if isinstance(params.get("prompt"), list) else ()  # type: ignore[assignment]
    texts = [str(block.get("text")) for block in prompt if isinstance(block, dict) and "text" in block]
    return f" {shortened(' '.join(texts)[:60])}" if texts else ""
