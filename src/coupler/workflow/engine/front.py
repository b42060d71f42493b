"""Who answers what a workflow asks: a terminal, an editor, or nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from coupler.__about__ import __version__
from coupler.client.observation import context_in, is_in_use
from coupler.events import ToolCall
from coupler.permission.engine import Offer
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Place
from coupler.workflow.language.model import (
    Agent,
    Approve,
    Ask,
    Call,
    Converse,
    ForEach,
    Input,
    Json,
    Parallel,
    Run,
    Set,
    Step,
    Stop,
    While,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.client.reply import Budget
    from coupler.runtime.files import FilePath
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.blocks import Part
    from coupler.workflow.journal.run_events import Result


By = Literal["user", "option", "default", "timeout", "rule", "nobody"]


class Approval(msgspec.Struct, frozen=True):
    """A yes or a no, and whose."""

    approved: bool
    by: By
    is_for_good: bool = False
    """Whether the same is not to be asked again: the answer was one of those that a wish offers."""


class Answer(msgspec.Struct, frozen=True):
    """What was answered, as text and as the value that it stands for, and by whom."""

    text: str
    value: Json
    by: Literal["user", "option", "default"]


class Wish(msgspec.Struct, frozen=True):
    """Something that the agent of a step wants to do, when somebody is asked about that."""

    tool_call: ToolCall
    """As the agent tells of it."""
    call: str | None = None
    """Its name in the run; None if the agent does it without having told of a call."""
    offers: tuple[Offer, ...] = ()
    """The answers that would hold for good, each with what it means."""

    def offer(self, *, approved: bool) -> Offer | None:
        """What a yes or a no for good means; None if there is none."""
        answer = "allow" if approved else "deny"
        return next((offer for offer in self.offers if offer.answer == answer), None)


class OpenFiles(Protocol):
    """Files as somebody has them open, with what is not saved yet."""

    @property
    def can_read(self) -> bool: ...

    @property
    def can_write(self) -> bool: ...

    def has(self, path: FilePath) -> bool:
        """Whether the file is one of theirs; may wait for a disk."""
        ...

    async def read(self, path: FilePath, line: int | None = None, limit: int | None = None) -> str: ...

    async def write(self, path: FilePath, text: str) -> None: ...


class Front(Protocol):
    """What asks may raise `Parked`: nobody can answer now, and the run waits for somebody who can.

    Questions of branches that run beside each other come one at a time; that is the asker's concern.
    """

    @property
    def is_present(self) -> bool:
        """Whether somebody is there to ask about what agents do and no rule decides."""
        return False

    @property
    def shows_forms(self) -> bool:
        """Whether agents can have forms filled in."""
        return False

    @property
    def shows_pages(self) -> bool:
        """Whether agents can have pages opened."""
        return False

    @property
    def files(self) -> OpenFiles | None:
        """The files that agents read and write in the place of those on the disk."""
        return None

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: Wish | None = None
    ) -> Approval:
        """Ask for a yes or no, for a step or for what its agent wishes to do."""
        ...

    async def ask(self, place: Place, question: str, answer: Input) -> Answer:
        """Ask for text or a value; what does not fit is asked for again."""
        ...

    async def message(self, place: Place, reply: str) -> str | None:
        """The user's next message in a conversation, after the agent's reply; None leaves it."""
        ...

    async def fill_in(self, place: Place, form: FormRequest, call: str | None) -> FormAnswer:
        """Let a form of the step's agent be filled in, which belongs to a call of it or to the step."""
        return False

    async def open_page(self, place: Place, page: UrlRequest, call: str | None) -> bool | None:
        """Let a page be opened that the step's agent wants to be; True if it is, None if nobody says."""
        return False


# In which list of steps a step stands, of all those that a run goes through.


@dataclass(frozen=True)
class Where:
    """What the paths of a list's steps begin with, and what stands around it."""

    cwd: str
    """Where its steps work, unless they say otherwise."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the programs of its steps get besides our own environment."""
    prefix: str = ""
    parent: Place | None = None
    part: Part | None = None
    """The branch or the iteration that it is, if it is one."""
    is_afterwards: bool = False
    """It is done when all is over, whatever is left of the run's limits."""
    budget: Budget | None = None
    """What the workflow that is called here may use; None: what the whole run may."""
    is_over: bool = False
    """The step around it is over: nothing in here runs any more, results are gathered from the journal."""

    def place(self, step: Step, visit: int) -> Place:
        return Place(f"{self.prefix}{step.id}", visit)

    def inside(self, parent: Place, prefix: str, part: Part | None = None) -> Where:
        """For a list of steps inside of one of these."""
        return replace(self, parent=parent, prefix=prefix, part=part)


# What a step is called where people see it.


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


# Spans for OpenTelemetry: every run, step and attempt, in programs that use it.
#
# They are current while they last, so that what an agent does in a step hangs below it, and a run below
# whatever it was started in. What people, models and programs say is no part of a span.


@contextmanager
def joined(meta: Mapping[str, object]) -> Iterator[None]:
    """What begins in here belongs to the trace that the `_meta` of a prompt names, if it names one."""
    context = context_in(meta) if is_in_use() else None
    if context is None:
        yield
        return
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


@contextmanager
def span(name: str, attributes: Mapping[str, str | int]) -> Iterator[Span | None]:
    """Something that lasts; yields None where nobody listens."""
    if not is_in_use():
        yield None
        return
    from opentelemetry.trace import get_tracer

    tracer = get_tracer("coupler", __version__)
    prefixed = {f"coupler.{key}": value for key, value in attributes.items()}
    # The texts of errors may hold anything that a program wrote.
    with tracer.start_as_current_span(
        name, attributes=prefixed, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except BaseException as error:
            kind = error.kind if isinstance(error, StepError) else type(error).__qualname__
            note_failure(current, kind)
            raise


def note_result(current: Span | None, result: Result) -> None:
    """Say how a step ended."""
    if current is None:
        return
    current.set_attribute("coupler.step.status", result.status)
    if result.status == "failed" and result.error is not None:
        note_failure(current, result.error.kind)


def note_failure(current: Span | None, kind: str) -> None:
    """Say that it failed, and by which kind of error."""
    if current is None:
        return
    from opentelemetry.trace import Status, StatusCode

    current.set_attribute("error.type", kind)
    current.set_status(Status(StatusCode.ERROR))
