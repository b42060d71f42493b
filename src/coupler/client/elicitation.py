"""`elicitation/create`: what an agent wants to know from its user, asked by functions of yours.

Each way is advertised exactly when its function is there. Nothing is sent that does not fit the form. A
cancel of the turn takes open questions back.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, field

from coupler.client.form import checked, fields_of
from coupler.client.responder import Listener, Responder
from coupler.events import ToolCall
from coupler.fields.form_fields import Field, problem_of
from coupler.schema.v1 import (
    AcceptElicitationResponse,
    CancelElicitationResponse,
    CompleteElicitationNotification,
    CreateElicitationRequest,
    CreateElicitationResponse,
    CreateFormElicitationRequest,
    CreateUrlElicitationRequest,
    DeclineElicitationResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationSchema,
    ElicitationUrlCapabilities,
)
from coupler.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession

MOST_PAGES = 100
"""Accepted pages of a connection whose completion is waited for; the oldest are forgotten."""

WITHDRAWN = CancelElicitationResponse()


class FormRequest(Struct, frozen=True, kw_only=True):
    """A form. `fields` are what can be filled in: each has a title, says what it expects, and can be read."""

    message: str
    schema: ElicitationSchema
    """The form as the agent wrote it."""
    fields: tuple[Field, ...] = ()
    session_id: str | None = None
    """None for what is asked before there is a session, such as for a login."""
    tool_call: ToolCall | None = None


class UrlRequest(Struct, frozen=True, kw_only=True):
    """A page to open. Show the whole address and the host before anybody agrees to open it."""

    message: str
    url: str
    host: str
    """Who would be visited, with the port if there is one."""
    id: str
    session_id: str | None = None
    tool_call: ToolCall | None = None
    completed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the agent tells that the page has done what it was for; it need not ever be."""


FormAnswer: TypeAlias = Mapping[str, Any] | bool | None
"""The values by the fields' names; False to decline; None to leave the question unanswered."""

OnForm: TypeAlias = Callable[[FormRequest], FormAnswer | Awaitable[FormAnswer]]
OnUrl: TypeAlias = Callable[[UrlRequest], bool | Awaitable[bool | None] | None]


class Elicitation:
    """The questions of one connection, asked as far as there is somebody to ask."""

    params = CreateElicitationRequest

    def __init__(self, on_form: OnForm | None, on_url: OnUrl | None) -> None:
        self._on_form = on_form
        self._on_url = on_url
        self._pages: dict[str, UrlRequest] = {}

    def capabilities(self) -> ElicitationCapabilities:
        """What is advertised."""
        return ElicitationCapabilities(
            form=UNSET if self._on_form is None else ElicitationFormCapabilities(),
            url=UNSET if self._on_url is None else ElicitationUrlCapabilities(),
        )

    def responders(self) -> dict[str, Responder | Listener]:
        """Who answers, and who hears of completed pages."""
        responders: dict[str, Responder | Listener] = {"elicitation/create": self}
        if self._on_url is not None:
            responders["elicitation/complete"] = Listener(CompleteElicitationNotification, self._complete)
        return responders

    def requested(
        self, request: Request, params: CreateElicitationRequest, session: RemoteSession | None
    ) -> None:
        decide, who = self._question(params, session)
        if session is None:
            request.run(_told(decide, who))
        elif session.is_cancelled or session.has_ended:
            request.answer(WITHDRAWN)
        else:
            session.questions.ask(request, decide, WITHDRAWN, who)

    def _question(
        self, params: CreateElicitationRequest, session: RemoteSession | None
    ) -> tuple[Callable[[], Awaitable[CreateElicitationResponse]], str]:
        """Who decides, and what to call it; raises an RpcError for what cannot be asked."""
        match params:
            case CreateFormElicitationRequest() if self._on_form is not None:
                form, on_form = _form(params, session), self._on_form
                return (lambda: _fill_in(form, on_form)), "the function for forms"
            case CreateUrlElicitationRequest() if self._on_url is not None:
                page, on_url = _page(params, session), self._on_url
                return (lambda: self._open(page, on_url)), "the function for pages"
        message = "mode: this client has not advertised that it can be asked this way"
        raise RpcError.because(INVALID_PARAMS, message, path="mode")

    async def _open(self, page: UrlRequest, on_url: OnUrl) -> CreateElicitationResponse:
        answer = await _settled(on_url(page))
        if answer is True:
            # A page may be completed as soon as the agent knows that it is open.
            self._pages[page.id] = page
            if len(self._pages) > MOST_PAGES:
                del self._pages[next(iter(self._pages))]
            return AcceptElicitationResponse()
        if answer is not None and answer is not False:
            raise TypeError(f"the answer to a page is True, False or None, not {type(answer).__name__}")
        return _not_accepted(answer)

    def _complete(self, notification: CompleteElicitationNotification) -> None:
        page = self._pages.pop(notification.elicitation_id, None)
        if page is not None:
            page.completed.set()


async def _fill_in(form: FormRequest, on_form: OnForm) -> CreateElicitationResponse:
    answer = await _settled(on_form(form))
    if isinstance(answer, Mapping):
        return AcceptElicitationResponse(checked(answer, form.fields))
    if answer is not None and answer is not False:
        raise TypeError(f"the answer to a form is a dict, False or None, not {type(answer).__name__}")
    return _not_accepted(answer)


def _not_accepted(answer: bool | None) -> CreateElicitationResponse:
    return WITHDRAWN if answer is None else DeclineElicitationResponse()


async def _settled(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


async def _told(
    decide: Callable[[], Awaitable[CreateElicitationResponse]], who: str
) -> CreateElicitationResponse:
    """The answer to a question outside of all sessions; whoever wrote the function hears that it failed."""
    try:
        return await decide()
    except Exception as error:
        context = {"message": f"{who} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
        raise RpcError.because(INTERNAL_ERROR, f"{who} failed: {type(error).__name__}: {error}") from None


def _form(params: CreateFormElicitationRequest, session: RemoteSession | None) -> FormRequest:
    try:
        fields = fields_of(params.requested_schema)
    except ValueError as error:
        message = f"requestedSchema: {error}"
        raise RpcError.because(INVALID_PARAMS, message, path="requestedSchema") from None
    return FormRequest(
        message=params.message,
        schema=params.requested_schema,
        fields=fields,
        session_id=None if session is None else session.id,
        tool_call=_tool_call(params, session),
    )


def _page(params: CreateUrlElicitationRequest, session: RemoteSession | None) -> UrlRequest:
    problem = problem_of(params.url)
    if problem is not None:
        message = f"url: this address cannot be shown to a user: {problem}"
        raise RpcError.because(INVALID_PARAMS, message, path="url")
    return UrlRequest(
        message=params.message,
        url=params.url,
        host=urlsplit(params.url).netloc.lower(),
        id=params.elicitation_id,
        session_id=None if session is None else session.id,
        tool_call=_tool_call(params, session),
    )


def _tool_call(
    params: CreateFormElicitationRequest | CreateUrlElicitationRequest, session: RemoteSession | None
) -> ToolCall | None:
    return None if session is None else session.tool_calls.get(params.tool_call_id or "")
