"""Reads what a user writes in the chat as the answer to a question of a graph.

Clients without forms have no fields to fill in, so plain words are read against what was asked for: a value
as it is spoken ("yes", "Large", "3"), lines of `name: value`, a choice and the words that belong to it
("change: say less"), or JSON. What does not fit is a `FormError` that says what was expected.

A question that asks for no type at all is answered with the words as they were written, as LangGraph does it.
Only a no is more than words: see `Refusal`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from coupler.fields.form_fields import (
    ChoiceField,
    ChoicesField,
    Field,
    FormError,
    NumberField,
    Option,
    SwitchField,
    TextField,
)
from coupler.fields.type_forms import SINGLE

if TYPE_CHECKING:
    from coupler.agent.elicitation import Form

DROP = "cancel"
"""The answer that drops a question."""

YES_WORDS = frozenset(
    {"yes", "y", "true", "ok", "okay", "yep", "yeah", "sure", "approve", "approved", "accept", "go ahead"}
)
NO_WORDS = frozenset(
    {"no", "n", "false", "nope", "nah", "reject", "rejected", "deny", "denied", "decline", "declined", "stop"}
)

_WORD_ENDS = " \t\r\n.!`'\"*"
"""Characters around a word that are no part of it."""

_REASON = re.compile(r"\s*[,;:.!\n\u2013\u2014]\s*|\s+-+\s+|\s+(?=because\b)", re.IGNORECASE)
"""Stands between a choice and the words about it."""

_REFUSAL = re.compile(
    r"(?:no|n|nope|nah|not\s+(?:yet|now)|never|do\s+not|don['\u2019]?t|stop|false|abort"
    r"|reject(?:ed)?|den(?:y|ied)|declined?|disapproved?)"
    r"(?:\s*$|\s*[,;:.!\n\u2013\u2014]|\s+-"
    r"|\s+(?:because|since|as|thanks|thank|please|way|it|this|that|i|we|you|yet)\b)"
    r"|(?:do\s+not|don['\u2019]?t|never)\b",
    re.IGNORECASE,
)

_YES_OR_NO = re.compile(r"\by\s*/\s*n\b|\byes\s*(?:/|or|,)\s*no\b", re.IGNORECASE)
_WORDS_WANTED = re.compile(
    r"(?:(?:and|so|but|then|now|please|for|from|to|at|in|on|of|by|with|until|since)\s+)*"
    r"(?:what|which|who|whom|whose|where|when|why|how|any|anything|anyone|anybody)\b",
    re.IGNORECASE,
)
_APPROVAL = re.compile(
    r"\b(?:approv\w*|confirm\w*|permi(?:t|ssion)\w*|allow|proceed|go\s+ahead|agree)\b", re.I
)


class Refusal(StrEnum):
    """A no in the user's own words: a text like any other, except that it is false.

    Some graphs compare what was typed (`== "yes"`), and others write `if interrupt("Send it?"):`, for which
    the text "no" would be a yes. It is an enumeration because checkpointers keep those as they are, while
    other kinds of text come back as plain text: and what was answered is read again from the checkpointer if
    the node asks something else.
    """

    NO = "no"

    @classmethod
    def _missing_(cls, value: object) -> Refusal | None:
        if not isinstance(value, str):
            return None
        made = str.__new__(cls, value)
        made._name_ = made._value_ = value
        return made

    def __bool__(self) -> bool:
        return False

    __repr__ = str.__repr__


def register_refusals() -> None:
    """Make `Refusal` known to LangGraph, which warns of other types or reads them as plain text."""
    with contextlib.suppress(ImportError, AttributeError, TypeError):  # a later version may have it elsewhere
        from langgraph.checkpoint.serde import _msgpack

        _msgpack.SAFE_MSGPACK_TYPES |= {(Refusal.__module__, Refusal.__name__)}


def as_spoken(text: str, question: str | None) -> str:
    """Return a text as the answer to a question that asks for no type: a no to a yes-or-no question is false.

    Without a question there is only a value to agree with, or not.
    """
    is_no = _REFUSAL.match(text) is not None and (question is None or asks_yes_or_no(question))
    return Refusal(text) if is_no else text


def asks_yes_or_no(question: str) -> bool:
    """Return whether a question can be meant to be answered with yes or no."""
    if _YES_OR_NO.search(question):
        return True
    asked = [each.strip() for each in re.split(r"(?<=[.!?:])\s+|\n+", question) if each.strip().endswith("?")]
    if asked:
        return _WORDS_WANTED.match(asked[-1]) is None
    return _APPROVAL.search(question) is not None


def drops_question(text: str, question: str, form: Form[Any]) -> bool:
    """Return whether the user drops the question; if it names the word itself, that is an answer."""
    return _bare(text) == DROP and can_be_dropped(question, form)


def can_be_dropped(question: str, form: Form[Any]) -> bool:
    """Return whether the word that drops a question means nothing else in it."""
    options = [_bare(option.title) for field in form.fields for option in getattr(field, "options", ())]
    return DROP not in options and re.search(rf"\b{DROP}\b", question, re.IGNORECASE) is None


def how_to_answer(question: str, form: Form[Any]) -> str:
    """Describe how the answer is written in the chat, as far as what is asked for does not say it."""
    told = []
    if len(form.fields) > 1:
        told.append("Write each as `name: value`, on a line of its own.")
        alone = _field_alone(form.fields)
        if isinstance(alone, ChoiceField):
            example, words = _bare(alone.options[0].title), _words_field(form.fields)
            told.append(
                f"`{example}` alone is an answer, too" + (f", and so is `{example}: …`." if words else ".")
            )
        elif isinstance(alone, SwitchField):
            told.append("`yes` or `no` alone is an answer, too" + _with_reason(form.fields))
    if can_be_dropped(question, form):
        told.append(f"Write `{DROP}` to drop the question.")
    return " ".join(told)


def _with_reason(fields: Sequence[Field]) -> str:
    return ", and so is `no, because …`." if _words_field(fields) else "."


def read_answer(form: Form[Any], text: str) -> Any:
    """Convert what the user wrote to what the form asks for; raises `FormError`."""
    text = text.strip()
    if not text:
        raise FormError("the answer has no text")
    return form.parse(_written_values(form.fields, text))


def read_list(form: Form[Any], text: str) -> list[Any]:
    """Convert a list in the user's words, by lines or commas; `form` is that of one item."""
    parts = text.splitlines() if "\n" in text.strip() else text.split(",")
    items = [re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+", "", part).strip() for part in parts]
    return [read_answer(form, item) for item in items if item]


class ReviewAnswer(NamedTuple):
    """A decision about a tool call in the user's words: the reason or the result, or other arguments."""

    name: str
    text: str = ""
    args: dict[str, Any] | None = None


def read_review(text: str, allowed: Sequence[str], arguments: Form[dict[str, Any]] | None) -> ReviewAnswer:
    """Read a decision about a tool call; raises `FormError` for one that is not allowed."""
    text = text.strip()
    keyword, rest = _keyword(text)
    if keyword in ("approve", "reject", "respond") and keyword not in allowed:
        raise FormError(f"this call is not to be answered with `{keyword}`")
    if keyword == "approve" and not rest:
        return ReviewAnswer("approve")
    if keyword == "reject" or (keyword == "respond" and rest):
        return ReviewAnswer(keyword, rest)
    if "edit" in allowed and arguments is not None:
        written = rest if keyword == "edit" else text
        if keyword == "edit" or written.startswith("{") or _named_parts(arguments.fields, written)[1]:
            return ReviewAnswer("edit", args=_changed(arguments, written))
    if [*allowed] == ["respond"] and text:
        return ReviewAnswer("respond", text)
    raise FormError(f"expected {', '.join(allowed)}")


def _changed(arguments: Form[dict[str, Any]], text: str) -> dict[str, Any]:
    """Return the arguments of a call with those changed that the user has named."""
    if not text:
        raise FormError("name the arguments to change")
    as_they_are = {field.name: field.default for field in arguments.fields if field.default is not UNSET}
    return arguments.parse({**as_they_are, **_written_values(arguments.fields, text)})


def _keyword(text: str) -> tuple[str | None, str]:
    """Return the decision that a text begins with, and the rest of it."""
    if (found := re.match(r"(respond|edit)\b[\s:,]*", text, re.IGNORECASE)) is not None:
        return found[1].lower(), text[found.end() :].strip()
    head, _, rest = _halves(text)
    if _bare(head) in YES_WORDS:
        return "approve", rest
    return ("reject", rest) if _bare(head) in NO_WORDS else (None, text)


def _written_values(fields: Sequence[Field], text: str) -> dict[str, Any]:
    """Return the values of fields as a client with forms would send them."""
    if [field.name for field in fields] == [SINGLE] and isinstance(fields[0], TextField):
        return {SINGLE: text}
    try:
        given = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, Mapping):
        return {name: _as_sent(fields, name, value) for name, value in _known_names(fields, given).items()}
    bare, named = _named_parts(fields, text)
    values = {name: _value(_called(fields, name), part) for name, part in named.items()}
    if bare or not named:
        values |= {name: value for name, value in _bare_values(fields, bare).items() if name not in values}
    return values


