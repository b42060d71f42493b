"""Asks the user something in the middle of a turn: a form, a choice, or a page to open in a browser.

A client is asked in a way that it offered. One without forms gets a choice as a permission dialog, which
every client has. A question that fits neither is said in the chat: a turn cannot wait for what the user
writes next, so the answer comes back as declined with the reason `ASKED_IN_CHAT`, and an agent that wants
to know should end its turn and read the next prompt.

To decline or to cancel is an answer, and so is everything that goes wrong at the client: `reason` says
what. Only the cancel of the turn is an exception, as everywhere.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar, overload
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

from msgspec import UNSET, Struct, UnsetType

from coupler.agent.content import whole_text
from coupler.agent.errors import EditorError
from coupler.agent.tool_call import Call, innermost_call
from coupler.fields.form_fields import (
    LONGEST_URL,
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
from coupler.fields.json_types import JsonTypeError, json_type_of
from coupler.fields.schema_forms import outline
from coupler.fields.type_forms import (
    SINGLE,
    WITH_FIELDS,
    fields_of_type,
    own_docstring,
    read_type,
    single_field,
)
from coupler.redaction.known_secrets import masked_beginning
from coupler.schema import v1
from coupler.schema.base import DecodingError
from coupler.schema.v1 import (
    AcceptElicitationResponse,
    CancelElicitationResponse,
    CancelledPermissionOutcome,
    CompleteElicitationNotification,
    CreateElicitationResponse,
    CreateFormElicitationRequest,
    CreateUrlElicitationRequest,
    DeclineElicitationResponse,
    PermissionOption,
    PermissionToolCall,
    RequestPermissionRequest,
    SelectedPermissionOutcome,
)
from coupler.wire.messages import CANCELLED, RpcError

if TYPE_CHECKING:
    from coupler.agent.editor import Editor
    from coupler.agent.turn import Turn

__all__ = ["Form", "FormError"]

T = TypeVar("T")

ElicitationAction: TypeAlias = Literal["accept", "decline", "cancel"]

ATTEMPTS = 3
"""Times that a form is shown, if its answers do not fit it."""

MOST_CHOICES = 8
"""Answers that a permission dialog can show without becoming a list to scroll."""

LONGEST_TITLE = 120
"""Characters of a question that are the title of a tool call; the rest is below it."""

LONGEST_REASON = 500
"""Characters of what a client says went wrong."""

ASKED_IN_CHAT = "the client cannot show forms; the question was asked in the chat"
LINK_IN_CHAT = "the client cannot open pages; the link was given in the chat"

DECLINE = PermissionOption("decline", "Decline to answer", "reject_once")

_open_pages: WeakKeyDictionary[Editor, set[str]] = WeakKeyDictionary()
"""The pages that were accepted and are not complete, for each connection: none may end another's."""

MOST_OPTIONS = 1_000
"""Choices of one field."""

LONGEST_PROBLEM = 500
"""Characters of what a type finds wrong with a value."""

YES, NO = "Yes", "No"

Build = Callable[[dict[str, Any]], Any]

SECRET_WORDS = frozenset(
    {
        *("password", "passwd", "pwd", "passphrase", "passcode", "secret", "token", "credential", "apikey"),
        *("otp", "cvv", "cvc", "pin", "ssn"),
    }
)
SECRET_WORD_PAIRS = frozenset(
    (
        "api key",
        "access key",
        "private key",
        "secret key",
        "signing key",
        "encryption key",
        "ssh key",
        "license key",
        "recovery code",
        "security code",
        "verification code",
        "backup code",
        "seed phrase",
        "recovery phrase",
        "card number",
    )
)
SECRET_WORD_PARTS = ("password", "passwd", "passphrase", "apikey", "authtoken", "accesstoken", "privatekey")
"""Words that name a secret even as a part of a longer word."""

COUNTED_WORDS = frozenset({"token", "credential", "secret"})
"""Words that a number counts: `max_tokens` is no secret."""

_WANTED = re.compile(r"\b(?:your|enter|type|paste|provide|supply|input)\b([^.!?\n]{0,60})", re.IGNORECASE)


