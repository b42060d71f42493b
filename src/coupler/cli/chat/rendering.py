"""Parts of a conversation as something that `rich` prints, wide or narrow, with colours or without.

What is printed goes through `Harmless`: whatever was overlooked before, no control character gets out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, ClassVar, TypeGuard

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coupler.cli.chat.parts import (
    Answer,
    Asked,
    Called,
    Listing,
    Musing,
    Numbered,
    Part,
    Planned,
    Remark,
    Shown,
    Wanted,
)
from coupler.cli.sessions.passages import Passage, input_of, of_output, title_of
from coupler.cli.sessions.wording import clean, count, one_line
from coupler.events import ToolCall
from coupler.schema.v1 import PermissionOption, PlanEntry

PREVIEW = 5
"""Lines of a tool's output that are shown before it is asked for."""

DIFF_PREVIEW = 16
"""The same, of a diff."""

THOUGHT_PREVIEW = 2

MOST_LINES = 2_000
"""Lines of one output that are shown at all."""

MOST_PLACES = 3
"""Places of a call that are named behind it."""

INDENT = (0, 0, 0, 2)

_MARKS = {
    "pending": ("○", "yellow"),
    "in_progress": ("◐", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
}
_PLAN_MARKS = {"pending": ("○", ""), "in_progress": ("◐", "yellow"), "completed": ("✓", "green dim")}
_SEVERITIES = {
    "info": ("·", "dim"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
    "question": ("?", "bold yellow"),
}
_KINDS = {
    "allow_once": "allow once",
    "allow_always": "allow always",
    "reject_once": "reject once",
    "reject_always": "reject always",
}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Harmless:
    """Something to print, without anything in its text that a terminal would obey.

    Lines end with their text: spaces behind it would be copied along, and wrapped when a window shrinks.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = (segment for segment in console.render(self._renderable, options) if not segment.control)
        clean_ones = (Segment(clean(segment.text), segment.style) for segment in shown)
        for line in Segment.split_lines(clean_ones):
            yield from _without_space_behind(line)
            yield Segment.line()


class Trimmed:
    """Something without empty lines above and below it; each part of a conversation has its own air."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._renderable, options.update(height=None), pad=False)
        filled = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            yield from line
            yield Segment.line()


class _LeftHeading(Heading):
    """Headings stand where the text stands."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Prose(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
    }


class Bottom:
    """The last lines of something that may be longer than the screen."""

    def __init__(self, renderable: RenderableType, lines: int) -> None:
        self._renderable = renderable
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._renderable, options.update(height=None), pad=False)
        for line in lines[-self._lines :]:
            yield from line
            yield Segment.line()


def _without_space_behind(line: Sequence[Segment]) -> list[Segment]:
    kept = [*line]
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept


def rendered(part: Part, cwd: str = "") -> RenderableType:
    """A part as it is shown when it is done: what is long in it is collapsed."""
    match part:
        case Asked(text):
            return Text.assemble(("> ", "bold cyan"), (text, "bold"))
        case Answer(text):
            return markdown(text)
        case Musing() | Called():
            return collapsed(part, cwd)
        case Planned(entries):
            return plan(entries)
        case Shown(note):
            return Text(f"[{note}]", "magenta")
        case Remark():
            return _remark(part)
        case Wanted():
            return _wanted(part, cwd)
        case Listing():
            return _listing(part)


def together(parts: Sequence[Part], after: Part | None, cwd: str = "") -> RenderableType:
    """Parts one below the other, with air between them where it helps reading."""
    lines: list[RenderableType] = []
    for part in parts:
        if after is not None and not _is_close(after, part):
            lines.append(Text())
        lines.append(rendered(part, cwd))
        after = part
    return Group(*lines)


def markdown(text: str) -> RenderableType:
    """Prose of the agent. Links show where they lead, so that none can lie about it."""
    return Trimmed(_Prose(text.strip("\n"), hyperlinks=False, code_theme="ansi_dark"))


def collapsed(part: Numbered, cwd: str = "") -> RenderableType:
    """A thought or a tool call in a few lines, with the command that shows the rest."""
    if isinstance(part, Musing):
        return _thought(part, THOUGHT_PREVIEW)
    lines: list[RenderableType] = [call_line(part, cwd)]
    for passage in _output(part.call, cwd):
        most = DIFF_PREVIEW if passage.language == "diff" else PREVIEW
        lines.append(Padding(_passage(passage, most, f"/show {part.number}"), INDENT))
    return Group(*lines)


def expanded(part: Numbered, cwd: str = "") -> RenderableType:
    """The same with all there is to see."""
    if isinstance(part, Musing):
        return _thought(part, MOST_LINES)
    return Group(call_line(part, cwd), Padding(call_details(part.call, MOST_LINES, cwd), INDENT))


def call_line(part: Called, cwd: str = "") -> Text:
    """A tool call in a line: how it stands, what it is, and where."""
    call = part.call
    mark, style = _MARKS.get(call.status, ("·", ""))
    line = Text.assemble((mark, style), " ", (title_of(call), "bold"), (f"  {one_line(call.kind)}", "dim"))
    for place in _places(call, cwd):
        line.append(f" {place}", "cyan")
    return line.append(f"  #{part.number}", "dim")


def call_details(call: ToolCall, most: int, cwd: str = "") -> RenderableType:
    """What a tool was given and what it shows; the command whole, for somebody decides about it."""
    lines: list[RenderableType] = []
    command, rest = command_in(call.raw_input)
    if command:
        lines.append(Text(f"$ {command}", "bold"))
    if rest not in (None, {}, []):
        lines.append(Text(input_of(msgspec.structs.replace(call, raw_input=rest)), "dim"))
    lines.extend(_passage(passage, most, "") for passage in _output(call, cwd))
    return Group(*lines)


def command_in(given: Any) -> tuple[str, Any]:
    """The command that a tool runs, as far as its input tells, and what else it was given."""
    if not isinstance(given, dict):
        return "", given
    name = next((name for name in ("command", "cmd") if given.get(name)), "")
    command, arguments = given.get(name), given.get("args", [])
    words = [command] if isinstance(command, str) else command
    if not _are_words(words) or not _are_words(arguments):
        return "", given
    # A command in one piece is for a shell as it is; in words, each is quoted as it would have to be typed.
    spoken = [command] if isinstance(command, str) else [shlex.join(words)]
    spoken.extend([shlex.join(arguments)] if arguments else [])
    return clean(" ".join(spoken)), {key: given[key] for key in given if key not in (name, "args")}


def _are_words(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


def plan(entries: Iterable[PlanEntry]) -> RenderableType:
    """A plan, one entry a line."""
    lines = [Text("Plan", "bold")]
    for entry in entries:
        mark, style = _PLAN_MARKS.get(entry.status, ("·", ""))
        lines.append(Text.assemble("  ", (f"{mark} {one_line(entry.content)}", style)))
    return Group(*lines)


def _is_close(before: Part, after: Part) -> bool:
    """Whether two parts stand close together: short calls and remarks in a row."""
    kinds = (Called, Remark)
    return isinstance(before, kinds) and type(before) is type(after)


def _remark(remark: Remark) -> RenderableType:
    mark, style = _SEVERITIES.get(remark.severity, ("·", "dim"))
    line = Text(f"{mark} {remark.title}", style)
    return Group(line, Padding(Text(remark.detail, "dim"), INDENT)) if remark.detail else line


def _wanted(wanted: Wanted, cwd: str) -> RenderableType:
    """What somebody decides about: the command and the change come before the agent's own words for them."""
    call = wanted.call
    line = Text.assemble(("? ", "bold yellow"), "The agent wants to: ", (title_of(call), "bold"))
    line.append(f"  {one_line(call.kind)}", "dim")
    for place in _places(call, cwd):
        line.append(f" {place}", "cyan")
    most = MOST_LINES if wanted.is_whole else DIFF_PREVIEW
    lines: list[RenderableType] = [line, Padding(call_details(call, most, cwd), INDENT)]
    for number, option in enumerate(wanted.options, 1):
        lines.append(Text.assemble("  ", (f"{number}", "bold cyan"), f" {_spoken_option(option)}"))
    return Group(*lines)


def _spoken_option(option: PermissionOption) -> str:
    """An option in the agent's words, and what it does in ours."""
    name, kind = one_line(option.name), _KINDS.get(option.kind, one_line(option.kind))
    return name if name.lower() == kind else f"{name} ({kind})"


def _listing(listing: Listing) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column()
    for choice in listing.choices:
        mark = "* " if choice.is_current else "  "
        table.add_row(Text.assemble(mark, (choice.word, "cyan")), Text(choice.meaning))
    hint = [Text(listing.hint, "dim")] if listing.hint else []
    return Group(Text(listing.title, "bold"), *([table] if listing.choices else []), *hint)


def _thought(musing: Musing, most: int) -> RenderableType:
    lines = musing.text.splitlines()
    return _cut([f"∴ {lines[0]}", *lines[1:]], most, f"/show {musing.number}", "dim italic")


def _passage(passage: Passage, most: int, command: str) -> RenderableType:
    lines: list[RenderableType] = []
    if passage.note:
        lines.append(Text(passage.note, "magenta"))
    shown = passage.code or passage.text
    if shown:
        style = None if passage.language == "diff" else "dim"
        lines.append(_cut(shown.rstrip("\n").splitlines(), most, command, style))
    return Group(*lines)


def _cut(lines: Sequence[str], most: int, command: str = "", style: str | None = "") -> Text:
    """The first lines, and how to see the others; without a style they are a diff's."""
    text = Text()
    for number, line in enumerate(lines[:most]):
        text.append("\n" if number else "")
        text.append(line, _DIFF_STYLES.get(line[:1], "dim") if style is None else style)
    if len(lines) > most:
        more = count(len(lines) - most, "more line")
        text.append(f"\n… {more}{f': {command}' if command else ''}", "dim")
    return text


def _output(call: ToolCall, cwd: str) -> Iterator[Passage]:
    """What a call shows; the file of a diff is named unless the call's own line does."""
    named = {_near(location.path, cwd) for location in call.locations[:MOST_PLACES]}
    for passage in of_output(call):
        if passage.language != "diff":
            yield passage
        else:
            path = _near(passage.note, cwd)
            yield passage._replace(note="" if path in named else path)


def _places(call: ToolCall, cwd: str) -> list[str]:
    places: dict[str, str] = {}
    for location in call.locations:
        path = _near(location.path, cwd)
        places.setdefault(path, f"{path}:{location.line}" if location.line else path)
    return [*places.values()][:MOST_PLACES]


def _near(path: str, cwd: str) -> str:
    """A path as seen from the directory of the session."""
    pure = PurePath(one_line(path))
    return str(pure.relative_to(cwd)) if cwd and pure.is_relative_to(cwd) else str(pure)
