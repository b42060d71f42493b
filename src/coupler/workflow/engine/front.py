"""The front end of a run: a terminal, an editor or nobody, which answers what the workflow asks.

Beside it stands what all of them show: the context of a step, its title, and spans for OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from coupler.__about__ import __version__
from coupler.client.observation import is_telemetry_loaded, trace_context_of
from coupler.events import ToolCall
from coupler.permission.offers import Offer
from coupler.workflow.errors import Parked, StepError
from coupler.workflow.journal.run_events import Place
from coupler.workflow.language.model import Input, Json, Step
from coupler.workflow.steps.kinds import title_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.client.reply import Budget
    from coupler.runtime.files import SessionPath
    from coupler.schema.v1 import ImageContent
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.blocks import BlockPart
    from coupler.workflow.journal.run_events import Result


LONGEST_TITLE = 80
"""Characters of a title."""

LINE_CHARACTERS = frozenset("\n\t")
"""Control characters that lay out text."""
JOINERS = frozenset("\u200c\u200d")
"""Joiners inside of words and emoji of many scripts, which hide nothing."""

AnsweredBy = Literal["user", "option", "default", "timeout", "rule", "nobody"]
"""The source of an answer to a question."""


class Approval(msgspec.Struct, frozen=True):
    """The answer to a yes or no question, and who gave it."""

    approved: bool
    by: AnsweredBy
    is_for_good: bool = False
    """True if the user chose one of the question's `offers`, so that it is not asked again."""


class InterruptedAnswer(msgspec.Struct, frozen=True):
    """The answer to what becomes of an interrupted step that is to run once, and who gave it."""

    choice: Literal["again", "done", "stop"]
    """Whether it runs again, or was done and the run goes on, or the run stops."""
    by: AnsweredBy


class UserMessage(NamedTuple):
    """What the user sends in a conversation."""

    text: str
    images: tuple[ImageContent, ...] = ()


class QuestionAnswer(msgspec.Struct, frozen=True):
    """An answer, as text and as the value that it stands for, and who gave it."""

    text: str
    value: Json
    by: Literal["user", "option", "default"]


class PermissionQuestion(msgspec.Struct, frozen=True):
    """A tool call of a step's agent that somebody is asked about."""

    tool_call: ToolCall
    """The call as the agent reports it."""
    call: str | None = None
    """Its name in the run; None if the agent does it without having reported a call."""
    offers: tuple[Offer, ...] = ()
    """The answers that would hold for good, each with what it means."""

    def offer(self, *, approved: bool) -> Offer | None:
        """Return what a yes or a no for good means; None if there is none."""
        answer = "allow" if approved else "deny"
        return next((offer for offer in self.offers if offer.answer == answer), None)


class FrontEnd(Protocol):
    """Answers the questions of one run.

    Its questions may raise `Parked`: nobody can answer now, and the run waits for somebody who can. Questions
    of branches that run concurrently come one at a time; that is the asker's concern.
    """

    @property
    def is_present(self) -> bool:
        """True if somebody can be asked about tool calls that no rule decides."""
        return False

    @property
    def shows_forms(self) -> bool:
        """True if the user can be shown forms of agents."""
        return False

    @property
    def shows_pages(self) -> bool:
        """True if the user can be asked to open pages for agents."""
        return False

    @property
    def files(self) -> OpenFiles | None:
        """The open files that agents read and write in the place of those on the disk."""
        return None

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: PermissionQuestion | None = None
    ) -> Approval:
        """Ask for a yes or no, about a step or about a tool call of its agent."""
        ...

    async def ask_interrupted(self, place: Place, question: str) -> InterruptedAnswer:
        """Ask what becomes of an interrupted step that is to run once; by default, whether it runs again."""
        approval = await self.approve(place, question, None)
        return InterruptedAnswer("again" if approval.approved else "stop", approval.by)

    async def ask(self, place: Place, question: str, answer: Input) -> QuestionAnswer:
        """Ask for text or a value; what does not fit is asked for again."""
        ...

    async def message(self, place: Place, reply: str) -> UserMessage | None:
        """Return the user's next message in a conversation, after the agent's reply; None ends it."""
        ...

    def refused_message(self, place: Place, reason: str) -> Parked:
        """Return the error that parks a conversation at a message that its agent cannot take."""
        return Parked(f"{place}: {reason}")

    async def fill_in(self, place: Place, form: FormRequest, call: str | None) -> FormAnswer:
        """Let the user fill in a form of the step's agent, which belongs to a tool call or to the step."""
        return False

    async def open_page(self, place: Place, page: UrlRequest, call: str | None) -> bool | None:
        """Let the user open a page for the step's agent; True if it is opened, None if nobody says."""
        return False


