"""Who answers what a workflow asks: a terminal, an editor, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from coupler.events import ToolCall
from coupler.permission.engine import Offer
from coupler.workflow.journal.happenings import Place
from coupler.workflow.language.definition import Input, Json

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.runtime.files import FilePath

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
