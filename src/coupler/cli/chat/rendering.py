"""Turns what is observed of a session into parts, and renders them with `rich`.

A `Transcript` does no I/O and knows no terminal. Its parts come in the order in which they were done: text
when its block is whole, a tool call when it has ended, the plan when its turn is over. Each is shown once
and scrolls away; text in them is clean. `render_parts` prints what is done; `TailView` draws what is not,
at the bottom while the agent works. They are printed by the console of an `Output`: whatever was overlooked
before, no control character gets out.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Struct
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coupler.agent.session_export import (
    TranscriptPassage,
    describe_compaction,
    input_of,
    passage_of_block,
    passages_of_output,
    title_of,
)
from coupler.client.observation import Observation, PermissionDecided, PromptSent, Received, TurnFinished
from coupler.client.policy import Decision
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Info,
    Mode,
    Notice,
    Plan,
    Thought,
    ToolCall,
    Usage,
)
from coupler.events import Text as TextEvent
from coupler.permission.action import option_label
from coupler.runtime.formatting import count
from coupler.runtime.terminal_text import clean, one_line
from coupler.schema.v1 import PermissionOption, PlanEntry, TextContent

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from coupler.cli.exec.exec_output import ObservationRedactor
    from coupler.cli.output import Console


MOST_IN_TAIL = 8_192
"""Characters of unfinished text that the tail shows, at most: it is drawn several times a second."""

LONGEST_MARKDOWN = 65_536
"""Characters of a message that are rendered as Markdown; a table costs up to 30 µs for each of them."""

SMALL = 8_192
"""Characters up to which the open text is parsed again for each new line."""

GROWTH = 1.25
"""Growth after which a longer text is parsed again, so that the total effort stays small."""

STOPS = {
    "cancelled": "The turn was cancelled.",
    "refusal": "The agent refused to go on.",
    "max_tokens": "The agent reached its limit of tokens.",
    "max_turn_requests": "The agent reached its limit of requests in one turn.",
}

PREVIEW = 5
"""Lines of a tool's output that a collapsed call shows."""

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


class UserText(Struct, frozen=True):
    """A message of the user, told again by an earlier session."""

    text: str


class AgentMarkdown(Struct, frozen=True):
    """A whole block of the agent's Markdown: a paragraph, a list, a table."""

    text: str


class AgentText(Struct, frozen=True):
    """Whole lines of a message of the agent that is too long to be rendered as Markdown."""

    text: str


class ThoughtPart(Struct, frozen=True):
    """A thought of the agent, shown in full by its number."""

    number: int
    text: str


class ToolCallPart(Struct, frozen=True):
    """A tool call as it stands, shown in full by its number."""

    number: int
    call: ToolCall


class PlanPart(Struct, frozen=True):
    """The plan as it stands."""

    entries: tuple[PlanEntry, ...]


class ContentNote(Struct, frozen=True):
    """A note in place of what a terminal cannot show: an image, a sound, a link."""

    note: str


class Remark(Struct, frozen=True):
    """A sentence about the conversation; the severity is one of ACP's notices, or "question"."""

    title: str
    detail: str = ""
    severity: str = "info"


class PermissionPart(Struct, frozen=True):
    """A permission request: the call, and the options that the agent offers."""

    call: ToolCall
    options: tuple[PermissionOption, ...]
    is_whole: bool = False


class ListingItem(Struct, frozen=True):
    """A line of a listing: the word that is typed for it, and what it means."""

    word: str
    meaning: str = ""
    is_current: bool = False


class Listing(Struct, frozen=True):
    """A list to choose from."""

    title: str
    choices: tuple[ListingItem, ...]
    hint: str = ""


MessagePart: TypeAlias = AgentMarkdown | AgentText
NumberedPart: TypeAlias = ThoughtPart | ToolCallPart
Part: TypeAlias = (
    UserText
    | AgentMarkdown
    | AgentText
    | ThoughtPart
    | ToolCallPart
    | PlanPart
    | ContentNote
    | Remark
    | PermissionPart
    | Listing
)


class Tail(Struct, frozen=True):
    """The part of a conversation that is not done: shown at the bottom, and drawn again as it changes."""

    answer: str = ""
    thought: str = ""
    calls: tuple[ToolCallPart, ...] = ()
    plan: tuple[PlanEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.answer or self.thought or self.calls or self.plan)


