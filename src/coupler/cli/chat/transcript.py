"""Turns what is observed of a session into parts, in the order in which they were done.

A `Transcript` does no I/O and knows no terminal. Text is done when its block is whole, a tool call when it
has ended, the plan when its turn is over. Each part is shown once and scrolls away; what is not done is the
`Tail`. Text in both is clean and redacted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from coupler.agent.session_export import describe_compaction, passage_of_block, title_of
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
from coupler.events.events import CANCELLED_META, plain_text_of
from coupler.events.fold import Compactions
from coupler.runtime.terminal_text import clean, one_line
from coupler.schema.v1 import Content as ToolContent
from coupler.schema.v1 import PlanEntry, Terminal, TextContent, ToolCallContent

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from coupler.cli.exec.exec_output import ObservationRedactor
    from coupler.client.terminals import ClientTerminal
    from coupler.redaction.masker import StreamMasker


MOST_IN_TAIL = 8_192
"""Characters of unfinished text that the tail shows, at most: it is drawn several times a second."""

LONGEST_MARKDOWN = 65_536
"""Characters of a message that are rendered as Markdown; a table costs up to 30 µs for each of them."""

SMALL = 8_192
"""Characters up to which the open text is parsed again for each new line."""

GROWTH = 1.25
"""Growth after which a longer text is parsed again, so that the total effort stays small."""

MOST_LIVE = 4_096
"""Bytes of the output of a running call that the tail looks at."""

MOST_AT_ONCE = 262_144
"""Characters of a command of the user's own that are shown at once; the lines of the rest are counted."""

LONGEST_OPEN_LINE = 65_536
"""Characters of a line of a command of the user's own after which it is shown before it has ended."""

LONGEST_CHARACTER = 4
"""Bytes of a character, at most."""

PLAN_TOOLS = frozenset({"writetodos", "todowrite", "updatetodos", "settodolist", "updateplan"})
"""Names of tools that write the plan, in lower case and without what separates words."""

STOPS = {
    "cancelled": "The turn was cancelled.",
    "refusal": "The agent refused to continue.",
    "max_tokens": "The agent reached its limit of tokens.",
    "max_turn_requests": "The agent reached its limit of requests in one turn.",
}


class UserText(Struct, frozen=True):
    """A message of the user, told again by an earlier session."""

    text: str


class AgentMarkdown(Struct, frozen=True):
    """A whole block of the agent's Markdown: a paragraph, a list, a table."""

    text: str


class AgentText(Struct, frozen=True):
    """Whole lines of a message of the agent that is too long to be rendered as Markdown."""

    text: str


class CommandText(Struct, frozen=True):
    """Whole lines that a command of the user's own has written."""

    text: str
    left_out: int = 0
    """Lines after it that were too many at once."""


class ThoughtPart(Struct, frozen=True):
    """A thought of the agent, shown in full by its number."""

    number: int
    text: str


