"""Parses the JSON lines of vendors' command lines into events.

`StreamParser` is the base of the programs' parsers, `LooseObject` reads JSON that may lack anything, and the
functions at the end translate tools and their arguments into ACP's kinds, titles, locations and diffs.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct

from coupler.agent.errors import TurnFailedError
from coupler.events import Notice, Plan, Text, Thought, ToolOutput, ToolUpdate, Usage
from coupler.events.fold import TextPieces
from coupler.runtime.formatting import shortened
from coupler.runtime.process import last_lines
from coupler.schema.v1 import Content, Diff, PlanEntry, TextContent, ToolCallLocation, ToolKind
from coupler.wire.messages import structure_problem

T = TypeVar("T")

MOST_TOKENS = 2**53

HELD_CHARACTERS = 16 * 1024 * 1024
"""Characters of texts that are compared with what follows, of all messages and tools together."""

HELD_KEYS = 8 * 1024 * 1024
"""Characters of ids that are remembered, each with `KEY_COST`."""

KEY_COST = 200
"""Bytes that are counted for an id besides its characters."""

MOST_UNNAMED = 1000
"""Open items without an id that are told apart, of one kind."""

MUCH_LONGER = 2
"""A final text that is this many times as long as its chunks says more than they did."""

LONGEST_TITLE = 120
"""Characters of a tool call's title."""

StreamEvent: TypeAlias = Text | Thought | Notice | Plan | Usage | ToolUpdate | ToolOutput
"""The events that a parser returns; those of tool calls have the stream's own ids."""


class ProviderError(TurnFailedError):
    """A program or a server could not answer the turn; the session lives on."""

    def __init__(self, message: str, *, exit_code: int | None = None, stderr: str = "") -> None:
        tail = last_lines(stderr)
        quoted = f"{message}\nstderr: {tail}" if tail else message
        if exit_code is None:
            super().__init__(quoted)
        else:
            super().__init__(quoted, exitCode=exit_code)


class LooseObject:
    """A JSON object to be read by key, tolerating what is missing or of another type.

    Several keys are tried in turn; nothing here ever raises.
    """

    def __init__(self, value: object = None) -> None:
        self.members: dict[str, Any] = value if isinstance(value, dict) else {}

    def __bool__(self) -> bool:
        return bool(self.members)

    def __contains__(self, name: str) -> bool:
        return self.members.get(name) is not None

    def text(self, *names: str) -> str:
        """Return the first text that is not empty, or an empty one."""
        return next(
            (value for name in names if isinstance(value := self.members.get(name), str) and value), ""
        )

    def count(self, *names: str) -> int | None:
        """Return the first integer from 0 on."""
        for name in names:
            value = self.members.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS:
                return int(value)
        return None

    def amount(self, *names: str) -> float | None:
        """Return the first amount of money from 0 on."""
        for name in names:
            value = self.members.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS:
                return float(value)
        return None

    def object(self, *names: str) -> LooseObject:
        """Return the first object that is not empty, or an empty one."""
        return next(
            (found for name in names if (found := LooseObject(self.members.get(name)))), LooseObject()
        )

    def objects(self, *names: str) -> list[LooseObject]:
        """Return the objects in the first list."""
        for name in names:
            value = self.members.get(name)
            if isinstance(value, list):
                return [LooseObject(item) for item in value if isinstance(item, dict)]
        return []

    def texts(self, name: str) -> list[str]:
        """Return the texts in a list."""
        value = self.members.get(name)
        return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []

    def raw(self, *names: str) -> Any:
        """Return the first value that is there, of any type."""
        return next((value for name in names if (value := self.members.get(name)) is not None), None)

    def is_true(self, name: str) -> bool:
        """Return whether the value is true."""
        return self.members.get(name) is True


def parse_object(line: bytes) -> LooseObject | None:
    """Parse a line as a JSON object, in any encoding; None if it is none."""
    if not line.lstrip().startswith(b"{"):  # most that is no object costs no parser and no exception
        return None
    value = _parsed(line)
    return LooseObject(value) if isinstance(value, dict) else None


