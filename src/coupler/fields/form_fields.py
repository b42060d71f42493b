"""The kinds of fields that a form can have: describes them to clients, and checks answers.

Nothing that a client sends is believed: a value is what its field allows, or a `FormError` says what was
expected. The value itself is never repeated there, because people mistype secrets into the wrong field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from operator import ge, gt, le, lt
from typing import Any, Self
from urllib.parse import urlsplit

from msgspec import UNSET, Struct
from msgspec.structs import replace

from coupler.fields.bounded_regex import LONGEST_MATCHED, Pattern
from coupler.schema import v1

MOST_FIELDS = 100
"""Fields of one form, at most: nobody fills in more, and reading them must not take long."""

EXACT = 2**53
"""The largest integer up to which JSON numbers are exact in every implementation."""


class FormError(ValueError):
    """An answer does not fit the form; `field` is the name of the field that is wrong, if it is one."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field is not None else message)
        self.message = message
        self.field = field


class Option(Struct, frozen=True):
    """One of the values to choose from: `const` on the wire, `title` for people, `value` in Python."""

    const: str
    title: str
    value: Any
    description: str | None = None

    def as_option(self) -> v1.EnumOption:
        return v1.EnumOption(self.const, self.title, self.description or UNSET)


class Field(Struct, frozen=True, kw_only=True):
    """The base of all fields. `keyword` is the name in Python, `absent` what a field left out stands for."""

    name: str
    keyword: str
    title: str
    description: str | None = None
    required: bool = True
    default: Any = UNSET
    absent: Any = UNSET

    def as_property(self) -> v1.ElicitationPropertySchema:
        """The field as clients are told of it."""
        raise NotImplementedError

    def read(self, value: object) -> Any:
        """The value in Python; raises `FormError`."""
        raise NotImplementedError

    def write(self, value: Any) -> Any:
        """A value of Python as it is sent; it need not fit."""
        return value

    def expected(self) -> str:
        """A description of what may be answered."""
        raise NotImplementedError

    def with_default(self, value: Any) -> Self:
        """The same field, filled in beforehand."""
        written = self.write(value)
        try:
            self.read(written)
        except FormError as error:
            raise ValueError(f"the default of the field {self.name!r:.100} does not fit: {error}") from None
        return replace(self, default=written)

    def _wrong(self, message: str) -> FormError:
        return FormError(message, self.name)


class TextField(Field, frozen=True, kw_only=True):
    """A field of text, or of what is written as text, such as a date."""

    shortest: int | None = None
    longest: int | None = None
    pattern: Pattern | None = None
    format: str | None = None
    make: Callable[[str], Any] = str

    def as_property(self) -> v1.StringPropertySchema:
        return v1.StringPropertySchema(
            title=self.title,
            description=self.description or UNSET,
            min_length=_or_unset(self.shortest),
            max_length=_or_unset(self.longest),
            pattern=self.pattern.source if self.pattern else UNSET,
            format=self.format if self.format in FORMATS else UNSET,  # type: ignore[arg-type]
            default=self.default,
        )

    def read(self, value: object) -> Any:
        if type(value) is not str:
            raise self._wrong("expected text")
        if self.shortest is not None and len(value) < self.shortest:
            raise self._wrong(f"expected at least {self.shortest} characters")
        if self.longest is not None and len(value) > self.longest:
            raise self._wrong(f"expected at most {self.longest} characters")
        if self.pattern is not None:
            self._check_pattern(self.pattern, value)
        if self.format in FORMATS and not FORMATS[self.format].fits(value):
            raise self._wrong(f"expected {FORMATS[self.format].name}")
        return self.make(value)

    def write(self, value: Any) -> Any:
        return value.isoformat() if isinstance(value, date) else value

    def expected(self) -> str:
        return FORMATS[self.format].name if self.format in FORMATS else "text"

    def _check_pattern(self, pattern: Pattern, value: str) -> None:
        if len(value) > LONGEST_MATCHED:
            raise self._wrong(f"expected at most {LONGEST_MATCHED} characters")
        if not pattern.found_in(value):
            raise self._wrong(f"expected text that matches the pattern {pattern.source}")


