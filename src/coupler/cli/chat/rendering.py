"""Renders the parts of a transcript with `rich`.

`render_parts` prints what is done; `TailView` draws what is not, at the bottom while the agent works. They
are printed by the console of an `Output`: whatever was overlooked before, no control character gets out.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import msgspec
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coupler.agent.session_export import (
    TranscriptPassage,
    input_of,
    passages_of_output,
    title_of,
)
from coupler.cli.chat.transcript import (
    AgentMarkdown,
    AgentText,
    CommandText,
    ContentNote,
    Listing,
    NumberedPart,
    Part,
    PermissionPart,
    PlanPart,
    Remark,
    Tail,
    ThoughtPart,
    ToolCallPart,
    UserText,
)
from coupler.events import ToolCall
from coupler.runtime.formatting import count
from coupler.runtime.terminal_text import clean, one_line
from coupler.schema.v1 import PlanEntry

if TYPE_CHECKING:
    from coupler.cli.output import Console


PREVIEW = 5
"""Lines of a tool's output that a collapsed call shows: the last of a command's, else the first."""

LIVE_LINES = 5
"""Lines that are shown of what a running call puts out, if it runs alone."""

LIVE_LINES_BESIDE = 2
"""The same, if others run beside it."""

DIFF_PREVIEW = 16
"""Lines of a diff that a collapsed call shows."""

THOUGHT_PREVIEW = 2

MOST_LINES = 2_000
"""Lines of one output that are shown, at most."""

LONGEST_LINE = 1_024
"""Characters of a line of a very long message; rich takes quadratic time to wrap one."""

MOST_PLACES = 3
"""Places of a call that are named behind it."""

INDENT = (0, 0, 0, 2)

THOUGHT_LINES = 3
MOST_CALLS = 6
MOST_ENTRIES = 6
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10
"""Frames of the spinner a second."""

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
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def render_parts(parts: Sequence[Part], after: Part | None, cwd: str = "") -> RenderableType:
    """Renders parts one below the other, with empty lines between them where it helps reading."""
    lines: list[RenderableType] = []
    for part in parts:
        if after is not None and not _is_close(after, part):
            lines.append(Text())
        lines.append(render_part(part, cwd))
        after = part
    return Group(*lines)


def _is_close(before: Part, after: Part) -> bool:
    """True if two parts stand close together: short calls and remarks in a row."""
    kinds = (AgentText, CommandText, ToolCallPart, Remark)
    return isinstance(before, kinds) and type(before) is type(after)


def render_part(part: Part, cwd: str = "") -> RenderableType:
    """Renders a part as it is shown when it is done: what is long in it is collapsed."""
    match part:
        case UserText(text):
            return Text.assemble(("> ", "bold cyan"), (text, "bold"))
        case AgentMarkdown(text):
            return render_markdown(text)
        case AgentText(text) | CommandText(text):
            left_out = part.left_out if isinstance(part, CommandText) else 0
            return _cut(_short_lines(text), MOST_LINES, "too many at once to show", left_out=left_out)
        case ThoughtPart() | ToolCallPart():
            return render_collapsed(part, cwd)
        case PlanPart(entries):
            return render_plan(entries)
        case ContentNote(note):
            return Text(f"[{note}]", "magenta")
        case Remark():
            return _remark(part)
        case PermissionPart():
            return _permission_question(part, cwd)
        case Listing():
            return _listing(part)


def render_markdown(text: str) -> RenderableType:
    """Renders prose of the agent. Links show where they lead, so that none can lie about it."""
    return Trimmed(_Prose(text.strip("\n"), hyperlinks=False, code_theme="ansi_dark"))


def render_collapsed(part: NumberedPart, cwd: str = "") -> RenderableType:
    """Renders a thought or a tool call in a few lines, with the command that shows the rest."""
    if isinstance(part, ThoughtPart):
        return _thought(part, THOUGHT_PREVIEW)
    lines: list[RenderableType] = [call_line(part, cwd)]
    for passage in _output(part.call, cwd, part.ending):
        is_diff = passage.language == "diff"
        shows_end = part.call.kind == "execute" and not is_diff
        shown = _passage(passage, DIFF_PREVIEW if is_diff else PREVIEW, f"/show {part.number}", shows_end)
        lines.append(Padding(shown, INDENT))
    return Group(*lines)


def render_expanded(part: NumberedPart, cwd: str = "") -> RenderableType:
    """Renders a thought or a tool call in full."""
    if isinstance(part, ThoughtPart):
        return _thought(part, MOST_LINES)
    return Group(call_line(part, cwd), Padding(call_details(part.call, MOST_LINES, cwd), INDENT))


def call_line(part: ToolCallPart, cwd: str = "") -> Text:
    """Renders a tool call in a line: its status, title, kind and places."""
    call = part.call
    mark, style = _MARKS["failed"] if part.has_failed else _MARKS.get(call.status, ("·", ""))
    line = Text.assemble((mark, style), " ", (title_of(call), "bold"), (f"  {one_line(call.kind)}", "dim"))
    for place in _places(call, cwd):
        line.append(f" {place}", "cyan")
    if part.ending:
        line.append(f"  {part.ending}", "red")
    return line.append(f"  #{part.number}", "dim")


def call_details(call: ToolCall, most: int, cwd: str = "") -> RenderableType:
    """Renders a call's input and content; the command whole, for somebody decides about it."""
    lines: list[RenderableType] = []
    command, rest = command_in(call.raw_input)
    if command:
        lines.append(Text(f"$ {command}", "bold"))
    if rest not in (None, {}, []):
        lines.append(Text(input_of(msgspec.structs.replace(call, raw_input=rest)), "dim"))
    lines.extend(_passage(passage, most, "") for passage in _output(call, cwd))
    return Group(*lines)