def parse_text(text: str) -> Any:
    """Parse a text as JSON, or return the text itself."""
    value = _parsed(text.encode("utf-8", "surrogatepass"))
    return text if value is None else value


def _parsed(line: bytes) -> Any:
    if structure_problem(line) is not None:
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # Half a character, or bytes that are not UTF-8, cost a replacement sign and not the line.
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


LineHandler = Callable[[Any, LooseObject], Iterable[StreamEvent]]


class TokenCounts(Struct, frozen=True):
    """Tokens of a turn, in kinds that do not overlap; None is unknown."""

    input: int = 0
    """Input tokens, without those read from or written to a cache."""
    output: int = 0
    """Output tokens, without thoughts where those are counted apart."""
    cached_read: int | None = None
    cached_write: int | None = None
    thought: int | None = None
    total: int | None = None
    """The total that the program reports; None for the sum of the kinds."""

    @property
    def sum(self) -> int:
        """The total of all kinds."""
        if self.total is not None:
            return self.total
        kinds = (self.cached_read, self.cached_write, self.thought)
        return self.input + self.output + sum(kind or 0 for kind in kinds)

    def plus(self, more: TokenCounts | None) -> TokenCounts:
        """Return the sum of both."""
        return self if more is None else self._combined(more, 1)

    def since(self, before: TokenCounts) -> TokenCounts:
        """Return what was added to `before`; all of it if this does not continue from there."""
        if self.sum < before.sum:
            return self
        return self._combined(before, -1)

    def _combined(self, other: TokenCounts, sign: int) -> TokenCounts:
        changes: dict[str, int | None] = {}
        for name in self.__struct_fields__:
            ours, theirs = getattr(self, name), getattr(other, name)
            changes[name] = (
                None if ours is None and theirs is None else max((ours or 0) + sign * (theirs or 0), 0)
            )
        if self.total is None or other.total is None:
            changes["total"] = None
        return msgspec.structs.replace(self, **changes)


class TurnOutcome:
    """The result of a turn besides its events; a parser fills it in as it reads."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        """The program's own session, to be continued by the next turn."""
        self.tokens: TokenCounts | None = None
        self.cost: float | None = None
        """Cost of the turn, in US dollars."""
        self.stop_reason: str | None = None
        self.error: str | None = None
        """The reason for which the turn failed, if the stream says that it did."""
        self.warning: str | None = None
        """The last thing that went wrong without ending the turn: an explanation if it ends badly."""
        self.structured: Any = UNSET
        """The answer in the form that was asked for, where that is not the text itself."""
        self.is_final = False
        """True if the stream has sent its final message."""