class NumberField(Field, frozen=True, kw_only=True):
    """A field of a number, whole or any. `above` and `below` are limits that are themselves left out."""

    whole: bool
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None

    def as_property(self) -> v1.IntegerPropertySchema | v1.NumberPropertySchema:
        # Forms know no limits that are left out: clients get the nearest they know, the rest is checked here.
        kind: Any = v1.IntegerPropertySchema if self.whole else v1.NumberPropertySchema
        described: v1.IntegerPropertySchema | v1.NumberPropertySchema = kind(
            title=self.title,
            description=self.description or UNSET,
            minimum=_or_unset(self.minimum if self.minimum is not None else self.above),
            maximum=_or_unset(self.maximum if self.maximum is not None else self.below),
            default=self.default,
        )
        return described

    def read(self, value: object) -> int | float:
        number = self._whole_number(value) if self.whole else self._number(value)
        for limit, fits, word in (
            (self.minimum, ge, "at least"),
            (self.maximum, le, "at most"),
            (self.above, gt, "more than"),
            (self.below, lt, "less than"),
        ):
            if limit is not None and not fits(number, limit):
                raise self._wrong(f"expected {word} {limit}")
        return number

    def write(self, value: Any) -> Any:
        return float(value) if not self.whole and type(value) is int else value

    def expected(self) -> str:
        return "a whole number" if self.whole else "a number"

    def _whole_number(self, value: object) -> int:
        if type(value) is float and value.is_integer() and abs(value) <= EXACT:
            return int(value)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise self._wrong("expected a whole number")
        return value

    def _number(self, value: object) -> float:
        if type(value) is int and abs(value) < 2**64:
            return float(value)
        if type(value) is not float or not math.isfinite(value):
            raise self._wrong("expected a number")
        return value


class SwitchField(Field, frozen=True, kw_only=True):
    """A field of yes or no."""

    def as_property(self) -> v1.BooleanPropertySchema:
        return v1.BooleanPropertySchema(self.title, self.description or UNSET, self.default)

    def read(self, value: object) -> bool:
        if type(value) is not bool:
            raise self._wrong("expected true or false")
        return value

    def expected(self) -> str:
        return "yes or no"


class ChoiceField(Field, frozen=True, kw_only=True):
    """A field with one of several values."""

    options: tuple[Option, ...]

    def as_property(self) -> v1.StringPropertySchema:
        title, description, default = self.title, self.description or UNSET, self.default
        if are_titled(self.options):
            titled = tuple(option.as_option() for option in self.options)
            return v1.StringPropertySchema(title, description, default=default, one_of=titled)
        plain = tuple(option.const for option in self.options)
        return v1.StringPropertySchema(title, description, default=default, enum=plain)

    def read(self, value: object) -> Any:
        return self.option(value).value

    def write(self, value: Any) -> str | None:
        return const_of(value, self.options)

    def option(self, value: object) -> Option:
        """The option that has this value on the wire."""
        if type(value) is str:
            for option in self.options:
                if option.const == value:
                    return option
        raise self._wrong(f"expected {self.expected()}")

    def expected(self) -> str:
        return f"one of {listed(self.options)}"


class ChoicesField(Field, frozen=True, kw_only=True):
    """A field with any number of several values."""

    options: tuple[Option, ...]
    fewest: int | None = None
    most: int | None = None
    make: Callable[[Sequence[Any]], Any] = list

    def as_property(self) -> v1.MultiSelectPropertySchema:
        items: v1.MultiSelectItems = v1.StringMultiSelectItems(tuple(option.const for option in self.options))
        if are_titled(self.options):
            items = v1.TitledMultiSelectItems(tuple(option.as_option() for option in self.options))
        return v1.MultiSelectPropertySchema(
            items,
            self.title,
            self.description or UNSET,
            _or_unset(self.fewest),
            _or_unset(self.most),
            self.default,
        )

    def read(self, value: object) -> Any:
        if not isinstance(value, list | tuple):
            raise self._wrong(f"expected a list with {self.expected()}")
        if self.fewest is not None and len(value) < self.fewest:
            raise self._wrong(f"expected at least {self.fewest} of the choices")
        if self.most is not None and len(value) > self.most:
            raise self._wrong(f"expected at most {self.most} of the choices")
        if len(value) > len(self.options):
            raise self._wrong("expected each choice at most once")
        known = {option.const: option.value for option in self.options}
        if any(type(item) is not str or item not in known for item in value):
            raise self._wrong(f"expected a list with {self.expected()}")
        if len(set(value)) < len(value):
            raise self._wrong("expected each choice at most once")
        return self.make([known[item] for item in value])

    def write(self, value: Any) -> list[str | None] | None:
        if not isinstance(value, list | tuple | set | frozenset):
            return None
        written = [const_of(item, self.options) for item in value]
        # A set has no order of its own, and a form should look the same every time.
        return written if isinstance(value, list | tuple) else sorted(written, key=str)

    def expected(self) -> str:
        return f"any of {listed(self.options)}"