def _known_names(fields: Sequence[Field], given: Mapping[Any, Any]) -> dict[str, Any]:
    by_label = {label: field.name for field in fields for label in _labels(field)}
    return {by_label.get(_label(str(name)), str(name)): value for name, value in given.items()}


def _as_sent(fields: Sequence[Field], name: str, value: Any) -> Any:
    field = next((each for each in fields if each.name == name), None)
    if field is None or not isinstance(value, str):
        return value
    return _value(field, value)


def _named_parts(fields: Sequence[Field], text: str) -> tuple[str, dict[str, str]]:
    """Take a text apart at the names of fields: what is before the first, and what is behind each."""
    names = {label: field.name for field in fields for label in _labels(field)}
    labels = "|".join(re.escape(label).replace(r"\ ", r"[ _-]+") for label in sorted(names, key=len)[::-1])
    mark = re.compile(
        rf"(?:^|[\n,;])[ \t]*(?:[-*•][ \t]+)?[*_`\"']*({labels})[*_`\"']*[ \t]*[:=][*]*", re.IGNORECASE
    )
    named: dict[str, str] = {}
    bare, last, end = text, None, 0
    for found in mark.finditer(text):
        name = names[_label(found[1])]
        if name in named:
            continue  # the word is part of what is said
        if last is None:
            bare = text[: found.start()]
        else:
            named[last] = text[end : found.start()].strip()
        named[name], last, end = "", name, found.end()
    if last is not None:
        named[last] = text[end:].strip()
    return bare.strip(), named


