"""Masks secrets in a recording: in every text of every message, and in texts that come in chunks.

A recording is for people, so nothing in it has to work: prompts, files and arguments are masked like the
rest. Keys, numbers, JSON-RPC ids and methods stay as they are, so that answers still match their requests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.agent.output import TOO_DEEP
from coupler.redaction.masker import REMEMBERED, Masker
from coupler.redaction.sources import declared_secrets, secrets_in_environment

if TYPE_CHECKING:
    from coupler.recording.traces import TraceEntry
    from coupler.redaction.sources import Secret


CHUNK_UPDATES = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
"""The updates that are chunks of one text."""

PAIR_LISTS = frozenset({"env", "headers"})
"""Keys of messages that may hold secrets: lists of objects with a name and a value."""

MOST_LEARNED_SECRETS = 1000
"""Secrets that messages may name before no more are learned."""

UNMASKED_KEYS = frozenset({"jsonrpc", "id", "method"})
"""Members of a message that are never masked."""


def secrets_to_mask(more: Iterable[Secret] = ()) -> list[Secret]:
    """Return the secrets of the environment and of the user's settings, and `more`."""
    from coupler.config import ConfigError, load

    try:
        names = [entry.text for entry in load(None, environ=os.environ).secrets.names]
    except (ConfigError, OSError):
        names = []  # whoever needs the settings says what is wrong with them; a recording must go on
    declared = {name: os.environ[name] for name in names if name in os.environ}
    return [*more, *declared_secrets(declared), *secrets_in_environment(os.environ)]


class MessageMasker:
    """Masks messages, and learns secrets that they name themselves."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self.masker = Masker(secrets)
        self._learned: set[Secret] = set()

    def masked(self, value: Any) -> Any:
        """Return the value of a line with secrets masked; the same object if there are none."""
        if not isinstance(value, dict):
            return _masked(value, self.masker)
        shown = {
            key: item if key in UNMASKED_KEYS else _masked(item, self.masker) for key, item in value.items()
        }
        return shown if any(shown[key] is not value[key] for key in shown) else value

    def learn(self, value: Any) -> None:
        """Note the values of variables and headers whose names look secret."""
        found = {*_named_secrets(value, levels=8)} - self._learned
        if found and len(self._learned) < MOST_LEARNED_SECRETS:
            self._learned |= found
            self.masker = self.masker.with_secrets(sorted(found))


class ChunkedText:
    """A text in several messages: chunks wait as long as a secret may continue in the next one."""

    def __init__(self) -> None:
        self._before = ""
        self._texts: list[str] = []

    def add(self, text: str, masker: Masker) -> bool:
        """Add the next chunk. Returns whether all chunks so far may be shown now."""
        self._texts.append(text)
        whole = self._before + "".join(self._texts)
        return masker.finder.find(whole).unfinished == len(whole)

    def release(self, masker: Masker) -> list[str]:
        """Return the chunks with secrets masked; the mask stands in the chunk where the secret begins."""
        whole = self._before + "".join(self._texts)
        regions = masker.finder.find(whole).regions
        first = position = len(self._before)
        shown: list[str] = []
        for text in self._texts:
            end = position + len(text)
            parts: list[str] = []
            at = position
            for region in regions:
                if region.end <= position or region.start >= end:
                    continue
                parts.append(whole[at : region.start])
                if region.start >= position or position == first:
                    parts.append(masker.mark(region.name))
                at = region.end
            shown.append("".join((*parts, whole[at:end])))
            position = end
        self._before, self._texts = whole[-REMEMBERED:], []
        return shown


def piece_of(message: Mapping[str, Any]) -> tuple[Any, str, str] | None:
    """Return the session, kind and text of an update that is a chunk."""
    match message:
        case {
            "method": "session/update",
            "params": {
                "sessionId": str(session),
                "update": {"sessionUpdate": str(kind), "content": {"type": "text", "text": str(text)}},
            },
        } if kind in CHUNK_UPDATES:
            return session, kind, text
    return None


def with_text(message: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a copy of such an update with another text."""
    params = message["params"]
    update = params["update"]
    content = {**update["content"], "text": text}
    return {**message, "params": {**params, "update": {**update, "content": content}}}


def _masked(value: Any, masker: Masker) -> Any:
    """Mask every text in a JSON value; it was decoded, so it is not too deep to walk through."""
    if isinstance(value, str):
        return masker.mask(value)
    if isinstance(value, dict):
        masked = {key: _masked(item, masker) for key, item in value.items()}
        return masked if any(masked[key] is not value[key] for key in masked) else value
    if isinstance(value, list):
        items = [_masked(item, masker) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _named_secrets(value: Any, levels: int) -> Iterator[Secret]:
    if levels == 0:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if key in PAIR_LISTS and isinstance(item, list):
                yield from _secrets_of_pairs(item)
            else:
                yield from _named_secrets(item, levels - 1)
    elif isinstance(value, list):
        for item in value:
            yield from _named_secrets(item, levels - 1)


def _secrets_of_pairs(pairs: list[Any]) -> Iterator[Secret]:
    for pair in pairs:
        match pair:
            case {"name": str(name), "value": str(value)}:
                # "Bearer …": the token is as secret without the word before it.
                _, _, token = value.partition(" ")
                yield from secrets_in_environment({name: value})
                yield from secrets_in_environment({name: token})


class TraceMasker:
    """Masks the lines of a whole trace and what was printed beside them.

    Lines without secrets stay as they were. The trace is complete when it is written: a chunked text is
    searched as one, whatever stands between its chunks.
    """

    def __init__(self, entries: Sequence[TraceEntry], secrets: Iterable[Secret]) -> None:
        self._screen = MessageMasker(secrets_to_mask(secrets))
        for entry in entries:
            self._screen.learn(entry.message)
        self._texts = _texts(entries, self._screen.masker)

    def mask(self, text: str) -> str:
        """Mask a text that was printed."""
        return self._screen.masker.mask(text)

    def line(self, entry: TraceEntry) -> bytes:
        """Return the entry's line as it may be shown."""
        try:
            value = msgspec.json.decode(entry.line)
            shown = self._frame(value, self._texts.get(entry.number))
        except RecursionError:
            return msgspec.json.encode(TOO_DEEP)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._screen.masker.mask_bytes(entry.line)
        return entry.line if shown is value else msgspec.json.encode(shown)

    def _frame(self, value: Any, text: str | None) -> Any:
        shown = self._screen.masked(value)
        if text is None or text == shown["params"]["update"]["content"]["text"]:
            return shown
        return with_text(shown, text)


def _texts(entries: Sequence[TraceEntry], masker: Masker) -> dict[int, str]:
    """Return the text of each line that is a chunk."""
    runs: dict[tuple[Any, str], tuple[ChunkedText, list[int]]] = {}
    for entry in entries:
        piece = piece_of(entry.message)
        if piece is not None:
            session, kind, text = piece
            pieces, numbers = runs.setdefault((session, kind), (ChunkedText(), []))
            pieces.add(text, masker)
            numbers.append(entry.number)
    return {
        number: text
        for pieces, numbers in runs.values()
        for number, text in zip(numbers, pieces.release(masker), strict=True)
    }
