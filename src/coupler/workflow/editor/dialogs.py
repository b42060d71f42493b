"""Answers a workflow's questions in an editor: by dialogs for a yes or no, else by the next prompt.

A turn cannot wait for what the user writes next. So a question parks the run, the turn ends, and the next
prompt is the answer: the run is resumed, reaches the question again, and gets it. An agent in the midst of
its work cannot be left like that: what it asks is a dialog, or declined.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import UNSET

from coupler.agent.content import BLOCKS, whole_text
from coupler.agent.files import EditorFiles
from coupler.events.fold import text_content
from coupler.permission.action import ALLOWING, KINDS
from coupler.runtime.files import OutsideRootsError, SessionPath, find_inside
from coupler.schema.v1 import (
    AcceptElicitationResponse,
    CompleteElicitationNotification,
    Content,
    CreateElicitationResponse,
    CreateFormElicitationRequest,
    CreateUrlElicitationRequest,
    DeclineElicitationResponse,
    Diff,
    PermissionOption,
    PermissionToolCall,
    RequestPermissionRequest,
    SelectedPermissionOutcome,
    TextContent,
    ToolCallContent,
)
from coupler.wire.messages import RpcError
from coupler.workflow.agents.agent_events import LONGEST_LINE, MOST_LISTED, MOST_SHOWN, bounded, shortened
from coupler.workflow.editor.arguments import FORM_CAPABILITY, ask_for_inputs, value_as_text
from coupler.workflow.engine.front import (
    Approval,
    FrontEnd,
    InterruptedAnswer,
    QuestionAnswer,
    UserMessage,
    visible,
)
from coupler.workflow.errors import InputError, Parked
from coupler.workflow.language.inputs import parse_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coupler.agent.turn import Turn
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.events import ToolCall
    from coupler.permission.offers import Offer
    from coupler.schema.v1 import ImageContent
    from coupler.workflow.editor.arguments import PromptText
    from coupler.workflow.editor.chat_messages import Meta
    from coupler.workflow.editor.projection import RunProjection
    from coupler.workflow.engine.front import OpenFiles, PermissionQuestion
    from coupler.workflow.journal.run_events import Place
    from coupler.workflow.language.model import Input


log = logging.getLogger("coupler.workflow")

FORM_ATTEMPTS = 3
"""Most times that a question is shown as a form, if the answers do not fit."""

URL_CAPABILITY = "elicitation.url"
"""The client capability of editors that open pages."""

LONGEST_DIFF = 1024 * 1024
"""Characters of a change, old and new, that is shown whole: editors refuse messages that are too long."""

QuestionKind = Literal["answer", "message", "approval"]
WAITS_FOR: dict[QuestionKind, str] = {
    "answer": "an answer",
    "message": "a message",
    "approval": "a yes or no",
}

ALLOW = PermissionOption("allow", "Allow", "allow_once")
DENY = PermissionOption("deny", "Deny", "reject_once")

INTERRUPTED_OPTIONS = (
    PermissionOption("again", "Run it again", "allow_once"),
    PermissionOption("done", "It was done, go on", "allow_once"),
    PermissionOption("stop", "Stop", "reject_once"),
)
"""The options for an interrupted step that is to run once."""


class PromptReply(NamedTuple):
    """The user's reply to a step that waits."""

    place: str
    text: str
    typed: PromptText
    """The reply with the files that are mentioned in it."""
    images: tuple[ImageContent, ...] = ()


class PendingQuestion(NamedTuple):
    """The question that a run is parked at."""

    place: str
    kind: QuestionKind
    question: str
    problem: str = ""
    """Reason why the last answer was not accepted."""
    default: str = ""
    """The answer that counts if none is given."""