class Answer(Struct, Generic[T], frozen=True):
    """The user's answer to a question. There is a `value` only if it was accepted.

    A page that was accepted is one the user agreed to open; the answer does not say what was done there.
    Pass `id` to `notify_complete` once the page has done its work.
    """

    action: ElicitationAction
    value: T | None = None
    reason: str | None = None
    """The reason why there is no answer, if it was not the user's wish alone."""
    id: str | None = None

    @property
    def accepted(self) -> bool:
        """True if the user answered."""
        return self.action == "accept"

    def __bool__(self) -> NoReturn:
        # `if await turn.ask("Delete it?", bool)` would mean yes whatever the user said.
        raise TypeError("an answer is neither true nor false: look at its `accepted` or its `value`")


@overload
async def ask(turn: Turn, message: str, spec: type[T], *, in_chat: str = "") -> Answer[T]: ...


@overload
async def ask(turn: Turn, message: str, spec: object, *, in_chat: str = "") -> Answer[Any]: ...


async def ask(turn: Turn, message: str, spec: object, *, in_chat: str = "") -> Answer[Any]:
    """Ask for what `spec` describes; see `Form.of` for what that can be.

    `in_chat` is added to a question in the chat, by those who read the next prompt as its answer.
    """
    form: Form[Any] = Form.of(spec)
    message = _checked_message(message)
    _refuse_secret(message, form)
    if turn.editor.offers("elicitation.form"):
        return await _ask_by_form(turn, message, form)
    options = _dialog_of(form)
    if options is not None:
        return await _ask_by_permission(turn, message, form, options)
    await turn.say_apart("\n\n".join(filter(None, (message, form.explain(), in_chat))))
    return Answer("decline", reason=ASKED_IN_CHAT)


def would_ask_in_chat(turn: Turn, spec: object) -> bool:
    """Return whether `ask` would put this question into the chat, because the client cannot show it."""
    return not turn.editor.offers("elicitation.form") and _dialog_of(Form.of(spec)) is None


async def ask_in_call(turn: Turn, call: Call, message: str, spec: object) -> Answer[Any] | None:
    """Ask as part of an open tool call, which shows the question and the answer itself.

    None if the client can show neither a form nor these choices; nothing is said in the chat.
    """
    form: Form[Any] = Form.of(spec)
    message = _checked_message(message)
    _refuse_secret(message, form)
    if turn.editor.offers("elicitation.form"):
        return await _ask_by_form(turn, message, form)
    options = _dialog_of(form)
    if options is None:
        return None
    picked = await _pick(turn, call, options)
    return _chosen(form, picked) if isinstance(picked, Option) else picked


async def ask_url(turn: Turn, message: str, url: str) -> Answer[None]:
    """Ask the user to open a page, the only way to ask for a secret: it goes from the user to the page."""
    message, url = _checked_message(message), _checked_url(url)
    if not turn.editor.offers("elicitation.url"):
        await turn.say_apart(f"{message}\n\n{url}")
        return Answer("decline", reason=LINK_IN_CHAT)
    page = f"elicitation_{os.urandom(16).hex()}"
    request = CreateUrlElicitationRequest(
        message, page, url, session_id=turn.session.id, tool_call_id=_call_id(turn)
    )
    try:
        response = await turn.call_editor(request)
    except RpcError as error:
        return _failed(error)
    if not isinstance(response, AcceptElicitationResponse):
        return _not_accepted(response)
    _open_pages.setdefault(turn.editor, set()).add(page)
    return Answer("accept", id=page)


def notify_complete(turn: Turn, id: str) -> bool:
    """Tell the client that what an accepted page was opened for is done; False if no such page is open.

    This may well be in a later turn: people take their time in a browser.
    """
    opened = _open_pages.get(turn.editor, set())
    if id not in opened:
        return False
    opened.discard(id)
    turn.editor.tell(CompleteElicitationNotification(id), turn.session.id)
    return True


def _dialog_of(form: Form[Any]) -> Sequence[Option] | None:
    """Return the options of a form that is one choice, if a permission dialog can show them all."""
    options = form.sole_choice
    return options if options is not None and len(options) <= MOST_CHOICES else None