class Transcript:
    """The conversation of one session, from its opening on; all that is shown of it is redacted here."""

    def __init__(self, redactor: ObservationRedactor | None = None) -> None:
        self._redactor = redactor
        self.title: str | None = None
        self.usage: Usage | None = None
        self.mode: str | None = None
        """The mode that the user knows of; another one is remarked upon."""
        self.is_muted = False
        """True while a session is opened again whose history is on the screen already."""
        self._done: list[Part] = []
        self._answer = StreamedMarkdown()
        self._answer_id: str | None = None
        self._thought: list[str] = []
        self._asked: list[str] = []
        self._calls: dict[str, ToolCallPart] = {}
        self._open_calls: dict[str, None] = {}
        self._numbered: list[NumberedPart] = []
        self._compactions: dict[str, Compaction] = {}
        self._plan: tuple[PlanEntry, ...] = ()
        self._plan_is_new = False
        self._shown_plan: tuple[PlanEntry, ...] = ()
        self._is_in_turn = False

    def successor(self) -> Transcript:
        """A transcript for another session that goes on numbering: earlier parts can still be shown."""
        later = Transcript(self._redactor)
        later._numbered = self._numbered
        return later

    def notice(self, observation: Observation) -> None:
        """Handles an observation."""
        if self._redactor is None:
            self._notice_redacted(observation)
        else:
            self._redactor.pass_on(observation, self._notice_redacted)

    def _notice_redacted(self, observation: Observation) -> None:
        match observation:
            case Received(event=event) if not self.is_muted:
                self._received(event)
            case PromptSent():
                self.settle()
                self._is_in_turn = True
            case PermissionDecided(decision=decision) if not decision.is_allowed:
                self._close_messages()
                self._done.append(_denial_remark(decision))
            case TurnFinished(reply=reply, error=error):
                self._is_in_turn = False
                self.settle()
                if error is None and reply is not None and not reply.is_complete:
                    sentence = STOPS.get(reply.stop_reason, f"The turn ended: {one_line(reply.stop_reason)}.")
                    self._done.append(Remark(sentence, severity="warning"))

    def masked(self, text: str) -> str:
        """Redacts a text that is shown beside the transcript."""
        return text if self._redactor is None else self._redactor.mask(text)

    def remark(self, part: Part) -> None:
        """Adds a part that Coupler itself has to say, or was asked for."""
        if self._redactor is not None:
            part = self._redactor.covered(part)
        self._close_messages()
        self._done.append(part)

    def settle(self) -> None:
        """Ends what is open as it stands: nothing goes on any more."""
        if self._redactor is not None:
            self._redactor.end()
        self._close_messages()
        self._done.extend(self._calls[call] for call in self._open_calls)
        self._open_calls.clear()
        self._close_plan()

    def take(self) -> list[Part]:
        """The parts that are done and were not taken before."""
        self._answered(self._answer.take_whole())
        done, self._done = self._done, []
        return done

    def tail(self) -> Tail:
        """The tail, after `take`."""
        return Tail(
            self._answer.end(MOST_IN_TAIL),
            clean("".join(self._thought)[-MOST_IN_TAIL:]),
            tuple(self._calls[call] for call in self._open_calls),
            self._plan if self._plan_is_new and self._plan != self._shown_plan else (),
        )

    def numbered(self, number: int | None = None) -> NumberedPart | None:
        """A part by its number, to be shown again; without a number the last tool call."""
        if number is None:
            return next((part for part in reversed(self._numbered) if isinstance(part, ToolCallPart)), None)
        return self._numbered[number - 1] if 0 < number <= len(self._numbered) else None

    def _received(self, event: Event) -> None:
        match event:
            case TextEvent(text, message_id):
                self._close_asked()
                self._close_thought()
                if message_id is not None and self._answer_id not in (None, message_id):
                    self._close_answer()
                self._answer_id = message_id
                self._answer.add(text)
            case Thought(text):
                self._close_asked()
                self._close_answer()
                self._thought.append(text)
            case ToolCall():
                self._close_messages()
                self._called(event)
            case Content(block, "user"):
                self._user_said(block)
            case Content(block, "agent"):
                self._close_messages()
                self._done.append(_content_part(block))
            case Plan(entries):
                self._planned(entries)
            case _:
                self._told_of_session(event)

    def _told_of_session(self, event: Event) -> None:
        match event:
            case Usage():
                self.usage = event
            case Info(title) if title is not UNSET:
                self.title = None if title is None else one_line(title)
            case Mode(id) if id != self.mode:
                self.mode = id
                self.remark(Remark(f"The mode is now {one_line(id)}."))
            case Notice(severity, title, description):
                self.remark(Remark(one_line(title), clean(description or ""), severity))
            case Compaction():
                self._compacted(event)
            case CompactionSummary(id, block):
                if id in self._compactions:
                    self._compactions[id] = self._compactions[id].extended(block)

    def _called(self, call: ToolCall) -> None:
        known = self._calls.get(call.id)
        number = len(self._numbered) + 1 if known is None else known.number
        called = self._calls[call.id] = ToolCallPart(number, call)
        if known is None:
            self._numbered.append(called)
        else:
            self._numbered[number - 1] = called
        if call.is_open:
            self._open_calls[call.id] = None
        elif known is None or call.id in self._open_calls:
            self._open_calls.pop(call.id, None)
            self._done.append(called)

    def _planned(self, entries: tuple[PlanEntry, ...]) -> None:
        """Shows a plan when it is made; the tail tells how far it has come."""
        if not self._plan_is_new:
            self._close_messages()
            self._done.append(PlanPart(entries))
            self._shown_plan = entries
        self._plan, self._plan_is_new = entries, bool(entries)

    def _close_plan(self) -> None:
        """Ends a turn's plan: a remark if all was done, else the plan as it stands, if that is news."""
        if not self._plan_is_new:
            return
        self._plan_is_new = False
        if all(entry.status == "completed" for entry in self._plan):
            self._done.append(Remark(f"All {len(self._plan)} steps of the plan are done."))
        elif self._plan != self._shown_plan:
            self._done.append(PlanPart(self._plan))

    def _compacted(self, event: Compaction) -> None:
        known = self._compactions.get(event.id)
        compaction = self._compactions[event.id] = event if known is None else known.updated(event)
        if compaction.status == "in_progress":
            self.remark(Remark("The earlier conversation is being summarized."))
        else:
            self.remark(Remark(describe_compaction(compaction)))

    def _user_said(self, block: object) -> None:
        """Adds what the user said in an earlier session; in a turn it is on the screen already."""
        if self._is_in_turn:
            return
        self._close_answer()
        self._close_thought()
        if not self._asked:
            self.settle()
        self._asked.append(
            block.text if isinstance(block, TextContent) else f" [{passage_of_block(block).note}] "
        )

    def _close_messages(self) -> None:
        self._close_asked()
        self._close_thought()
        self._close_answer()

    def _close_answer(self) -> None:
        self._answered(self._answer.take_all())
        self._answer_id = None

    def _answered(self, parts: list[MessagePart]) -> None:
        self._done.extend(part for part in parts if isinstance(part, AgentText) or part.text.strip())

    def _close_thought(self) -> None:
        text = clean("".join(self._thought)).strip()
        self._thought.clear()
        if text:
            musing = ThoughtPart(len(self._numbered) + 1, text)
            self._numbered.append(musing)
            self._done.append(musing)

    def _close_asked(self) -> None:
        if self._asked:
            self._done.append(UserText(clean("".join(self._asked)).strip()))
            self._asked.clear()


