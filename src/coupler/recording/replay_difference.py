"""Where a replayed conversation differs from the recorded one, exchange by exchange.

What differs in every run is made equal first: ids are numbered in the order in which they appear, times are
left out, and the pieces of one text are put together.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from coupler.recording.masking import PIECES
from coupler.recording.replay import Script, scripts_of, session_of
from coupler.recording.traces import Entry, Trace

MADE_UP = frozenset({"sessionId", "toolCallId", "messageId", "terminalId", "elicitationId", "requestId"})
"""Keys whose values are other ones in every run."""

STANDING = frozenset(
    {"available_commands_update", "config_option_update", "current_mode_update", "session_info_update"}
    | {"usage_update"}
)
"""Updates about the session as a whole: where they come between others means nothing, nor a repetition."""

TIMES = frozenset({"updatedAt", "createdAt", "timestamp", "lastUpdated"})

LONGEST = 300
"""Characters of a value that are shown."""


class Saying(NamedTuple):
    """One thing that an agent said: what it was, and its content."""

    kind: str
    content: Any

    def __str__(self) -> str:
        return f"{self.kind} {shortened(self.content)}"


class Difference(NamedTuple):
    """How an exchange went otherwise. `title` is for people; the lines begin with -, + or ~."""

    title: str
    lines: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return not self.lines


def differences(recorded: Trace, played: Trace) -> Iterator[Difference]:
    """Every exchange of the recording, in order, and those that came to it."""
    before, after = scripts_of(recorded), scripts_of(played)
    ids_before, ids_after = Ids(), Ids()
    for number, script in enumerate(before):
        other = after[number] if number < len(after) else None
        old = _sorted(_sayings(script, ids_before))
        if other is None:
            yield Difference(_title(number, script), ("- it did not come to this request",))
            continue
        new = _sorted(_sayings(other, ids_after))
        if script.exchange is not None or old or new:
            yield Difference(_title(number, script), tuple(_compared(old, new)))


class Ids:
    """Numbers ids by their first appearance, those of each kind for themselves."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._standing: dict[tuple[Any, str], Any] = {}

    def is_repeated(self, saying: Saying, session: Any) -> bool:
        """Whether it says of a session what was the last that was said of it."""
        if saying.kind not in STANDING:
            return False
        before = self._standing.get((session, saying.kind))
        self._standing[session, saying.kind] = saying.content
        return bool(before == saying.content)

    def equal(self, value: Any) -> Any:
        """The value without what differs in every run."""
        if isinstance(value, list):
            return [self.equal(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: self._number(key, item) if key in MADE_UP and isinstance(item, str) else self.equal(item)
            for key, item in value.items()
            if key != "_meta" and key not in TIMES
        }

    def _number(self, key: str, id: str) -> str:
        if (key, id) not in self._numbers:
            self._counts[key] = self._counts.get(key, 0) + 1
            self._numbers[key, id] = f"{key} {self._counts[key]}"
        return self._numbers[key, id]


def shortened(value: Any) -> str:
    """A value as one line of JSON, cut if it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… +{len(text) - LONGEST}"


def _sayings(script: Script, ids: Ids) -> Iterator[Saying]:
    """What the agent said in an exchange, with the pieces of one text put together."""
    text: Saying | None = None
    for step in script.steps:
        if step.action in ("await answer", "await cancel"):
            continue
        saying = _saying(step.entry, ids)
        if ids.is_repeated(saying, session_of(step.entry)):
            continue
        if text is not None and _continues(text, saying):
            joined = text.content["content"]["text"] + saying.content["content"]["text"]
            text = Saying(text.kind, {**text.content, "content": {**text.content["content"], "text": joined}})
            continue
        if text is not None:
            yield text
            text = None
        if saying.kind in PIECES and _has_text(saying):
            text = saying
        else:
            yield saying
    if text is not None:
        yield text


def _sorted(sayings: Iterable[Saying]) -> list[Saying]:
    """In their order, but those about the session as a whole after all others."""
    return sorted(sayings, key=lambda saying: saying.kind if saying.kind in STANDING else "")


def _saying(entry: Entry, ids: Ids) -> Saying:
    message = entry.message
    if not message:
        return Saying("a line that is no message:", entry.line.decode(errors="replace"))
    if entry.is_answer:
        kind = "error" if "error" in message else "result"
        return Saying(kind, ids.equal(message[kind]))
    params = message.get("params")
    if (
        entry.method == "session/update"
        and isinstance(params, dict)
        and isinstance(params.get("update"), dict)
    ):
        update = dict(params["update"])
        return Saying(str(update.pop("sessionUpdate", "update")), ids.equal(update))
    return Saying(entry.method or "message", ids.equal(params))


def _continues(text: Saying, saying: Saying) -> bool:
    """Whether it is the next piece of the same text."""
    if saying.kind != text.kind or not _has_text(saying):
        return False
    rests = [{**each.content, "content": {**each.content["content"], "text": ""}} for each in (text, saying)]
    return bool(rests[0] == rests[1])


def _has_text(saying: Saying) -> bool:
    content = saying.content.get("content") if isinstance(saying.content, dict) else None
    return isinstance(content, dict) and isinstance(content.get("text"), str)


def _compared(old: list[Saying], new: list[Saying]) -> Iterator[str]:
    keys = [[msgspec.json.encode(each, order="sorted") for each in side] for side in (old, new)]
    matcher = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            yield from _changed(old[old_from:old_to], new[new_from:new_to])


def _changed(old: list[Saying], new: list[Saying]) -> Iterator[str]:
    """Sayings of one kind in the same place are one that was changed; the rest is missing or extra."""
    kinds = difflib.SequenceMatcher(
        None, [each.kind for each in old], [each.kind for each in new], autojunk=False
    )
    for tag, old_from, old_to, new_from, new_to in kinds.get_opcodes():
        if tag == "equal":
            for before, after in zip(old[old_from:old_to], new[new_from:new_to], strict=True):
                yield from (f"~ {before.kind} {line}" for line in _paths(before.content, after.content))
            continue
        yield from (f"- {saying}" for saying in old[old_from:old_to])
        yield from (f"+ {saying}" for saying in new[new_from:new_to])


def _paths(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """What is different, each with the place where it is."""
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


def _title(number: int, script: Script) -> str:
    if script.exchange is None:
        return "before the first request"
    return f"{number}. {script.method}{_words_of(script.exchange.params)}"


def _words_of(params: dict[str, Any]) -> str:
    prompt: Iterable[Any] = params.get("prompt") if isinstance(params.get("prompt"), list) else ()  # type: ignore[assignment]
    texts = [str(block.get("text")) for block in prompt if isinstance(block, dict) and "text" in block]
    return f" {shortened(' '.join(texts)[:60])}" if texts else ""
