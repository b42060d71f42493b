"""What a step is called where people see it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from coupler.workflow.errors import StepError
from coupler.workflow.language.definition import (
    Agent,
    Approve,
    Ask,
    Call,
    Converse,
    ForEach,
    Parallel,
    Run,
    Set,
    Step,
    Stop,
    While,
)

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt

LONGEST = 80
"""Characters of a title."""

LINES = frozenset("\n\t")
JOINERS = frozenset("\u200c\u200d")
"""Parts of words and of signs in many scripts: they hide nothing."""

_UNDESCRIBED = {
    "parallel": re.compile(r"\d+ branches"),
    "for_each": re.compile(r"for each \w+"),
    "while": re.compile(r"while .*"),
}
"""The titles that `_title_of_block` gives to steps with branches or iterations."""


def title_of(step: Step, attempt: Attempt) -> str:
    """Its description if it has one, else what it does, in one line."""
    words = plain_title(step)
    # What cannot be rendered stands as it was written: the step will fail by it, or does not need it.
    with suppress(StepError):
        words = attempt.text(words)
    return in_one_line(attempt.mask(words))


def in_one_line(text: str) -> str:
    """As much of a text as a title has room for; what is secret in it is hidden before."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def visible(text: str) -> str:
    """A text that hides nothing: what would steer a terminal, or turn words around, is spelled out."""
    if text.isprintable():
        return text
    return "".join(char if _can_be_seen(char) else char.encode("unicode_escape").decode() for char in text)


def _can_be_seen(char: str) -> bool:
    return char.isprintable() or char in LINES or char in JOINERS


def plain_title(step: Step) -> str:
    """The same as it was written, with its `{{ }}`."""
    if step.description:
        return step.description
    match step:
        case Run():
            return step.script or step.file or "run"
        case Agent() | Converse():
            prompt = step.set_up.prompt or step.set_up.prompt_file
            return f"{step.agent}: {prompt}" if prompt else f"talk with {step.agent}"
        case Approve():
            return step.question.question or "Approve"
        case Ask():
            return step.question
        case Stop():
            return step.message or f"stop: {step.status}"
        case Set():
            return f"set {', '.join(step.values)}"
        case _:
            return _title_of_block(step)


def tells_only_kind(kind: str, title: str) -> bool:
    """Whether a step with branches or iterations has no title of its own, because nobody has described it."""
    return kind in _UNDESCRIBED and _UNDESCRIBED[kind].fullmatch(title) is not None


def _title_of_block(step: Parallel | ForEach | While | Call) -> str:
    match step:
        case Parallel():
            return f"{len(step.branches)} branches"
        case ForEach():
            return f"for each {step.name}"
        case While():
            return f"while {step.test}"
        case Call():
            return f"call {step.workflow}"