def command_in(given: Any) -> tuple[str, Any]:
    """The command that a tool runs, as far as its input tells, and the rest of the input."""
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


def render_plan(entries: Iterable[PlanEntry]) -> RenderableType:
    """Renders a plan, one entry a line."""
    lines = [Text("Plan", "bold")]
    for entry in entries:
        mark, style = _PLAN_MARKS.get(entry.status, ("·", ""))
        lines.append(Text.assemble("  ", (f"{mark} {one_line(entry.content)}", style)))
    return Group(*lines)


def _remark(remark: Remark) -> RenderableType:
    mark, style = _SEVERITIES.get(remark.severity, ("·", "dim"))
    line = Text(f"{mark} {remark.title}", style)
    return Group(line, Padding(Text(remark.detail, "dim"), INDENT)) if remark.detail else line


def _permission_question(wanted: PermissionPart, cwd: str) -> RenderableType:
    """Renders a permission request: the command and the change come before the agent's own words."""
    call = wanted.call
    line = Text.assemble(("? ", "bold yellow"), "The agent wants to: ", (title_of(call), "bold"))
    line.append(f"  {one_line(call.kind)}", "dim")
    for place in _places(call, cwd):
        line.append(f" {place}", "cyan")
    most = MOST_LINES if wanted.is_whole else DIFF_PREVIEW
    return Group(line, Padding(call_details(call, most, cwd), INDENT))


def _listing(listing: Listing) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column()
    for choice in listing.choices:
        mark = "* " if choice.is_current else "  "
        table.add_row(Text.assemble(mark, (choice.word, "cyan")), Text(choice.meaning))
    hint = [Text(listing.hint, "dim")] if listing.hint else []
    return Group(Text(listing.title, "bold"), *([table] if listing.choices else []), *hint)


def _thought(musing: ThoughtPart, most: int) -> RenderableType:
    lines = musing.text.splitlines()
    return _cut([f"∴ {lines[0]}", *lines[1:]], most, f"/show {musing.number}", "dim italic")


def _passage(passage: TranscriptPassage, most: int, command: str, shows_end: bool = False) -> RenderableType:
    lines: list[RenderableType] = []
    if passage.note:
        lines.append(Text(passage.note, "magenta"))
    shown = passage.code or passage.text
    if shown:
        style = None if passage.language == "diff" else "dim"
        shorten = _last_of if shows_end else _cut
        lines.append(shorten(shown.rstrip("\n").splitlines(), most, command, style))
    return Group(*lines)


def _cut(
    lines: Sequence[str], most: int, command: str = "", style: str | None = "", left_out: int = 0
) -> Text:
    """The first lines, and how to see the others; without a style they are a diff's."""
    text = Text()
    for number, line in enumerate(lines[:most]):
        text.append("\n" if number else "")
        text.append(line, _DIFF_STYLES.get(line[:1], "dim") if style is None else style)
    if len(lines) > most or left_out:
        more = count(max(len(lines) - most, 0) + left_out, "more line")
        text.append(f"\n… {more}{f': {command}' if command else ''}", "dim")
    return text


def _last_of(lines: Sequence[str], most: int, command: str, style: str | None = "dim") -> Text:
    """The last lines, and above them how to see the others."""
    text = Text()
    if len(lines) > most:
        text.append(f"… {count(len(lines) - most, 'more line')}: {command}\n", "dim")
    return text.append("\n".join(lines[-most:]), style or "")


def _short_lines(text: str) -> list[str]:
    """Splits a text into lines, and those that are too long for rich into several."""
    return [
        line[start : start + LONGEST_LINE]
        for line in text.splitlines()
        for start in range(0, len(line) or 1, LONGEST_LINE)
    ]


def _output(call: ToolCall, cwd: str, ending: str = "") -> Iterator[TranscriptPassage]:
    """The passages of a call; what the call's own line says, the file of a diff or its end, is left out."""
    named = {_relative_path(location.path, cwd) for location in call.locations[:MOST_PLACES]}
    passages = passages_of_output(call)
    if call.status == "failed" and not passages:
        passages = [TranscriptPassage(code=clean(reason)) for reason in _reasons(call.raw_output)]
    for passage in passages:
        if ending and passage.code.strip() == ending:
            continue
        if passage.language != "diff":
            yield passage
        else:
            path = _relative_path(passage.note, cwd)
            yield passage._replace(note="" if path in named else path)