def _bare_values(fields: Sequence[Field], text: str) -> dict[str, Any]:
    """Return the values in words without names: of the field that matters, and what is said about it."""
    field = _field_alone(fields)
    if field is None:
        raise FormError(
            f"write each as `name: value`, on a line of its own: {', '.join(each.title for each in fields)}"
        )
    words = _words_field(fields)
    if words is not None and words is not field:
        head, _, rest = _halves(text)
        if rest and _fits(field, head) and not _fits(field, text):
            return {field.name: _value(field, head), words.name: rest}
    return {field.name: _value(field, text)}


def _halves(text: str) -> tuple[str, str, str]:
    found = _REASON.search(text)
    return (text, "", "") if found is None else (text[: found.start()], found[0], text[found.end() :].strip())


def _fits(field: Field, text: str) -> bool:
    try:
        field.read(_value(field, text))
    except FormError:
        return False
    return True


def _field_alone(fields: Sequence[Field]) -> Field | None:
    """Return the field that words without a name are about: the only one required, or the only choice."""
    required = [field for field in fields if field.required]
    choices = [field for field in required or fields if isinstance(field, ChoiceField | SwitchField)]
    if len(fields) == 1 or len(required) == 1:
        return (required or fields)[0]
    return choices[0] if len(choices) == 1 and _words_field(fields) is not None else None


def _words_field(fields: Sequence[Field]) -> TextField | None:
    """Return the field for words beside a choice, if it is the only one of two."""
    texts = [field for field in fields if isinstance(field, TextField)]
    return texts[0] if len(texts) == 1 and len(fields) == 2 else None


def _value(field: Field, text: str) -> Any:
    """Return the words as a client with forms would send the value of this field."""
    match field:
        case SwitchField():
            word = _bare(text)
            if word not in YES_WORDS | NO_WORDS:
                raise FormError("expected yes or no", field.name)
            return word in YES_WORDS
        case NumberField():
            try:
                return msgspec.json.decode(_bare(text).replace("+", ""), type=int | float)
            except ValueError:
                raise FormError(f"expected {field.expected()}", field.name) from None
        case ChoiceField(options=options):
            found = _chosen(options, text)
            return text if found is None else found.const
        case ChoicesField(options=options):
            if _bare(text) in ("none", "nothing", "-", ""):
                return []
            parts = [each for each in re.split(r"[,;\n]|\band\b", text) if _bare(each)]
            picked = [_chosen(options, part) for part in parts]
            whole = _chosen(options, text)
            return [whole.const] if whole else [each.const if each else "" for each in picked]
    return text


def _chosen(options: Sequence[Option], text: str) -> Option | None:
    """Return the option that is named, or the only one that means yes or no if that is said."""
    word = _bare(text.lstrip("-•* "))
    for option in options:
        if word in (_bare(option.title), _bare(option.const)):
            return option
    for words in (YES_WORDS, NO_WORDS):
        alike = [option for option in options if _bare(option.const) in words]
        if word in words and len(alike) == 1:
            return alike[0]
    return None


def _called(fields: Sequence[Field], name: str) -> Field:
    return next(field for field in fields if field.name == name)


def _labels(field: Field) -> set[str]:
    return {_label(field.name), _label(field.title)} - {""}


def _label(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", name.strip().casefold()))


def _bare(text: str) -> str:
    """Return a word without case, and without the marks around it."""
    return " ".join(text.strip(_WORD_ENDS).casefold().split())