class EditorFrontEnd(FrontEnd):
    """The front end of one turn in an editor. After a run was parked, `waiting` has the question."""

    def __init__(self, turn: Turn, reply: PromptReply | None = None) -> None:
        self.projection: RunProjection | None = None
        """Shows the run, once it has begun."""
        self.waiting: PendingQuestion | None = None
        self._turn = turn
        self._reply = reply
        self._completing: set[asyncio.Future[None]] = set()
        """A future for each page that is open; they end with the turn."""

    @property
    def is_present(self) -> bool:
        return True

    @property
    def shows_forms(self) -> bool:
        return self._turn.editor.offers(FORM_CAPABILITY)

    @property
    def shows_pages(self) -> bool:
        return self._turn.editor.offers(URL_CAPABILITY)

    @property
    def files(self) -> OpenFiles:
        return OpenEditorFiles(self._turn)

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: PermissionQuestion | None = None
    ) -> Approval:
        options = permission_options(wish, self._turn.session.secrets.mask)
        chosen = await self._chosen(place, question, options, wish)
        if chosen is None:
            return Approval(bool(default), "nobody" if default is None else "default")
        return _approval(chosen, options)

    async def ask_interrupted(self, place: Place, question: str) -> InterruptedAnswer:
        match await self._chosen(place, question, INTERRUPTED_OPTIONS):
            case "again" | "done" as choice:
                return InterruptedAnswer(choice, "user")
            case None:
                return InterruptedAnswer("stop", "nobody")
            case _:
                return InterruptedAnswer("stop", "user")

    async def fill_in(self, place: Place, form: FormRequest, call: str | None) -> FormAnswer:
        request = CreateFormElicitationRequest(form.message, form.schema, **await self._scope(place, call))
        match await self._asked(request):
            case AcceptElicitationResponse(content=content):
                return content or {}
            case DeclineElicitationResponse():
                return False
        return None

    async def open_page(self, place: Place, page: UrlRequest, call: str | None) -> bool | None:
        # Agents beside each other may have called their pages the same.
        known_as = uuid4().hex
        scope = await self._scope(place, call)
        request = CreateUrlElicitationRequest(page.message, known_as, page.url, **scope)
        match await self._asked(request):
            case AcceptElicitationResponse():
                telling = self._turn.own(self._tell_completed(page, known_as))
                self._completing.add(asyncio.ensure_future(telling))
                return True
            case DeclineElicitationResponse():
                return False
        return None

    async def ask(self, place: Place, question: str, answer: Input) -> QuestionAnswer:
        reply = self._taken(place)
        problem = ""
        try:
            if reply is not None:
                return self._replied(reply, answer)
            filled = await self._filled_in(question, answer)
            if filled is not None:
                return filled
        except InputError as error:
            problem = _about_answer(error, answer)
        asked = _with_choices(question, answer)
        raise self._parked(PendingQuestion(str(place), "answer", asked, problem, _default_of(answer)))

    async def message(self, place: Place, reply: str) -> UserMessage | None:
        written = self._taken(place)
        if written is None:
            raise self._parked(PendingQuestion(str(place), "message", ""))
        return UserMessage(written.text, written.images) if written.text.strip() or written.images else None

    def refused_message(self, place: Place, reason: str) -> Parked:
        return self._parked(PendingQuestion(str(place), "message", "", reason))

    @property
    def has_unread_images(self) -> bool:
        """True if the user's reply has images, and the run did not come to the step that it is for."""
        return self._reply is not None and bool(self._reply.images)

    async def _chosen(
        self,
        place: Place,
        question: str,
        options: tuple[PermissionOption, ...],
        wish: PermissionQuestion | None = None,
    ) -> str | None:
        """Return the option that the user chose in a dialog; None if the editor cannot ask."""
        projection = await self._shown_projection()
        call = self._call_about(projection, place, question, wish)
        try:
            response = await self._turn.call_editor(
                RequestPermissionRequest(self._turn.session.id, call, options)
            )
        except RpcError:
            return None
        match response.outcome:
            case SelectedPermissionOutcome(option_id=chosen):
                return chosen
        raise self._parked(PendingQuestion(str(place), "approval", question))

    def _replied(self, reply: PromptReply, answer: Input) -> QuestionAnswer:
        mentioned = reply.typed.as_answer(answer, self._turn.session.cwd)
        return self._read(reply.text if mentioned is None else mentioned, answer)

    def _read(self, text: str, answer: Input) -> QuestionAnswer:
        """Parse the user's text as an answer; an empty one is the default. Raises InputError."""
        if not text.strip() and answer.default not in (msgspec.UNSET, None):
            return QuestionAnswer(value_as_text(answer.default), answer.default, "default")
        return QuestionAnswer(text, parse_input(answer, text, self._turn.session.cwd), "user")

    async def _filled_in(self, question: str, answer: Input) -> QuestionAnswer | None:
        """The answer by a form, which is shown again if it does not fit; raises InputError in the end."""
        if answer.type == "string" and not answer.enum:
            return None  # plain text is what the chat is for
        projection = await self._shown_projection()
        asked = question = projection.mask(question)
        for attempt in range(1, FORM_ATTEMPTS + 1):
            filled = await ask_for_inputs(self._turn, asked, [answer])
            if filled is None:
                return None
            try:
                return self._read(value_as_text(filled.get(answer.name, "")), answer)
            except InputError as error:
                if attempt == FORM_ATTEMPTS:
                    raise
                asked = f"That will not do: {projection.mask(_about_answer(error, answer))}\n\n{question}"
        return None

    def _call_about(
        self, projection: RunProjection, place: Place, question: str, wish: PermissionQuestion | None
    ) -> PermissionToolCall:
        known = None if wish is None else projection.known_call(place, wish.call)
        if wish is None or known is None:
            return projection.call_of(place, question)
        known_as, meta = known
        status = self._turn.session.outlet.ledger.status_when_asked(known_as)
        return permission_tool_call(wish, projection.mask(question), known_as, status, meta)

    async def _scope(self, place: Place, call: str | None) -> dict[str, Any]:
        """Return the session and, once the editor knows it, the tool call that an elicitation belongs to."""
        known = (await self._shown_projection()).known_call(place, call)
        return {"session_id": self._turn.session.id, "tool_call_id": UNSET if known is None else known[0]}

    async def _asked(
        self, request: CreateFormElicitationRequest | CreateUrlElicitationRequest
    ) -> CreateElicitationResponse:
        try:
            response: CreateElicitationResponse = await self._turn.call_editor(request)
        except RpcError as error:
            log.warning("a question of an agent was not shown: %s", error.message)
            return DeclineElicitationResponse()
        return response

    async def _tell_completed(self, page: UrlRequest, known_as: str) -> None:
        """Tell the editor that a page has done its work, if that happens in this turn."""
        await page.completed.wait()
        self._turn.editor.tell(CompleteElicitationNotification(known_as), self._turn.session.id)

    async def _shown_projection(self) -> RunProjection:
        """Return the projection, once it has shown everything so far."""
        assert self.projection is not None
        await self.projection.until_shown()
        return self.projection

    def _taken(self, place: Place) -> PromptReply | None:
        """Return the user's reply if it is for this step; each reply is returned once."""
        if self._reply is None or self._reply.place != str(place):
            return None
        reply, self._reply = self._reply, None
        return reply

    def _parked(self, waiting: PendingQuestion) -> Parked:
        # A branch beside the first that asked may still come to its question before the run is parked.
        self.waiting = self.waiting or waiting
        return Parked(f"{waiting.place} waits for {WAITS_FOR[waiting.kind]}")