async def _ask_by_form(turn: Turn, message: str, form: Form[T]) -> Answer[T]:
    problem = ""
    for _ in range(ATTEMPTS):
        asked = f"{message}\n\nThat did not fit. {problem}" if problem else message
        request = CreateFormElicitationRequest(
            asked, form.schema, session_id=turn.session.id, tool_call_id=_call_id(turn)
        )
        try:
            response = await turn.call_editor(request)
            if not isinstance(response, AcceptElicitationResponse):
                return _not_accepted(response)
            return Answer("accept", form.parse(response.content or {}))
        except FormError as error:
            problem = str(error)
        except RpcError as error:
            if not _is_unreadable(error):
                return _failed(error)
            problem = "expected text, numbers, true or false, or lists of text"
    return Answer("decline", reason=f"the client's answers did not fit the form: {problem}")


async def _ask_by_permission(turn: Turn, message: str, form: Form[T], options: Sequence[Option]) -> Answer[T]:
    title = _title(message)
    async with turn.tool(title, kind="other") as call:
        if title != message:
            await call.output(message)
        picked = await _pick(turn, call, options)
        answer = _chosen(form, picked) if isinstance(picked, Option) else picked
        await call.output(picked.title if isinstance(picked, Option) and answer.accepted else _spoken(answer))
        return answer


async def _pick(turn: Turn, call: Call, options: Sequence[Option]) -> Option | Answer[Any]:
    """Let the user pick an option in a permission dialog; an `Answer` says why none was picked."""
    by_id = {f"choice_{number}": option for number, option in enumerate(options, 1)}
    offered = [PermissionOption(key, option.title, "allow_once") for key, option in by_id.items()]
    tool_call = PermissionToolCall(call.id, kind=call.kind, status="in_progress", title=call.title)
    request = RequestPermissionRequest(turn.session.id, tool_call, (*offered, DECLINE))
    try:
        response = await turn.call_editor(request)
    except RpcError as error:
        return _failed(error)
    match response.outcome:
        case SelectedPermissionOutcome(option_id) if option_id in by_id:
            return by_id[option_id]
        case SelectedPermissionOutcome(option_id) if option_id == DECLINE.option_id:
            return Answer("decline")
        case CancelledPermissionOutcome():
            return Answer("cancel")
    return Answer("decline", reason="the client chose something that it was not offered")


def _chosen(form: Form[T], option: Option) -> Answer[T]:
    try:
        return Answer("accept", form.choose(option))
    except FormError as error:
        return Answer("decline", reason=f"the choice was refused: {error}")


def _spoken(answer: Answer[Any]) -> str:
    word = "Cancelled" if answer.action == "cancel" else "Declined"
    return f"{word}: {answer.reason}" if answer.reason else word


def _not_accepted(response: CreateElicitationResponse) -> Answer[Any]:
    match response:
        case DeclineElicitationResponse():
            return Answer("decline")
        case CancelElicitationResponse():
            return Answer("cancel")
    return Answer("decline", reason="the client answered in a way that is not known here")


def _failed(error: RpcError) -> Answer[Any]:
    reason = masked_beginning(f"the client could not ask: {error.message}", LONGEST_REASON)
    return Answer("cancel" if error.code == CANCELLED.code else "decline", reason=reason)


def _is_unreadable(error: RpcError) -> bool:
    """Return whether the client answered with something that ACP does not know as an answer."""
    return isinstance(error, EditorError) and isinstance(error.__cause__, DecodingError)


def _call_id(turn: Turn) -> str | UnsetType:
    call = innermost_call(turn)
    return call.id if call is not None else UNSET


def _title(message: str) -> str:
    line = message.strip().splitlines()[0].strip()
    return line if len(line) <= LONGEST_TITLE else f"{masked_beginning(line, LONGEST_TITLE - 1).rstrip()}…"


def _checked_message(message: object) -> str:
    text = whole_text(message, "a question")
    if not text.strip():
        raise ValueError("a question needs a text: say what is asked")
    return text