def _content_part(block: object) -> Part:
    passage = passage_of_block(block)
    if not passage.text:
        return ContentNote(passage.note)
    is_long = len(passage.text) > LONGEST_MARKDOWN
    return AgentText(passage.text) if is_long else AgentMarkdown(passage.text)


def _denial_remark(decision: Decision) -> Remark:
    return Remark(f"Not allowed: {title_of(decision.tool_call)}", clean(decision.remedy or ""), "warning")


class StreamedMarkdown:
    """The text of one message while it is written: blocks that cannot change any more are given out.

    A block is whole when another one has begun after it. Only whole lines are looked at, because the rest of
    a line may still make it a part of what stands before. What is beyond `LONGEST_MARKDOWN` is given out as
    plain lines.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._due = 0
        self._has_line = False
        self._room = LONGEST_MARKDOWN
        """Characters that may still be given out as Markdown."""

    def add(self, piece: str) -> None:
        """Adds a piece of the message."""
        self._pieces.append(piece)
        self._length += len(piece)
        self._has_line = self._has_line or "\n" in piece

    def end(self, most: int) -> str:
        """The text that is still open, clean; of long text the last so many characters."""
        return clean(self._joined()[-most:])

    def take_whole(self) -> list[MessagePart]:
        """The parts that are whole by now, clean; they are not given again."""
        if not self._has_line or self._length < self._due:
            return []
        self._has_line = False
        text = self._joined()
        # A sequence for the terminal ends with its line at the latest, so whole lines can be cleaned.
        end = text.rfind("\n") + 1
        parts = self._split(text[:end])
        open_block = parts.pop().text if self._room and parts else ""
        self._keep(open_block + text[end:])
        self._due = 0 if self._length < SMALL else int(self._length * GROWTH)
        self._room = max(self._room - sum(len(part.text) for part in parts), 0)
        return parts

    def take_all(self) -> list[MessagePart]:
        """All parts that are left once the message is over, clean."""
        parts = self._split(self._joined())
        self._keep("")
        self._due = 0
        self._room = LONGEST_MARKDOWN
        return parts

    def _split(self, text: str) -> list[MessagePart]:
        """Splits a text into its blocks, and lines for which there is no room as Markdown."""
        within = text
        if len(text) > self._room:
            within = text[: text.rfind("\n", 0, self._room) + 1]
            self._room = 0
        parts: list[MessagePart] = [AgentMarkdown(block) for block in _blocks(clean(within))]
        rest = clean(text[len(within) :])
        return [*parts, AgentText(rest)] if rest else parts

    def _joined(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def _keep(self, text: str) -> None:
        self._pieces = [text] if text else []
        self._length = len(text)


def _blocks(text: str) -> list[str]:
    """Splits a text into its blocks, which together are the text."""
    starts = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map]
    if len(starts) < 2:
        return [text] if text else []
    lines = text.splitlines(keepends=True)
    bounds = [0, *starts[1:], len(lines)]
    return ["".join(lines[begin:end]) for begin, end in pairwise(bounds)]


@cache
def _parser() -> MarkdownIt:
    """A parser for blocks as `rich` sees them; what stands inside of them does not matter."""
    from markdown_it import MarkdownIt

    return MarkdownIt().enable("table").disable(["inline", "text_join", "linkify", "replacements"], True)


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
    kinds = (AgentText, ToolCallPart, Remark)
    return isinstance(before, kinds) and type(before) is type(after)


def render_part(part: Part, cwd: str = "") -> RenderableType:
    """Renders a part as it is shown when it is done: what is long in it is collapsed."""
    match part:
        case UserText(text):
            return Text.assemble(("> ", "bold cyan"), (text, "bold"))
        case AgentMarkdown(text):
            return render_markdown(text)
        case AgentText(text):
            return _cut(_short_lines(text), MOST_LINES, "too many at once to show")
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
    for passage in _output(part.call, cwd):
        most = DIFF_PREVIEW if passage.language == "diff" else PREVIEW
        lines.append(Padding(_passage(passage, most, f"/show {part.number}"), INDENT))
    return Group(*lines)


def render_expanded(part: NumberedPart, cwd: str = "") -> RenderableType:
    """Renders a thought or a tool call in full."""
    if isinstance(part, ThoughtPart):
        return _thought(part, MOST_LINES)
    return Group(call_line(part, cwd), Padding(call_details(part.call, MOST_LINES, cwd), INDENT))


def call_line(part: ToolCallPart, cwd: str = "") -> Text:
    """Renders a tool call in a line: its status, title, kind and places."""
    call = part.call
    mark, style = _MARKS.get(call.status, ("·", ""))
    line = Text.assemble((mark, style), " ", (title_of(call), "bold"), (f"  {one_line(call.kind)}", "dim"))
    for place in _places(call, cwd):
        line.append(f" {place}", "cyan")
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
    lines: list[RenderableType] = [line, Padding(call_details(call, most, cwd), INDENT)]
    for number, option in enumerate(wanted.options, 1):
        label = one_line(option_label(option.kind, option.name))
        lines.append(Text.assemble("  ", (f"{number}", "bold cyan"), f" {label}"))
    return Group(*lines)


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


def _passage(passage: TranscriptPassage, most: int, command: str) -> RenderableType:
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


def _short_lines(text: str) -> list[str]:
    """Splits a text into lines, and those that are too long for rich into several."""
    return [
        line[start : start + LONGEST_LINE]
        for line in text.splitlines()
        for start in range(0, len(line) or 1, LONGEST_LINE)
    ]


def _output(call: ToolCall, cwd: str) -> Iterator[TranscriptPassage]:
    """The passages of a call; the file of a diff is named unless the call's own line does."""
    named = {_relative_path(location.path, cwd) for location in call.locations[:MOST_PLACES]}
    for passage in passages_of_output(call):
        if passage.language != "diff":
            yield passage
        else:
            path = _relative_path(passage.note, cwd)
            yield passage._replace(note="" if path in named else path)


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

    def __init__(self, tail: Callable[[], Tail], typed: Callable[[], str], cwd: str, started: float) -> None:
        self._tail = tail
        self._typed = typed
        self._cwd = cwd
        self._started = started

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = time.monotonic() - self._started
        foot = render_footer(elapsed, self._typed())
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
    return Group(*lines)


def render_footer(elapsed: float, typed: str) -> list[RenderableType]:
    """Renders a spinner, and what is being typed meanwhile."""
    frame = FRAMES[int(elapsed * FRAMES_PER_SECOND) % len(FRAMES)]
    lines = [Text(f"{frame} {int(elapsed)} s · Ctrl-C cancels", "dim", no_wrap=True, overflow="ellipsis")]
    if typed:
        last = clean(typed).splitlines()[-1:] or [""]
        lines.append(Text(f"> {last[0]}", no_wrap=True, overflow="ellipsis"))
    return [*lines]


def _calls(calls: tuple[ToolCallPart, ...], cwd: str) -> Iterable[RenderableType]:
    yield from (call_line(called, cwd) for called in calls[-MOST_CALLS:])
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