def _reasons(raw_output: object) -> list[str]:
    """The words for a failure in what a tool returned, for agents that tell them nowhere else."""
    if isinstance(raw_output, dict):
        raw_output = next((raw_output[key] for key in ("error", "message") if raw_output.get(key)), None)
    return [raw_output] if isinstance(raw_output, str) and raw_output.strip() else []


def _places(call: ToolCall, cwd: str) -> list[str]:
    places: dict[str, str] = {}
    for location in call.locations:
        path = _relative_path(location.path, cwd)
        places.setdefault(path, f"{path}:{location.line}" if location.line else path)
    return [*places.values()][:MOST_PLACES]


def _relative_path(path: str, cwd: str) -> str:
    """A path as seen from the directory of the session."""
    pure = PurePath(one_line(path))
    return str(pure.relative_to(cwd)) if cwd and pure.is_relative_to(cwd) else str(pure)


class TailView:
    """Draws the tail as it is at that moment, never higher than the screen."""

    def __init__(
        self,
        tail: Callable[[], Tail],
        typed: Callable[[], str],
        cwd: str,
        started: float,
        status: Callable[[int], str] = lambda width: "",
    ) -> None:
        """`status` gives what is known of the session, in so many columns."""
        self._status = status
        self._tail = tail
        self._typed = typed
        self._cwd = cwd
        self._started = started

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = time.monotonic() - self._started
        foot = render_footer(elapsed, self._typed(), self._status, options.max_width)
        room = max(console.height - 3 - len(foot), 3)
        yield TrimmedLines(Group(Text(), LastLines(render_tail(self._tail(), self._cwd), room), *foot))


def render_tail(tail: Tail, cwd: str = "") -> RenderableType:
    """Renders what is not done yet."""
    lines: list[RenderableType] = []
    if tail.thought.strip():
        thought = Text(f"∴ {tail.thought.strip()}", "dim italic")
        lines.append(LastLines(thought, THOUGHT_LINES))
    if tail.answer.strip():
        lines.append(render_markdown(tail.answer))
    lines.extend(_calls(tail.calls, cwd))
    if tail.plan:
        lines.append(render_plan(_window(tail.plan)))
    if tail.command:
        lines.append(Text(tail.command, no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def render_footer(
    elapsed: float, typed: str, status: Callable[[int], str], width: int
) -> list[RenderableType]:
    """Renders a spinner beside what is known of the session, and what is being typed meanwhile."""
    frame = FRAMES[int(elapsed * FRAMES_PER_SECOND) % len(FRAMES)]
    spinner = f"{frame} {int(elapsed)} s"
    hinted = f"{spinner} · Ctrl-C cancels"
    if known := status(width - len(f"{hinted} · ")):
        hinted = f"{hinted} · {known}"
    elif known := status(width - len(f"{spinner} · ")):
        hinted = f"{spinner} · {known}"
    lines = [Text(hinted, "dim", no_wrap=True, overflow="ellipsis")]
    if typed:
        last = clean(typed).splitlines()[-1:] or [""]
        lines.append(Text(f"> {last[0]}", no_wrap=True, overflow="ellipsis"))
    return [*lines]


def _calls(calls: tuple[ToolCallPart, ...], cwd: str) -> Iterable[RenderableType]:
    most = LIVE_LINES if len(calls) == 1 else LIVE_LINES_BESIDE
    for called in calls[-MOST_CALLS:]:
        yield call_line(called, cwd)
        for line in [line for line in called.live.splitlines() if line.strip()][-most:]:
            yield Padding(Text(line.rstrip(), "dim", no_wrap=True, overflow="ellipsis"), INDENT)
    if len(calls) > MOST_CALLS:
        yield Text(f"… and {len(calls) - MOST_CALLS} more", "dim")


def _window(entries: tuple[PlanEntry, ...]) -> tuple[PlanEntry, ...]:
    """The entries around the first that is not done."""
    done = sum(entry.status == "completed" for entry in entries)
    begin = max(min(done - 1, len(entries) - MOST_ENTRIES), 0)
    return entries[begin : begin + MOST_ENTRIES]


class TrimmedLines:
    """Renders something without spaces behind its lines.

    They would be copied along, and wrapped when a window shrinks.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = (segment for segment in console.render(self._renderable, options) if not segment.control)
        for line in Segment.split_lines(shown):
            yield from _without_space_behind(line)
            yield Segment.line()


def _without_space_behind(line: Sequence[Segment]) -> list[Segment]:
    kept = [*line]
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept


class Trimmed:
    """Renders something without empty lines above and below it; parts are set apart by `render_parts`."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._renderable, options.update(height=None), pad=False)
        filled = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            yield from line
            yield Segment.line()


class LastLines:
    """Renders the last lines of something that may be longer than the screen."""

    def __init__(self, renderable: RenderableType, lines: int) -> None:
        self._renderable = renderable
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._renderable, options.update(height=None), pad=False)
        for line in lines[-self._lines :]:
            yield from line
            yield Segment.line()


class _LeftHeading(Heading):
    """A heading that is aligned to the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Prose(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
    }
