"""What the parsers of all streams share: lines in, events out, and no line that breaks a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar

from msgspec import UNSET

from coupler.events import Plan, ToolOutput, ToolUpdate
from coupler.providers.loose import Loose, loosely
from coupler.providers.said import Outcome, Said
from coupler.providers.tool_words import diffs_in, paths_in, title_of, tool_kind
from coupler.schema.v1 import Content, PlanEntry, TextContent, ToolCallLocation

Reading = Callable[[Any, Loose], Iterable[Said]]


class StreamParser:
    """Reads the lines of one turn. Pure: no clock, no files, no processes."""

    KINDS: ClassVar[Mapping[str, Reading]]
    """How each kind of line is read. Other kinds are counted and passed over."""

    def __init__(self) -> None:
        self.outcome = Outcome()
        self.unknown = 0
        """Lines of a kind that this version does not know."""
        self.garbage = 0
        """Lines that are no JSON objects."""
        self._calls: dict[str, bool] = {}
        """The tool calls that were announced; whether they are over."""
        self._numbers = count(1)

    @staticmethod
    def kind_of(line: Loose) -> str:
        """What tells the kinds of lines apart."""
        return line.text("type")

    def read(self, line: bytes) -> list[Said]:
        """The events that a line says."""
        found = loosely(line)
        if found is None:
            self.garbage += 1
            return []
        reading = self.KINDS.get(self.kind_of(found))
        if reading is None:
            self.unknown += 1
            return []
        return list(reading(self, found))

    def end(self) -> list[Said]:
        """What is left to say when the stream is over."""
        return []

    def passed_over(self, line: Loose) -> Iterable[Said]:
        """A line that is known and says nothing to a client."""
        return ()

    def call(self, id: str, name: str, arguments: Any, **fields: Any) -> Iterator[Said]:
        """A tool call with its arguments, announced or told more of."""
        if self._calls.get(id):
            return
        is_new = id not in self._calls
        self._calls[id] = False
        paths = paths_in(arguments)
        yield ToolUpdate(
            id=id,
            title=title_of(name, arguments),
            kind=tool_kind(name),
            status="in_progress",
            name=name or UNSET,
            locations=tuple(ToolCallLocation(path) for path in paths) or UNSET,
            raw_input=UNSET if arguments is None else arguments,
            **fields,
        )
        if is_new or arguments:
            for diff in diffs_in(name, arguments):
                yield ToolOutput(id, diff)

    def result(self, id: str, output: str, *, failed: bool = False, raw: Any = None) -> Iterator[Said]:
        """A tool call's end, with what it shows."""
        if self._calls.get(id):
            return
        self._calls[id] = True
        if output:
            yield ToolOutput(id, text_item(output))
        status = "failed" if failed else "completed"
        yield ToolUpdate(id=id, status=status, raw_output=UNSET if raw is None else raw)

    def new_id(self, name: str) -> str:
        """An id for a tool call that came without one."""
        return f"{name or 'tool'}_{next(self._numbers)}"


class Streamed:
    """Texts that come in pieces and then once more as a whole: the whole adds only what the pieces lack."""

    def __init__(self) -> None:
        self._pieces: dict[str, str] = {}

    def piece(self, key: str, text: str) -> str:
        """Take a piece in; it is new."""
        self._pieces[key] = self._pieces.get(key, "") + text
        return text

    def whole(self, key: str, text: str) -> str:
        """What of the whole was not said yet."""
        said = self._pieces.get(key, "")
        if said.startswith(text):
            self._pieces[key] = said[len(text) :]  # several wholes may follow one row of pieces
            return ""
        self._pieces.pop(key, None)
        return text[len(said) :] if text.startswith(said) else text

    def so_far(self, key: str, text: str) -> str:
        """What is new in a text that is told again and again as it grows."""
        said = self._pieces.get(key, "")
        self._pieces[key] = text
        return text[len(said) :] if text.startswith(said) else text


def text_item(text: str) -> Content:
    """A text as tool calls show it."""
    return Content(TextContent(text))


_STATUSES = {"completed": "completed", "done": "completed", "in_progress": "in_progress"}
_PRIORITIES = ("high", "medium", "low")


def plan_of(entries: Iterable[Loose]) -> Plan:
    """A list of things to do, as the agents' own tools take it."""
    return Plan(
        tuple(
            PlanEntry(
                text,
                priority if (priority := entry.text("priority")) in _PRIORITIES else "medium",  # type: ignore[arg-type]
                _status_of(entry),  # type: ignore[arg-type]
            )
            for entry in entries
            if (text := entry.text("content", "text", "description"))
        )
    )


def _status_of(entry: Loose) -> str:
    return "completed" if entry.is_true("completed") else _STATUSES.get(entry.text("status"), "pending")