def _approval(chosen: str, options: Sequence[PermissionOption]) -> Approval:
    """Return the approval that an option stands for; one that was not offered is a rejection."""
    kind = next((option.kind for option in options if option.option_id == chosen), "reject_once")
    return Approval(kind in ALLOWING, "user", is_for_good=kind.endswith("_always"))


def _about_answer(error: InputError, answer: Input) -> str:
    return str(error).replace(f"input `{answer.name}`", "the answer")


def _default_of(answer: Input) -> str:
    return "" if answer.default in (msgspec.UNSET, None) else value_as_text(answer.default)


def _with_choices(question: str, answer: Input) -> str:
    if not answer.enum:
        return question
    return f"{question}\n\n" + "\n".join(f"- {choice}" for choice in answer.enum)


def permission_tool_call(
    wish: PermissionQuestion,
    question: str,
    known_as: str,
    status: Literal["pending", "in_progress"],
    meta: Meta,
) -> PermissionToolCall:
    """Describe the tool call that the user is asked about; `known_as` is its id in the editor.

    The agent's words are a claim: what the call is really about stands first in what is shown, then what the
    agent shows itself, such as a diff.
    """
    call = wish.tool_call
    return PermissionToolCall(
        known_as,
        kind=call.kind if call.kind in KINDS else "other",  # type: ignore[arg-type]
        status=status,
        title=_line(call.title or call.name or call.kind),
        name=_line(call.name) if call.name else UNSET,
        content=(text_content(whole_text(question, "a question")), *_shown(call)),
        locations=call.locations[:MOST_LISTED] or UNSET,
        raw_input=UNSET if call.raw_input is None else bounded(call.raw_input),
        meta=meta,
    )


def permission_options(
    wish: PermissionQuestion | None, mask: Callable[[str], str]
) -> tuple[PermissionOption, ...]:
    """Return the options for yes and no, once and for good; a rule that would hide a secret is left out."""
    offers = () if wish is None else tuple(each for each in wish.offers if mask(each.text) == each.text)
    allowing = (_option(offer) for offer in offers if offer.answer == "allow")
    denying = (_option(offer) for offer in offers if offer.answer == "deny")
    return (ALLOW, *allowing, DENY, *denying)


def _option(offer: Offer) -> PermissionOption:
    return PermissionOption(offer.kind, offer.text, offer.kind)


def _shown(call: ToolCall) -> Iterator[ToolCallContent]:
    """Yield the content of a call, shortened to what an editor can show."""
    for item in call.content[:MOST_LISTED]:
        match item:
            case Diff(path=path, new_text=new, old_text=old):
                is_short = len(new) + len(old or "") <= LONGEST_DIFF
                yield item if is_short else text_content(f"{_line(path)}: the change is too long to show")
            case Content(content=TextContent(text=text)):
                yield text_content(shortened(whole_text(text, "a text"), MOST_SHOWN))
            case Content(content=block) if isinstance(block, BLOCKS):
                yield item


def _line(text: str) -> str:
    return shortened(visible(" ".join(whole_text(text, "a title").split())), LONGEST_LINE)


class OpenEditorFiles(EditorFiles):
    """The files that are open in the editor, with unsaved changes; a step may work elsewhere, too."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn)
        self._session = turn.session

    def has(self, path: SessionPath) -> bool:
        """Tell whether a file is in the directories that the editor has opened."""
        try:
            find_inside(path.shown, self._session.cwd, self._session.roots)
        except (OutsideRootsError, ValueError):
            return False
        return True