def const_of(value: Any, options: Sequence[Option]) -> str | None:
    """Find what stands for a value of Python on the wire; 1 and True are not the same."""
    for option in options:
        if option.value.__class__ is value.__class__ and option.value == value:
            return option.const
    return None


def distinct(options: Iterable[Option], name: str) -> tuple[Option, ...]:
    """Return the options if a client can tell them apart, else raise ValueError."""
    declared = tuple(options)
    if not declared:
        raise ValueError(f"the field {name!r:.100} has nothing to choose from")
    if len({option.const for option in declared}) < len(declared):
        raise ValueError(f"two choices of the field {name!r:.100} are written the same: rename one of them")
    return declared


def pattern_of(source: str | None, name: str) -> Pattern | None:
    """Compile the pattern of a field; one that cannot be matched in bounded time is refused."""
    try:
        return None if source is None else Pattern(source)
    except ValueError as error:
        raise ValueError(f"the field {name!r:.100}: {error}") from None


def are_titled(options: Sequence[Option]) -> bool:
    """Tell whether any option has a title or a description that differs from the value sent."""
    return any(option.title != option.const or option.description for option in options)


def listed(options: Sequence[Option]) -> str:
    """The options in a sentence, not all of them if they are many."""
    shown = ", ".join(option.title for option in options[:20])
    return shown if len(options) <= 20 else f"{shown} … ({len(options)} in all)"


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


class _Format(Struct, frozen=True):
    name: str
    fits: Callable[[str], bool]


def _is_email(text: str) -> bool:
    name, at, host = text.rpartition("@")
    return bool(name and at and host) and len(text) <= 320 and not re.search(r"[\s\x00-\x1f]", text)


def _is_uri(text: str) -> bool:
    if re.search(r"[\s\x00-\x1f]", text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) and bool(parts.netloc or parts.path)


def _is_date(text: str) -> bool:
    return re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None and _is_read_by(
        date.fromisoformat, text
    )


def _is_date_time(text: str) -> bool:
    return len(text) <= 40 and text[10:11] in ("T", "t") and _is_read_by(datetime.fromisoformat, text)


def _is_read_by(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


FORMATS: dict[str | None, _Format] = {
    "email": _Format("an email address", _is_email),
    "uri": _Format("an address such as https://example.com", _is_uri),
    "date": _Format("a date such as 2030-12-31", _is_date),
    "date-time": _Format("a date and time such as 2030-12-31T23:59:00Z", _is_date_time),
}
"""The formats that ACP knows; any other is not checked."""


LONGEST_URL = 2_048
"""Characters of a URL that every browser accepts."""

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def problem_of(url: str) -> str | None:
    """Find why an address cannot be given to a user to open; None if it can.

    It must hide nothing, and name its host plainly.
    """
    if len(url) > LONGEST_URL:
        return f"it has more than {LONGEST_URL} characters"
    if not url.isascii() or not url.isprintable() or any(character in url for character in ' \\"<>^`{|}'):
        return "it has characters that must be percent-encoded (or punycode, in the host)"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if not host:
        return "it names no host"
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOCAL_HOSTS):
        return "it must begin with https:// (http:// only for localhost)"
    if "@" in parts.netloc:
        return "it has a user name or password in it"
    return "its host is not written plainly" if "%" in parts.netloc else None