class ToolCallPart(Struct, frozen=True):
    """A tool call as it stands, shown in full by its number."""

    number: int
    call: ToolCall
    ending: str = ""
    """The failure of its command in words, "exit code 3"; empty if there was none or it is not known."""
    live: str = ""
    """The last of what it has put out, while it runs."""

    @property
    def has_failed(self) -> bool:
        """True if the call failed, or its command did."""
        return self.call.status == "failed" or bool(self.ending)


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
    """The tool call of a permission request; a menu shows its options."""

    call: ToolCall
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
    | CommandText
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
    command: str = ""
    """The line that a command of the user's own is writing."""

    def __bool__(self) -> bool:
        return bool(self.answer or self.thought or self.calls or self.plan or self.command)


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
        self.shows_thoughts = True
        """True if thoughts are shown as they come; a number shows each of them in any case."""
        self.terminal_of: Callable[[str], ClientTerminal | None] = lambda name: None
        """Finds a terminal of the session by its id."""
        self._done: list[Part] = []
        self._answer = StreamedMarkdown()
        self._answer_id: str | None = None
        self._thought: list[str] = []
        self._asked: list[str] = []
        self._calls: dict[str, ToolCallPart] = {}
        self._open_calls: dict[str, None] = {}
        self._numbered: list[NumberedPart] = []
        self._command_line = ""
        self._compactions = Compactions()
        self._plan_calls: dict[str, ToolCall] = {}
        self._tells_plans = False
        self._plan: tuple[PlanEntry, ...] = ()
        self._plan_is_new = False
        self._shown_plan: tuple[PlanEntry, ...] = ()
        self._is_in_turn = False

    def successor(self) -> Transcript:
        """A transcript for another session that goes on numbering: earlier parts can still be shown."""
        later = Transcript(self._redactor)
        later._numbered = self._numbered
        later.terminal_of = self.terminal_of
        later.shows_thoughts = self.shows_thoughts
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

    def command_wrote(self, text: str) -> None:
        """Adds what a command of the user's own has written, redacted; a line is done when it has ended."""
        whole, _, self._command_line = (self._command_line + text).rpartition("\n")
        if "\n" in text:
            self._command_lines(f"{whole}\n")
        line = self._command_line
        self._command_line = overwritten(line) + ("\r" if line.endswith("\r") else "")
        if len(self._command_line) > LONGEST_OPEN_LINE:
            self.command_ended()

    def command_ended(self) -> None:
        """Ends the last line of a command of the user's own."""
        if self._command_line:
            self._command_lines(self._command_line)
            self._command_line = ""

    def _command_lines(self, text: str) -> None:
        last = self._done[-1] if self._done and isinstance(self._done[-1], CommandText) else None
        if last is not None and len(last.text) > MOST_AT_ONCE:
            self._done[-1] = CommandText(last.text, last.left_out + text.count("\n"))
            return
        shown = clean(overwritten(text[:MOST_AT_ONCE]))
        if last is not None:
            self._done.pop()
            shown = last.text + shown
        self._done.append(CommandText(shown, text.count("\n", MOST_AT_ONCE)))

    def stream_masker(self) -> StreamMasker:
        """Makes a masker for the output of a command."""
        from coupler.redaction.masker import Masker, StreamMasker

        return StreamMasker(Masker()) if self._redactor is None else self._redactor.stream_masker()

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
        self._show_plan_calls()
        self._done.extend(self._whole(self._calls[call]) for call in self._open_calls)
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
            clean("".join(self._thought)[-MOST_IN_TAIL:]) if self.shows_thoughts else "",
            tuple(self._live(self._calls[call]) for call in self._open_calls),
            self._plan if self._plan_is_new and self._plan != self._shown_plan else (),
            clean(overwritten(self._command_line[-MOST_LIVE:])),
        )

    def numbered(self, number: int | None = None) -> NumberedPart | None:
        """A part by its number, to be shown again; without a number the last tool call."""
        part: NumberedPart | None = None
        if number is None:
            part = next((part for part in reversed(self._numbered) if isinstance(part, ToolCallPart)), None)
        elif 0 < number <= len(self._numbered):
            part = self._numbered[number - 1]
        return self._whole(part) if isinstance(part, ToolCallPart) else part

    def _received(self, event: Event) -> None:
        match event:
            case TextEvent(text, message_id):
                self._close_asked()
                self._close_thought()
                self._show_plan_calls()
                if message_id is not None and self._answer_id not in (None, message_id):
                    self._close_answer()
                self._answer_id = message_id
                self._answer.add(text)
            case Thought(text):
                self._close_asked()
                self._close_answer()
                self._show_plan_calls()
                self._thought.append(text)
            case ToolCall():
                self._close_messages()
                if event.id in self._calls or not self._is_plan_call(event):
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
            case CompactionSummary():
                self._compactions.take(event)

    def _called(self, call: ToolCall) -> None:
        known = self._calls.get(call.id)
        number = len(self._numbered) + 1 if known is None else known.number
        called = ToolCallPart(number, call)
        called = self._calls[call.id] = called if call.is_open else self._whole(called)
        if known is None:
            self._numbered.append(called)
        else:
            self._numbered[number - 1] = called
        if call.is_open:
            self._open_calls[call.id] = None
        elif known is None or call.id in self._open_calls:
            self._open_calls.pop(call.id, None)
            self._done.append(called)

    def _is_plan_call(self, call: ToolCall) -> bool:
        """Holds a call back that writes the plan: the plan is shown in its place, once the agent tells it."""
        if call.status == "failed" or not writes_plan(call):
            return False
        if not call.is_open and not self._tells_plans:
            self._plan_calls[call.id] = call
        return True

    def _show_plan_calls(self) -> None:
        """Shows the calls that were held back for a plan that the agent has not told."""
        calls, self._plan_calls = self._plan_calls, {}
        for call in calls.values():
            self._called(call)

    def _live(self, part: ToolCallPart) -> ToolCallPart:
        """The part of an open call, with the last of what it has put out."""
        for item in reversed(part.call.content):
            terminal = self.terminal_of(item.terminal_id) if isinstance(item, Terminal) else None
            text = plain_text_of(item) if terminal is None else terminal.last(MOST_LIVE)
            if text and text.strip():
                last = text[-MOST_LIVE:]
                # A secret that the beginning has cut off would not be found.
                if len(last.encode("utf-8", "replace")) > MOST_LIVE - LONGEST_CHARACTER:
                    last = last.partition("\n")[2] or last
                return msgspec.structs.replace(part, live=clean(overwritten(self._masked_so_far(last))))
        return part

    def _whole(self, part: ToolCallPart) -> ToolCallPart:
        """The part with what its terminals have written, in place of their ids, and how its command ended."""
        call = part.call
        ending = "" if call.is_open else _ending(call, self._exits(call))
        content = tuple(self._written(item, call.kind) for item in call.content)
        return ToolCallPart(
            part.number, msgspec.structs.replace(call, content=content), ending or part.ending
        )

    def _written(self, item: ToolCallContent, kind: str) -> ToolCallContent:
        text: str | None = None
        if isinstance(item, Terminal):
            terminal = self.terminal_of(item.terminal_id)
            text = None if terminal is None else self.masked(terminal.output().output)
        elif kind == "execute" and "\r" in (plain := plain_text_of(item) or ""):
            text = plain
        return item if text is None else ToolContent(TextContent(overwritten(text)))

    def _exits(self, call: ToolCall) -> list[tuple[object, object]]:
        """The exit codes and signals of the terminals that a call shows."""
        terminals = [
            self.terminal_of(item.terminal_id) for item in call.content if isinstance(item, Terminal)
        ]
        statuses = [terminal.output().exit_status for terminal in terminals if terminal is not None]
        return [(status.exit_code, status.signal) for status in statuses if status]

    def _masked_so_far(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.mask_so_far(text)

    def _planned(self, entries: tuple[PlanEntry, ...]) -> None:
        """Shows a plan when it is made; the tail tells how far it has come."""
        self._tells_plans = True
        self._plan_calls.clear()
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
        compaction = self._compactions.take(event)
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
            if self.shows_thoughts:
                self._done.append(musing)

    def _close_asked(self) -> None:
        if self._asked:
            self._done.append(UserText(clean("".join(self._asked)).strip()))
            self._asked.clear()


def thoughts_sentence(transcript: Transcript) -> str:
    """Says whether thoughts are shown."""
    return f"Thoughts are {'shown' if transcript.shows_thoughts else 'hidden'}."


def writes_plan(call: ToolCall) -> bool:
    """True if the call only writes the plan, as far as its name tells."""
    return "".join(filter(str.isalnum, call.name or call.title)).lower() in PLAN_TOOLS


def overwritten(text: str) -> str:
    """The text without what a terminal would have written over: all of a line before its last return."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _ending(call: ToolCall, exits: list[tuple[object, object]]) -> str:
    """Says how the command of a call failed; empty if it did not, or nothing is known of it."""
    if call.status == "failed" and call.meta == CANCELLED_META:
        return "cancelled"
    meta = call.meta or {}
    for told in (meta.get("terminal_exit"), meta, call.raw_output):
        if isinstance(told, dict):
            exits = [*exits, (told.get("exit_code", told.get("exitCode")), told.get("signal"))]
    for exit_code, signal in exits:
        if isinstance(signal, str) and signal:
            return f"ended by {one_line(signal)}"
        if isinstance(exit_code, int) and not isinstance(exit_code, bool):
            return f"exit code {exit_code}" if exit_code else ""
    return ""


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
