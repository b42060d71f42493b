"""A session as a Markdown document that one keeps.

The agent's text is Markdown already and stands as it is; what it left open is closed, so that it cannot
swallow what comes after it. Everything else is quoted, fenced or escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from coupler.agent.history import Outcome, Told, TranscriptTurn, Unreadable
from coupler.cli.sessions import passages
from coupler.cli.sessions.passages import Passage
from coupler.cli.sessions.wording import clean, one_line, universal_time
from coupler.events import Compaction, Content, Notice, Plan, Text, Thought, ToolCall

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")


def to_markdown(record: SessionRecord, turns: Iterable[TranscriptTurn], pid: int | None) -> Iterator[str]:
    """The document, in pieces."""
    yield from _front(record)
    for turn in turns:
        for part in _turn(turn, pid):
            yield f"\n{part}\n"


def _front(record: SessionRecord) -> Iterator[str]:
    yield f"# {escaped(one_line(record.title or '') or 'A session without a title')}\n\n"
    yield f"- Session: {code(record.id)}\n"
    yield f"- Agent: {code(record.agent)}\n"
    yield f"- Directory: {code(record.cwd)}\n"
    for root in record.roots:
        yield f"- Additional directory: {code(root)}\n"
    yield f"- Begun: {universal_time(record.created_at)}\n"
    yield f"- Last change: {universal_time(record.updated_at)}\n"
    yield f"- Turns: {record.turns}\n"


def _turn(turn: TranscriptTurn, pid: int | None) -> Iterator[str]:
    outcome = turn.outcome(is_held=pid is not None)
    yield f"## Turn {turn.number}"
    yield f"*{universal_time(turn.started_at)}*"
    if turn.prompt:
        yield "### User"
        yield from (quoted(_passage(passage)) for passage in passages.of_prompt(turn.prompt))
    if turn.happenings:
        yield "### Agent"
    for event in passages.events_to_read(turn):
        yield from _told(event, outcome)
    end = passages.spoken_end(turn, outcome, pid)
    if end:
        yield f"**{escaped(end)}**"


def _told(event: Told, outcome: Outcome) -> Iterator[str]:
    match event:
        case Text(text):
            yield closed(clean(text).strip("\n"))
        case Thought(text):
            yield quoted(f"*Thought*\n\n{clean(text).strip()}")
        case Content(block):
            yield _passage(passages.of_block(block))
        case Plan(entries):
            marks = {"completed": "[x]"}
            tasks = (
                f"- {marks.get(entry.status, '[ ]')} {escaped(one_line(entry.content))}"
                + (" *(in progress)*" if entry.status == "in_progress" else "")
                for entry in entries
            )
            yield "\n".join(["**Plan**", "", *tasks])
        case Notice() as notice:
            yield quoted(escaped(passages.spoken_notice(notice)))
        case Compaction() as compaction:
            yield quoted(passages.spoken_compaction(compaction))
        case ToolCall() as call:
            yield from _call(call, passages.status_of(call, outcome))
        case Unreadable(kind):
            yield f"*(an entry of the kind {escaped(one_line(str(kind)))} cannot be read)*"


def _call(call: ToolCall, status: str) -> Iterator[str]:
    yield f"**Tool:** {escaped(passages.title_of(call))} *({escaped(status)})*"
    given = passages.input_of(call)
    if given:
        yield fenced(given, "json")
    yield from (_passage(passage) for passage in passages.of_output(call))


def _passage(passage: Passage) -> str:
    parts = []
    if passage.note:
        parts.append(f"*[{escaped(passage.note)}]*")
    if passage.text:
        parts.append(closed(passage.text.strip("\n")))
    if passage.code:
        parts.append(fenced(passage.code, passage.language))
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """A code span, which takes backticks too."""
    text = one_line(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """A block of code, with a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def quoted(text: str) -> str:
    """A quotation: what is left open in it ends with it."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def closed(text: str) -> str:
    """Markdown in which no fence and no comment is left open."""
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
