"""Parts of a conversation as bare text, for pipes and for terminals that can do no more."""

from __future__ import annotations

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
from coupler.cli.sessions.passages import input_of, of_output, title_of
from coupler.cli.sessions.wording import one_line

PLAN_MARKS = {"completed": "x", "in_progress": ">"}


def plain(part: Part) -> str:
    """The part as it is written when it is done."""
    match part:
        case Asked(text):
            return f"> {text}"
        case Answer(text):
            return text.strip("\n")
        case Musing(number):
            return f"[thought #{number}]"
        case Called(number, call):
            return f"[{one_line(call.status)}] {title_of(call)} ({one_line(call.kind)}) #{number}"
        case Planned(entries):
            marks = ((PLAN_MARKS.get(entry.status, " "), one_line(entry.content)) for entry in entries)
            return "\n".join(f"[{mark}] {content}" for mark, content in marks)
        case Shown(note):
            return f"[{note}]"
        case Remark(title, detail):
            return f"[{title}]" if not detail else f"[{title}{'' if title.endswith('.') else ':'} {detail}]"
        case Wanted(call):
            return f"[wanted] {title_of(call)} ({one_line(call.kind)})"
        case Listing():
            return _listing(part)


def plain_error(remark: Remark) -> str:
    """What went wrong, for stderr: what the agent's process left stands on lines of its own."""
    return "\n".join(filter(None, [remark.title, remark.detail]))


def plain_whole(part: Numbered) -> str:
    """All there is to see of a thought or a tool call."""
    if isinstance(part, Musing):
        return part.text
    lines = [plain(part), input_of(part.call)]
    for passage in of_output(part.call):
        lines.extend([passage.note, (passage.code or passage.text).rstrip("\n")])
    return "\n".join(filter(None, lines))


def _listing(listing: Listing) -> str:
    lines = [listing.title]
    for choice in listing.choices:
        mark = "*" if choice.is_current else " "
        lines.append(f"{mark} {choice.word}{f'  {choice.meaning}' if choice.meaning else ''}")
    return "\n".join([*lines, *filter(None, [listing.hint])])
