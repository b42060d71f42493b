"""Who answers what a workflow asks on a command line: its options, somebody at the terminal, or nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from coupler.cli.run import questions as run_questions
from coupler.cli.run.answers import GivenAnswers
from coupler.cli.run.changes import changes_in
from coupler.cli.run.questions import DONE, Further, default_answer
from coupler.workflow.engine.front import Answer, Approval, Front
from coupler.workflow.errors import Parked
from coupler.workflow.language.inputs import as_input

if TYPE_CHECKING:
    from coupler.cli.chat.dialogs import Dialogs
    from coupler.cli.question_terminal import QuestionTerminal
    from coupler.cli.run.screen import Screen
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.workflow.engine.front import Wish
    from coupler.workflow.engine.performers import Choice
    from coupler.workflow.journal.run_events import Place
    from coupler.workflow.language.model import Input


class CommandFront(Front):
    """Answers by options first; then somebody is asked, or the run waits for somebody."""

    def __init__(
        self,
        screen: Screen,
        terminal: QuestionTerminal | None,
        answers: GivenAnswers,
        approval: bool | None,
        cwd: str,
    ) -> None:
        self._screen = screen
        self._terminal = terminal
        self._answers = answers
        self._approval = approval
        self._cwd = cwd
        self._talking: Place | None = None
        """The conversation that goes on."""

    @property
    def is_present(self) -> bool:
        return self._terminal is not None and self._approval is None

    @property
    def shows_forms(self) -> bool:
        return self._terminal is not None

    @property
    def shows_pages(self) -> bool:
        return self._terminal is not None

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: Wish | None = None
    ) -> Approval:
        # What is given for a conversation are messages, and no answers to what its agent wishes.
        given = self._answers.approval_for(place) if wish is None else None
        given = self._approval if given is None else given
        if given is not None:
            return Approval(given, "option")
        if self._terminal is None:
            return Approval(bool(default), "nobody" if default is None else "default")
        async with self._screen.aside(), self._terminal.turn():
            shown = self._screen.mask(question)
            approval = await run_questions.ask_permission(
                self._terminal, str(place), shown, default, self._further(wish)
            )
        if approval is None:
            raise Parked(f"{place} waits for a yes or no: resume it at a terminal, or with --yes or --no")
        return approval

    async def ask(self, place: Place, question: str, answer: Input) -> Answer:
        given = self._answers.text_for(place)
        if given is not None:
            return Answer(given, as_input(answer, given, self._cwd), "option")
        if self._terminal is None and answer.default is not msgspec.UNSET:
            return default_answer(answer, self._cwd)
        if self._terminal is None:
            raise _waiting(place, "an answer")
        async with self._screen.aside(), self._terminal.turn():
            shown = self._screen.mask(question)
            asked = await run_questions.ask_value(self._terminal, str(place), shown, answer, self._cwd)
        if asked is None:
            raise _waiting(place, "an answer")
        return asked

    async def message(self, place: Place, reply: str) -> str | None:
        if self._answers.has_messages(place):
            message = self._answers.next_message(place)
            return None if message in (None, "", DONE) else message
        if self._terminal is None:
            raise _waiting(place, "a message")
        shown = None if self._screen.tells_texts else self._screen.mask(reply)
        is_first, self._talking = self._talking != place, place
        async with self._screen.aside(), self._terminal.turn():
            return await run_questions.ask_message(self._terminal, str(place), shown, has_hint=is_first)

    async def fill_in(self, place: Place, form: FormRequest, call: str | None) -> FormAnswer:
        shown = msgspec.structs.replace(form, message=self._named(place, form.message))
        async with self._dialogs() as dialogs:
            return False if dialogs is None else await dialogs.form(shown)

    async def open_page(self, place: Place, page: UrlRequest, call: str | None) -> bool | None:
        shown = msgspec.structs.replace(page, message=self._named(place, page.message))
        async with self._dialogs() as dialogs:
            return False if dialogs is None else await dialogs.page(shown)

    async def choose(self, place: Place, title: str) -> Choice:
        """What becomes of a step, in a run that goes step by step."""
        assert self._terminal is not None
        async with self._screen.aside(), self._terminal.turn():
            choice = await run_questions.ask_choice(self._terminal, str(place), self._screen.mask(title))
        return "stop" if choice is None else choice

    @asynccontextmanager
    async def _dialogs(self) -> AsyncIterator[Dialogs | None]:
        """For what an agent asks; None if nobody is there."""
        if self._terminal is None:
            yield None
            return
        # Imported on use: few agents ask.
        from coupler.cli.chat.dialogs import Dialogs
        from coupler.cli.exec.form import FormFront

        async with self._screen.aside(), self._terminal.turn():
            yield Dialogs(FormFront(self._terminal))

    def _named(self, place: Place, message: str) -> str:
        return f"{place}: {self._screen.mask(message)}"

    def _further(self, wish: Wish | None) -> Further:
        """What is shown of a wish besides the question; secrets are never kept, nor shown."""
        if wish is None:
            return Further()
        offers = (wish.offer(approved=True), wish.offer(approved=False))
        always, never = (
            None if offer is None or self._screen.mask(offer.text) != offer.text else offer.text
            for offer in offers
        )
        return Further(self._screen.mask(changes_in(wish.tool_call)), always, never)


class RehearsalFront(Front):
    """Of a dry run, in which nobody is asked: what would be asked is told by the steps."""

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: Wish | None = None
    ) -> Approval:
        return Approval(True, "default")

    async def ask(self, place: Place, question: str, answer: Input) -> Answer:
        raise Parked(f"{place} would ask")

    async def message(self, place: Place, reply: str) -> str | None:
        return None


def _waiting(place: Place, what: str) -> Parked:
    return Parked(f"{place} waits for {what}: resume it at a terminal, or with --answer '{place}=TEXT'")