def _refuse_secret(message: str, form: Form[Any]) -> None:
    """Raise if the message of a form with a single text field asks for a secret: it is the field's label."""
    if len(form.fields) == 1 and isinstance(form.fields[0], TextField) and asks_for_secret(message):
        raise ValueError(
            "the question looks as if it asks for a secret, and forms are no place for one: "
            "ask for secrets with turn.ask_url"
        )


def _checked_url(url: object) -> str:
    text = whole_text(url, "an address")
    problem = problem_of(text)
    if problem is None:
        parts = urlsplit(text)
        problem = _secret_in(parts.query) or _secret_in(parts.fragment)
    if problem is not None:
        raise ValueError(f"this address cannot be given to a user: {problem}")
    return text


def _secret_in(query: str) -> str | None:
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=LONGEST_URL):
        if value and ends_in_secret(name):
            return f"its parameter {name[:50]!r} looks like a secret: let the page ask for it"
    return None


class Form(Generic[T]):
    """A form made from a type or a JSON Schema: its fields, and the typed value of an answer.

        Form.of(Settings)                   a dataclass, a msgspec Struct, a TypedDict, a pydantic model
        Form.of(Literal["small", "large"])  one value: an Enum, bool, int, float, str, date, list of choices
        Form.of({"type": "object", …})      a flat JSON Schema

    Titles and descriptions come from `Annotated[int, msgspec.Meta(title=…, ge=1)]`, a dataclass field's
    `metadata`, pydantic's `Field`, or the schema; the description of the form is the class's docstring.
    """

    def __init__(
        self, fields: list[Field], build: Build, *, title: str | None = None, description: str | None = None
    ) -> None:
        if not fields:
            raise ValueError("the form has no field: there is nothing to ask")
        if len(fields) > MOST_FIELDS:
            raise ValueError(f"the form has more than {MOST_FIELDS} fields: ask for less at once")
        for field in fields:
            _refuse_too_many_options(field)
            _refuse_secret_field(field)
        self.fields = tuple(fields)
        self.title = title
        self.description = description
        self._build = build

    @overload
    @staticmethod
    def of(spec: type[T]) -> Form[T]: ...
    @overload
    @staticmethod
    def of(spec: object) -> Form[Any]: ...
    @staticmethod
    def of(spec: Any) -> Form[Any]:
        """Make the form for a type or a JSON Schema; ValueError says which field it cannot have, and why."""
        if isinstance(spec, Form):
            return spec
        if isinstance(spec, Mapping):
            return _of_schema(spec)
        if isinstance(spec, type) and hasattr(spec, "model_json_schema") and hasattr(spec, "model_validate"):
            return _of_model(spec)
        return _of_type(spec)

    @property
    def schema(self) -> v1.ElicitationSchema:
        """The form as clients are told of it."""
        return v1.ElicitationSchema(
            title=self.title or UNSET,
            properties={field.name: field.as_property() for field in self.fields},
            required=tuple(field.name for field in self.fields if field.required) or UNSET,
            description=self.description or UNSET,
        )

    @property
    def sole_choice(self) -> tuple[Option, ...] | None:
        """The answers, if the form is one choice or a yes or no, which can be asked without a form."""
        if len(self.fields) != 1:
            return None
        match self.fields[0]:
            case ChoiceField() as field:
                return field.options
            case SwitchField():
                return (Option("yes", YES, True), Option("no", NO, False))
        return None

    def parse(self, content: object) -> T:
        """Convert the client's content to the type that was asked for; raises `FormError`.

        What the form did not ask for is left out.
        """
        if not isinstance(content, Mapping):
            raise FormError("expected the values of the form's fields")
        return self._made(
            {field.keyword: value for field in self.fields if (value := _read(field, content)) is not UNSET}
        )

    def choose(self, option: Option) -> T:
        """Convert one of `sole_choice` to the type that was asked for."""
        return self._made({self.fields[0].keyword: option.value})

    def explain(self) -> str:
        """Describe the fields in words, for clients that show text only."""
        if [field.name for field in self.fields] == [SINGLE]:
            return f"Please answer with {self.fields[0].expected()}."
        lines = [
            f"- {field.title}: {field.expected()}"
            + ("" if field.required else " (optional)")
            + (f". {field.description}" if field.description else "")
            for field in self.fields
        ]
        return "Please answer with:\n\n" + "\n".join(lines)

    def _made(self, values: dict[str, Any]) -> T:
        try:
            made: T = self._build(values)
        except FormError:
            raise
        except (ValueError, TypeError) as error:
            # What the type itself checks, for example in `__post_init__`.
            raise FormError(_shortened(error) or type(error).__name__) from None
        return made