class StreamParser:
    """Parses the lines of one turn. Pure: no clock, no files, no processes."""

    KINDS: ClassVar[Mapping[str, LineHandler]]
    """The handler of each kind of line. Other kinds are counted and ignored."""
    IGNORED: ClassVar[frozenset[str]] = frozenset()
    """Kinds of lines that are known and of no interest to a client."""

    def __init__(self) -> None:
        self.outcome = TurnOutcome()
        self.unknown = 0
        """Lines of a kind that this version does not know."""
        self.garbage = 0
        """Lines that are no JSON objects."""
        self._calls: RecentKeys[bool] = RecentKeys()
        """The tool calls that were announced, by id; True for those that have ended."""
        self._numbers = count(1)
        self._unnamed: RecentKeys[list[str]] = RecentKeys()
        """The ids of open items that came without one, by kind, oldest first."""

    @staticmethod
    def kind_of(line: LooseObject) -> str:
        """Return the kind of a line."""
        return line.text("type")

    def read(self, line: bytes) -> list[StreamEvent]:
        """Parse a line and return its events."""
        found = parse_object(line)
        if found is None:
            self.garbage += 1
            return []
        kind = self.kind_of(found)
        if kind in self.KINDS:
            return list(self.KINDS[kind](self, found))
        self.unknown += kind not in self.IGNORED
        return []

    def end(self) -> list[StreamEvent]:
        """Return the events that are left when the stream is over."""
        return []

    def call(self, id: str, name: str, arguments: Any, **fields: Any) -> Iterator[StreamEvent]:
        """Return the update that announces a tool call with its arguments, or adds to it."""
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

    def result(self, id: str, output: str, *, failed: bool = False, raw: Any = None) -> Iterator[StreamEvent]:
        """Return the update that ends a tool call, with its output."""
        call = self.answering(id)
        if self._calls.get(call):
            return
        self._calls[call] = True
        if output:
            yield ToolOutput(call, text_item(output))
        status = "failed" if failed else "completed"
        yield ToolUpdate(id=call, status=status, raw_output=UNSET if raw is None else raw)

    def answering(self, id: str) -> str:
        """Return the id of the tool call that a result belongs to: without one, the oldest that is open.

        Programs send results in the order of their calls. One that belongs to no call gets a call of its own.
        """
        open_calls = (call for call, is_over in self._calls.items() if not is_over)
        return id or next(open_calls, "") or self.new_id("")

    def new_id(self, name: str) -> str:
        """Return an id for a tool call that came without one."""
        return f"{name or 'tool'}_{next(self._numbers)}"

    def item_id(self, kind: str, *, begins: bool, ends: bool) -> str:
        """Return an id for an item that came without one, in all its lines from the first to the last."""
        items = self._unnamed.get(kind)
        if items is None:
            items = self._unnamed[kind] = []
        if begins or not items:
            del items[: max(0, len(items) - MOST_UNNAMED)]
            items.append(self.new_id(kind))
            return items.pop() if ends else items[-1]
        return items.pop(0) if ends else items[0]


class StreamedText:
    """Deduplicates texts that come in chunks and then once more as a whole.

    The texts that were not heard of for longest are forgotten when all are too long.
    """

    def __init__(self) -> None:
        self._pieces: OrderedDict[str, TextPieces] = OrderedDict()
        self._held = 0

    def piece(self, key: str, text: str) -> str:
        """Note a chunk, which is always new."""
        said = self._pieces.get(key)
        if said is None:
            self._keep(key, text)
        else:
            said.append(text)
            self._pieces.move_to_end(key)
            self._held += len(text)
            self._forget_oldest()
        return text

    def whole(self, key: str, text: str) -> str:
        """Return the part of the whole that was not in the chunks."""
        said = self._taken(key)
        if said.startswith(text):
            self._keep(key, said[len(text) :])  # several wholes may follow one row of pieces
            return ""
        return text[len(said) :] if text.startswith(said) else text

    def final(self, key: str, text: str) -> str:
        """Return what is left to show of a text whose chunks were shown; the whole may differ a little.

        What was shown cannot be taken back, and is not repeated because of a masked word or a space.
        """
        said = self._taken(key)
        if text.startswith(said):
            return text[len(said) :]
        is_the_same = len(said.strip()) * MUCH_LONGER >= len(text.strip())
        return "" if is_the_same else text

    def so_far(self, key: str, text: str) -> str:
        """Return the new part of a text that is repeated as it grows."""
        said = self._taken(key)
        self._keep(key, text)
        return text[len(said) :] if text.startswith(said) else text

    def _keep(self, key: str, text: str) -> None:
        self._pieces[key] = TextPieces(text)
        self._held += KEY_COST + len(key) + len(text)
        self._forget_oldest()

    def _taken(self, key: str) -> str:
        said = self._pieces.pop(key, None)
        if said is None:
            return ""
        self._held -= KEY_COST + len(key) + len(said)
        return said.joined()

    def _forget_oldest(self) -> None:
        while self._held > HELD_CHARACTERS:
            self._taken(next(iter(self._pieces)))


