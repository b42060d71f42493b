"""Who answers what a workflow asks in an editor: dialogs for a yes or no, the next prompt for all else.

A turn cannot wait for what the user writes next. So a question parks the run, the turn ends, and the next
prompt is the answer: the run is resumed, comes by the question again, and gets it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from coupler.schema.v1 import PermissionOption, RequestPermissionRequest, SelectedPermissionOutcome
from coupler.wire.errors import RpcError
from coupler.workflow.editor.input_form import asked_for, spoken
from coupler.workflow.engine.front import Answer, Approval
from coupler.workflow.errors import InputError, Parked
from coupler.workflow.language.inputs import as_input

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.workflow.editor.projection import Projection
    from coupler.workflow.journal.happenings import Place
    from coupler.workflow.language.definition import Input

ALLOW = PermissionOption("allow", "Allow", "allow_once")
DENY = PermissionOption("deny", "Deny", "reject_once")

Kind = Literal["answer", "message", "approval"]
WHAT: dict[Kind, str] = {"answer": "an answer", "message": "a message", "approval": "a yes or no"}


class Reply(NamedTuple):
    """What the user wrote, and the step that it is for."""

    place: str
    text: str


class Waiting(NamedTuple):
    """The question that a run is parked by."""

    place: str
    kind: Kind
    question: str
    problem: str = ""
    """Why the last answer would not do."""


class EditorFront:
    """Of one turn. After a run was parked, `waiting` says what for."""

    def __init__(self, turn: Turn, reply: Reply | None = None) -> None:
        self.projection: Projection | None = None
        """What shows the run, once it is begun."""
        self.waiting: Waiting | None = None
        self._turn = turn
        self._reply = reply

    async def approve(self, place: Place, question: str, default: bool | None) -> Approval:
        assert self.projection is not None
        await self.projection.until_shown()
        request = RequestPermissionRequest(
            self._turn.session.id, self.projection.call_of(place, question), (ALLOW, DENY)
        )
        try:
            response = await self._turn.call_editor(request)
        except RpcError:
            # An editor that cannot ask is nobody.
            return Approval(bool(default), "nobody" if default is None else "default")
        match response.outcome:
            case SelectedPermissionOutcome(option_id=ALLOW.option_id):
                return Approval(approved=True, by="user")
            case SelectedPermissionOutcome():
                return Approval(approved=False, by="user")
        raise self._parked(Waiting(str(place), "approval", question))

    async def ask(self, place: Place, question: str, answer: Input) -> Answer:
        if answer.name != _id_in(place):
            # A form of the step's agent, which is in the midst of its work and cannot be left for a while.
            raise Parked(f"{place}: an agent's form is not asked for in an editor")
        text = self._taken(place)
        waiting = Waiting(str(place), "answer", _with_choices(question, answer))
        if text is None:
            text = await self._filled_in(question, answer)
        if text is None:
            raise self._parked(waiting)
        if not text.strip() and answer.default not in (msgspec.UNSET, None):
            return Answer(spoken(answer.default), answer.default, "default")
        try:
            return Answer(text, as_input(answer, text, self._turn.session.cwd), "user")
        except InputError as error:
            raise self._parked(waiting._replace(problem=str(error))) from None

    async def message(self, place: Place, reply: str) -> str | None:
        text = self._taken(place)
        if text is None:
            raise self._parked(Waiting(str(place), "message", ""))
        return text if text.strip() else None

    async def _filled_in(self, question: str, answer: Input) -> str | None:
        """The answer of a typed question or a choice, by a form; plain text is what the chat is for."""
        if answer.type == "string" and not answer.enum:
            return None
        assert self.projection is not None
        await self.projection.until_shown()
        filled = await asked_for(self._turn, self.projection.mask(question), [answer])
        return None if filled is None else spoken(filled.get(answer.name, ""))

    def _taken(self, place: Place) -> str | None:
        """What was written for this step, once."""
        if self._reply is None or self._reply.place != str(place):
            return None
        reply, self._reply = self._reply, None
        return reply.text

    def _parked(self, waiting: Waiting) -> Parked:
        # A branch beside the first that asked may still come to its question before the run is parked.
        self.waiting = self.waiting or waiting
        return Parked(f"{waiting.place} waits for {WHAT[waiting.kind]}")


def _id_in(place: Place) -> str:
    """The step's own id, without those around it."""
    return re.split(r"[./]", place.path)[-1]


def _with_choices(question: str, answer: Input) -> str:
    if not answer.enum:
        return question
    return f"{question}\n\n" + "\n".join(f"- {choice}" for choice in answer.enum)
