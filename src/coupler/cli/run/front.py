"""Who answers what a workflow asks on a command line: its options, somebody at the terminal, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coupler.cli.run import questions as run_questions
from coupler.cli.run.answers import GivenAnswers, id_in
from coupler.cli.run.questions import DONE, default_answer
from coupler.workflow.engine.front import Answer, Approval
from coupler.workflow.errors import Parked
from coupler.workflow.language.inputs import as_input

if TYPE_CHECKING:
    from coupler.cli.question_terminal import QuestionTerminal
    from coupler.cli.run.screen import Screen
    from coupler.workflow.engine.stepping import Choice
    from coupler.workflow.journal.happenings import Place
    from coupler.workflow.language.definition import Input


class CommandFront:
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

    async def approve(self, place: Place, question: str, default: bool | None) -> Approval:
        given = self._answers.approval_for(place)
        given = self._approval if given is None else given
        if given is not None:
            return Approval(given, "option")
        if self._terminal is None:
            return Approval(bool(default), "nobody" if default is None else "default")
        async with self._screen.aside(), self._terminal.turn():
            shown = self._screen.mask(question)
            approved = await run_questions.ask_approval(self._terminal, str(place), shown, default)
        if approved is None:
            raise Parked(f"{place} waits for a yes or no: resume it at a terminal, or with --yes or --no")
        return Approval(approved, "user")

    async def ask(self, place: Place, question: str, answer: Input) -> Answer:
        # A form of an agent comes in the name of its step, which has other answers.
        given = self._answers.text_for(place) if answer.name == id_in(place.path) else None
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

    async def choose(self, place: Place, title: str) -> Choice:
        """What becomes of a step, in a run that goes step by step."""
        assert self._terminal is not None
        async with self._screen.aside(), self._terminal.turn():
            choice = await run_questions.ask_choice(self._terminal, str(place), self._screen.mask(title))
        return "stop" if choice is None else choice


class RehearsalFront:
    """Of a dry run, in which nobody is asked: what would be asked is told by the steps."""

    async def approve(self, place: Place, question: str, default: bool | None) -> Approval:
        return Approval(True, "default")

    async def ask(self, place: Place, question: str, answer: Input) -> Answer:
        raise Parked(f"{place} would ask")

    async def message(self, place: Place, reply: str) -> str | None:
        return None


def _waiting(place: Place, what: str) -> Parked:
    return Parked(f"{place} waits for {what}: resume it at a terminal, or with --answer '{place}=TEXT'")
