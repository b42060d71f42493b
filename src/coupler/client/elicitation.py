"""Answers `elicitation/create`: passes an agent's forms and URLs to functions that ask the user.

Each mode is advertised exactly when its function is given. Nothing is sent that does not fit the form. A
cancel of the turn withdraws open requests.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, UnsetType, field

from coupler.client.errors import NotificationListener, Responder
from coupler.events import ToolCall
from coupler.fields.bounded_regex import Pattern
from coupler.fields.form_fields import (
    MOST_FIELDS,
    ChoiceField,
    ChoicesField,
    Field,
    FormError,
    NumberField,
    Option,
    SwitchField,
    TextField,
    problem_of,
)
from coupler.runtime.exceptions import exception_text
from coupler.schema.v1 import (
    AcceptElicitationResponse,
    BooleanPropertySchema,
    CancelElicitationResponse,
    CompleteElicitationNotification,
    CreateElicitationRequest,
    CreateElicitationResponse,
    CreateFormElicitationRequest,
    CreateUrlElicitationRequest,
    DeclineElicitationResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationPropertySchema,
    ElicitationSchema,
    ElicitationUrlCapabilities,
    EnumOption,
    IntegerPropertySchema,
    MultiSelectItems,
    MultiSelectPropertySchema,
    NumberPropertySchema,
    StringMultiSelectItems,
    StringPropertySchema,
    TitledMultiSelectItems,
)
from coupler.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession


MOST_OPEN_PAGES = 100
"""Accepted pages of a connection whose completion is awaited; the oldest are forgotten."""

WITHDRAWN = CancelElicitationResponse()


class FormRequest(Struct, frozen=True, kw_only=True):
    """A form to fill in. Each of its `fields` has a title, describes its values, and can parse one."""

    message: str
    schema: ElicitationSchema
    """The form as the agent wrote it."""
    fields: tuple[Field, ...] = ()
    session_id: str | None = None
    """None for a request outside of a session, such as for a login."""
    tool_call: ToolCall | None = None


class UrlRequest(Struct, frozen=True, kw_only=True):
    """A page to open. Show the whole URL and the host before the user agrees to open it."""

    message: str
    url: str
    host: str
    """The host that would be visited, with the port if there is one."""
    id: str
    session_id: str | None = None
    tool_call: ToolCall | None = None
    completed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the agent reports that the page was completed, which it may never do."""


FormAnswer: TypeAlias = Mapping[str, Any] | bool | None
"""The values by field name; False to decline; None to cancel the request."""

OnForm: TypeAlias = Callable[[FormRequest], FormAnswer | Awaitable[FormAnswer]]
OnUrl: TypeAlias = Callable[[UrlRequest], bool | Awaitable[bool | None] | None]