class OpenFiles(Protocol):
    """Files that are open in an editor, with unsaved changes."""

    @property
    def can_read(self) -> bool: ...

    @property
    def can_write(self) -> bool: ...

    def has(self, path: SessionPath) -> bool:
        """Tell whether a file is one of them; may wait for a disk."""
        ...

    async def read(self, path: SessionPath, line: int | None = None, limit: int | None = None) -> str: ...

    async def write(self, path: SessionPath, text: str) -> None: ...


@dataclass(frozen=True)
class ListContext:
    """The context of a list of steps in a run: its path, directory, variables and limits."""

    cwd: str
    """Working directory of its steps, unless they set another."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for the programs of its steps, besides those of this process."""
    prefix: str = ""
    """Prefix of the paths of its steps."""
    parent: Place | None = None
    """The step around it."""
    part: BlockPart | None = None
    """The branch or the iteration that it is, if it is one."""
    is_afterwards: bool = False
    """True for hooks that run at the end, whatever is left of the run's limits."""
    budget: Budget | None = None
    """The budget of the workflow that is called here; None: that of the whole run."""
    is_over: bool = False
    """True if the step around it is over: nothing runs, and results are collected from the journal."""

    def place(self, step: Step, visit: int) -> Place:
        """Return the place of a step in the run."""
        return Place(f"{self.prefix}{step.id}", visit)

    def inside(self, parent: Place, prefix: str, part: BlockPart | None = None) -> ListContext:
        """Return the context of a list of steps inside of one of these."""
        return replace(self, parent=parent, prefix=prefix, part=part)


def step_title(step: Step, attempt: Attempt) -> str:
    """Return a step's description if it has one, else what it does, in one line."""
    words = title_of(step)
    # What cannot be rendered stands as it was written: the step will fail by it, or does not need it.
    with suppress(StepError):
        words = attempt.text(words)
    return in_one_line(attempt.mask(words))


def in_one_line(text: str) -> str:
    """Return as much of a text as a title has room for; secrets in it are redacted before."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1] + "…"


def visible(text: str) -> str:
    """Spell out characters that steer a terminal or turn words around, so that a text hides nothing."""
    if text.isprintable():
        return text
    return "".join(char if _can_be_seen(char) else char.encode("unicode_escape").decode() for char in text)


def _can_be_seen(char: str) -> bool:
    return char.isprintable() or char in LINE_CHARACTERS or char in JOINERS


@contextmanager
def trace_context(meta: Mapping[str, object]) -> Iterator[None]:
    """Attach what begins in here to the trace that the `_meta` of a prompt names, if it names one."""
    context = trace_context_of(meta) if is_telemetry_loaded() else None
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
    """Open a span for OpenTelemetry, in programs that use it; yields None elsewhere.

    A span is current while it lasts, so that what an agent does in a step hangs below it, and a run below
    whatever it was started in. What people, models and programs say is no part of a span.
    """
    if not is_telemetry_loaded():
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
            record_failure(current, kind)
            raise


def record_result(current: Span | None, result: Result) -> None:
    """Record in a span how a step ended."""
    if current is None:
        return
    current.set_attribute("coupler.step.status", result.status)
    if result.status == "failed" and result.error is not None:
        record_failure(current, result.error.kind)


def record_failure(current: Span | None, kind: str) -> None:
    """Record in a span that it failed, and by which kind of error."""
    if current is None:
        return
    from opentelemetry.trace import Status, StatusCode

    current.set_attribute("error.type", kind)
    current.set_status(Status(StatusCode.ERROR))