class RecentKeys(OrderedDict[str, T]):
    """A table of what a stream may name again, such as its calls; forgets the oldest of too many keys."""

    def __init__(self) -> None:
        super().__init__()
        self._held = 0

    def __setitem__(self, key: str, value: T) -> None:
        if key in self:
            self._held -= _weight(key, self[key])
        super().__setitem__(key, value)
        self._held += _weight(key, value)
        while self._held > HELD_KEYS:
            self._held -= _weight(*self.popitem(last=False))


def _weight(key: str, value: object) -> int:
    return KEY_COST + len(key) + (len(value) if isinstance(value, str) else 0)


_STATUSES = {"completed": "completed", "done": "completed", "in_progress": "in_progress"}
_PRIORITIES = ("high", "medium", "low")

_KINDS: dict[ToolKind, str] = {
    "read": "read view read_file read_many_files notebookread show_file list_mcp_resources read_mcp_resource",
    "edit": "edit multiedit write write_file replace create apply_patch patch str_replace_editor notebookedit"
    " file_change edit_file smart_edit",
    "search": "grep glob ls list list_directory search_file_content grep_search rg find codesearch",
    "execute": "bash shell run_shell_command command_execution powershell exec exec_command write_bash"
    " bashoutput read_bash stop_bash killshell local_shell",
    "fetch": "webfetch web_fetch websearch web_search google_web_search",
    "think": "task agent todowrite todo_write write_todos update_plan think report_intent todoread"
    " collab_tool_call",
    "switch_mode": "exitplanmode enterplanmode exit_plan_mode enter_plan_mode plan_enter plan_exit",
}
_KIND_OF: dict[str, ToolKind] = {name: kind for kind, names in _KINDS.items() for name in names.split()}

_PATHS = ("file_path", "filePath", "path", "absolute_path", "notebook_path")
_TITLE_KEYS = ("command", "cmd", *_PATHS, "pattern", "query", "url", "description", "prompt", "dir_path")
_OLD = ("old_string", "oldString", "old_str")
_NEW = ("new_string", "newString", "new_str")
_WHOLE = ("content", "file_text")


def text_item(text: str) -> Content:
    """Return a text as content of a tool call."""
    return Content(TextContent(text))


def plan_of(entries: Iterable[LooseObject]) -> Plan:
    """Convert a to-do list, as the agents' own tools take it, to a plan."""
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


def _status_of(entry: LooseObject) -> str:
    return "completed" if entry.is_true("completed") else _STATUSES.get(entry.text("status"), "pending")


def tool_kind(name: str) -> ToolKind:
    """Return ACP's kind of a tool, as far as its name tells."""
    return _KIND_OF.get(name.lower(), "other")


def title_of(name: str, arguments: Any) -> str:
    """Return a title on one line: the tool's name with its most telling argument."""
    told = LooseObject(arguments)
    telling = next((" ".join(text.split()) for key in _TITLE_KEYS if (text := _told(told, key))), "")
    title = f"{name}: {telling}" if name and telling else telling or name or "tool"
    return shortened(title, LONGEST_TITLE)


def paths_in(arguments: Any) -> list[str]:
    """Return the files that a tool call names."""
    path = LooseObject(arguments).text(*_PATHS)
    return [path] if path else []


def diffs_in(name: str, arguments: Any) -> list[Diff]:
    """Return the changes that a call of an editing tool asks for."""
    told = LooseObject(arguments)
    path = told.text(*_PATHS)
    if tool_kind(name) != "edit" or not path:
        return []
    edits = told.objects("edits") or [told]
    return [diff for edit in edits if (diff := _diff(path, edit)) is not None]


def _diff(path: str, edit: LooseObject) -> Diff | None:
    old, new = edit.raw(*_OLD), edit.raw(*_NEW)
    if isinstance(new, str) and isinstance(old, str):
        return Diff(path, new, old)
    whole = edit.raw(*_WHOLE)
    return Diff(path, whole) if isinstance(whole, str) else None


def _told(arguments: LooseObject, key: str) -> str:
    value = arguments.raw(key)
    if isinstance(value, list):
        return " ".join(word for word in value if isinstance(word, str))
    return value if isinstance(value, str) else ""