def _read(field: Field, content: Mapping[Any, Any]) -> Any:
    if field.name in content:
        return field.read(content[field.name])
    if field.required:
        raise FormError("is missing", field.name)
    return field.absent


def _of_type(spec: object) -> Form[Any]:
    read = read_type(spec)
    if not isinstance(read, WITH_FIELDS):
        return Form([single_field(read, spec)], _single_value)
    return Form(fields_of_type(read), lambda values: read.cls(**values), description=own_docstring(read.cls))


def _of_schema(schema: Mapping[str, Any]) -> Form[Any]:
    found = outline(schema)
    build: Build = _single_value if found.is_single else dict
    return Form(found.fields, build, title=found.title, description=found.description)


def _of_model(model: Any) -> Form[Any]:
    known = json_type_of(model)
    found = outline(known.schema)
    if found.is_single:
        raise ValueError(
            f"the model {model.__name__} has no fields of its own: give the type that it is made of"
        )

    def build(values: dict[str, Any]) -> Any:
        try:
            return known.read(values)
        except JsonTypeError as error:
            raise FormError(
                _shortened(error.problem), error.path.removeprefix("$.").strip("$") or None
            ) from None

    return Form(found.fields, build, title=found.title, description=found.description)


def _single_value(values: dict[str, Any]) -> Any:
    return values.get(SINGLE)


def _shortened(problem: object) -> str:
    return masked_beginning(str(problem), LONGEST_PROBLEM)


def _refuse_too_many_options(field: Field) -> None:
    if isinstance(field, ChoiceField | ChoicesField) and len(field.options) > MOST_OPTIONS:
        raise ValueError(f"the field {field.name!r:.100} has more than {MOST_OPTIONS} choices: offer less")


def asks_secret_field(field: Field) -> bool:
    """Return whether a field asks for a secret. Only what is typed can be one: a choice gives none away."""
    labels = (field.name, field.keyword, field.title)
    match field:
        case TextField():
            is_named = field.format == "password" or any(map(names_secret, labels))
        case NumberField():
            is_named = any(map(names_secret_number, labels))
        case _:
            return False
    return is_named or asks_for_secret(field.description or "")


def _refuse_secret_field(field: Field) -> None:
    if asks_secret_field(field):
        raise ValueError(
            f"the field {field.name!r:.100} looks like a secret, and forms are no place for one: "
            "ask for secrets with turn.ask_url"
        )


def names_secret(name: str) -> bool:
    """Return whether a name, such as `apiKey` or `db_password`, is that of a secret.

    Forms are no place for secrets: what a user types into one passes clients, models and logs.
    """
    words = _words(name)
    return (
        any(word in SECRET_WORDS for word in words)
        or any(f"{first} {second}" in SECRET_WORD_PAIRS for first, second in pairwise(words))
        or any(part in "".join(words) for part in SECRET_WORD_PARTS)
    )


def names_secret_number(name: str) -> bool:
    """Return the same for a number, which is more often a count of tokens than one of them."""
    return names_secret(" ".join(word for word in _words(name) if word not in COUNTED_WORDS))


def ends_in_secret(name: str) -> bool:
    """Return whether the last words of a name are a secret's: `access_token` is one, `token_type` is not."""
    words = _words(name)
    return bool(words) and (names_secret(words[-1]) or " ".join(words[-2:]) in SECRET_WORD_PAIRS)


def asks_for_secret(text: str) -> bool:
    """Return whether a sentence asks the user for a secret: "Enter your API key"."""
    return any(names_secret(match[1]) for match in _WANTED.finditer(_plain(text)))


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", _plain(name))
    words = re.findall(r"[^\W_]+", apart.casefold())
    # Plurals are secrets as well.
    return [word[:-1] if word.endswith("s") and word[:-1] in SECRET_WORDS else word for word in words]


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)