class Elicitation:
    """Answers the elicitation requests of one connection."""

    params = CreateElicitationRequest

    def __init__(self, on_form: OnForm | None, on_url: OnUrl | None) -> None:
        self._on_form = on_form
        self._on_url = on_url
        self._pages: dict[str, UrlRequest] = {}

    def capabilities(self) -> ElicitationCapabilities:
        """Return the capabilities for `initialize`."""
        return ElicitationCapabilities(
            form=UNSET if self._on_form is None else ElicitationFormCapabilities(),
            url=UNSET if self._on_url is None else ElicitationUrlCapabilities(),
        )

    def responders(self) -> dict[str, Responder | NotificationListener]:
        """Return the responder of `elicitation/create`, and the listener for completed pages."""
        responders: dict[str, Responder | NotificationListener] = {"elicitation/create": self}
        if self._on_url is not None:
            responders["elicitation/complete"] = NotificationListener(
                CompleteElicitationNotification, self._complete
            )
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
        """Return the function that decides, and its name for errors.

        Raises RpcError for an unsupported request.
        """
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
            if len(self._pages) > MOST_OPEN_PAGES:
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
        return AcceptElicitationResponse(checked_answer(answer, form.fields))
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
    """Answer a request outside of a session.

    A failing function is reported to the event loop's exception handler.
    """
    try:
        return await decide()
    except Exception as error:
        context = {"message": f"{who} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
        raise RpcError.because(INTERNAL_ERROR, f"{who} failed: {exception_text(error)}") from None


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


def fields_of(schema: ElicitationSchema) -> tuple[Field, ...]:
    """Return the fields of a form. A field of an unknown kind is left out, unless it is required."""
    if schema.type != "object":
        raise ValueError(f"the form is of the type {schema.type!r:.100}: only objects can be filled in")
    required = frozenset(schema.required or ())
    if unknown := sorted(required - schema.properties.keys()):
        raise ValueError(f"the form requires the field {unknown[0]!r:.100}, which it does not have")
    if len(schema.properties) > MOST_FIELDS:
        raise ValueError(f"the form has more than {MOST_FIELDS} fields: ask for less at once")
    fields: list[Field] = []
    for name, part in schema.properties.items():
        field = _field(part, _common(name, part, name in required))
        if field is not None:
            fields.append(field)
        elif name in required:
            raise ValueError(f"the form requires the field {name!r:.100}, whose kind is not known here")
    return tuple(fields)


def checked_answer(answer: Mapping[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """Validate an answer against the form and return it as it is sent.

    The FormError for an answer that does not fit never repeats the value.
    """
    by_name = {each.name: each for each in fields}
    for name in answer:
        if name not in by_name:
            offered = ", ".join(by_name) or "none at all"
            raise FormError(f"the form has no field {name!r:.100}, only {offered:.500}")
    content: dict[str, Any] = {}
    for name, known in by_name.items():
        if answer.get(name) is not None:
            content[name] = known.read(known.write(answer[name]))
        elif known.required:
            raise FormError("is missing", name)
    return content


def _common(name: str, part: ElicitationPropertySchema, required: bool) -> dict[str, Any]:
    return {
        "name": name,
        "keyword": name,
        "title": getattr(part, "title", None) or name,
        "description": getattr(part, "description", None) or None,
        "required": required,
        "default": _or_unset(getattr(part, "default", None)),
    }


def _field(part: ElicitationPropertySchema, common: dict[str, Any]) -> Field | None:
    match part:
        case StringPropertySchema():
            return _text_or_choice(part, common)
        case NumberPropertySchema(minimum=minimum, maximum=maximum):
            return NumberField(**common, whole=False, minimum=_known(minimum), maximum=_known(maximum))
        case IntegerPropertySchema(minimum=minimum, maximum=maximum):
            return NumberField(**common, whole=True, minimum=_known(minimum), maximum=_known(maximum))
        case BooleanPropertySchema():
            return SwitchField(**common)
        case MultiSelectPropertySchema():
            options = _items(part.items)
            if options is None:
                return None
            fewest, most = _known(part.min_items), _known(part.max_items)
            return ChoicesField(**common, options=options, fewest=fewest, most=most)
    return None


def _text_or_choice(part: StringPropertySchema, common: dict[str, Any]) -> Field:
    if part.one_of:
        return ChoiceField(**common, options=_titled(part.one_of))
    if part.enum:
        return ChoiceField(**common, options=_plain(part.enum))
    return TextField(
        **common,
        shortest=_known(part.min_length),
        longest=_known(part.max_length),
        pattern=_pattern(_known(part.pattern)),
        format=_known(part.format),
    )


def _pattern(source: str | None) -> Pattern | None:
    """Compile the pattern if it can be matched in bounded time; otherwise only the agent can check it."""
    try:
        return None if source is None else Pattern(source)
    except ValueError:
        return None


def _items(items: MultiSelectItems) -> tuple[Option, ...] | None:
    match items:
        case StringMultiSelectItems(enum):
            return _plain(enum)
        case TitledMultiSelectItems(any_of):
            return _titled(any_of)
    return None


def _plain(values: Iterable[str]) -> tuple[Option, ...]:
    return tuple(Option(value, value, value) for value in dict.fromkeys(values))


def _titled(options: Iterable[EnumOption]) -> tuple[Option, ...]:
    by_const = {option.const: option for option in options}
    return tuple(
        Option(const, option.title, const, _known(option.description)) for const, option in by_const.items()
    )


def _known(value: Any | UnsetType | None) -> Any:
    return None if value is UNSET else value


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value
