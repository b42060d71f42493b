"""The kinds of values in `coupler.toml`, and the declaration of its keys.

A `ValueKind` checks a value and joins those of two origins; a `ConfigKey` has a name, a kind, a default and
who may set it; a `ConfigSchema` is all keys together. The keys themselves are in `keys`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import date, time
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from coupler.config.files import ListItem, Origin
from coupler.fields.words import suggestion

T = TypeVar("T")

_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f]")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_MODEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*:\S.*")
_AGENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([kmgt]b)", re.ASCII)
_BYTES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

_TYPE_WORDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (dict, "a table"),
    (list, "a list"),
    (str, "a text"),
    (bool, "true or false"),
    ((int, float), "a number"),
    ((date, time), "a date or time"),
)

Setter = Literal["user", "trusted project", "project"]
"""Files that may set a key: the user's alone; a project's too, once the user trusts it; any project's."""


class TableKey(NamedTuple):
    """A key of the tables that somebody names, as `[mcp.NAME]`: its value in words, and what it does."""

    words: str
    sentence: str


class WrongValueError(ValueError):
    """A value is not of its kind; the message goes on after the key's name."""

    def __init__(self, message: str, *below: str | int) -> None:
        super().__init__(message)
        self.below = below
        """The path in the value: the names and numbers that lead to what is wrong."""


class ValueSource(msgspec.Struct, frozen=True):
    """The place where a value was read, and that of each item, if it is a list in a file."""

    origin: Origin
    items: Sequence[Origin] = ()
    home: str | None = None
    """The directory that `~` stands for."""

    def of_item(self, index: int) -> Origin:
        """The origin of one item."""
        return self.items[index] if index < len(self.items) else self.origin


class ValueKind(Protocol[T]):
    """The check of a key's value, and the way in which values of two origins are joined."""

    @property
    def words(self) -> str:
        """The kind in words, for people: "a list of rules"."""
        ...

    def read(self, value: object, source: ValueSource) -> T:
        """The value as the program uses it; raises WrongValueError."""
        ...

    def join(self, weaker: T, stronger: T) -> T:
        """Join the values of two origins."""
        ...


class ConfigKey(msgspec.Struct, Generic[T], frozen=True):
    """The declaration of one key, from which its checks and its documentation are made."""

    name: str
    """The name with its section: "permissions.deny"."""
    kind: ValueKind[Any]
    default: T
    setter: Setter
    sentence: str
    """A sentence for the manual about what it does."""
    default_words: str | None = None
    """The default for the manual, where the value itself says too little."""
    variable: str | None = None
    """An environment variable that sets it too."""


class ConfigSetting(NamedTuple):
    """A key with a value that somebody gave it."""

    key: ConfigKey[Any]
    value: Any
    origin: Origin


class ConfigSchema:
    """All keys, in the order of the manual."""

    def __init__(self, keys: Sequence[ConfigKey[Any]]) -> None:
        self.keys = (*keys,)
        self._keys = {key.name: key for key in keys}
        self._sections = {key.name[:end] for key in keys for end in _dots(key.name)}

    def find(self, name: str) -> ConfigKey[Any] | None:
        """The key with this full name."""
        return self._keys.get(name)

    def is_section(self, name: str) -> bool:
        """Tell whether there are keys below this name."""
        return name in self._sections

    def words_below(self, section: str) -> list[str]:
        """The names that may be written directly in a section; "" is the whole file."""
        start = f"{section}." if section else ""
        names = [key.name[len(start) :] for key in self.keys if key.name.startswith(start)]
        return [*dict.fromkeys(name.partition(".")[0] for name in names)]


def _dots(name: str) -> list[int]:
    return [place for place, char in enumerate(name) if char == "."]


class TextsKind(msgspec.Struct, frozen=True):
    """A list of texts; those of all origins are combined."""

    words: str

    def read(self, value: object, source: ValueSource) -> tuple[ListItem, ...]:
        if not isinstance(value, list):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        return tuple(ListItem(self._item(each, i), source.of_item(i)) for i, each in enumerate(value))

    def join(self, weaker: tuple[ListItem, ...], stronger: tuple[ListItem, ...]) -> tuple[ListItem, ...]:
        return weaker + stronger

    def _item(self, item: object, index: int) -> str:
        if not isinstance(item, str):
            raise WrongValueError(f"must be a text, not {type_words(item)}", index)
        if not item.strip():
            raise WrongValueError("must not be empty", index)
        if _CONTROL_CHARACTERS.search(item):
            raise WrongValueError("must be one line without control characters", index)
        return item


NO_VARIABLE_NAME = "must be a variable's name, made of letters, digits and _ (the name, never the value)"


class VariableNamesKind(TextsKind, frozen=True):
    """A list of names of environment variables. A wrong one is not repeated: it may be a secret's value."""

    def _item(self, item: object, index: int) -> str:
        name = super()._item(item, index)
        if not _VARIABLE.fullmatch(name):
            raise WrongValueError(NO_VARIABLE_NAME, index)
        return name


class VariableNameKind(msgspec.Struct, frozen=True):
    """The name of an environment variable. A wrong one is not repeated: it may be a secret's value."""

    words: str = "a variable name"

    def read(self, value: object, source: ValueSource) -> str:
        if not isinstance(value, str):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        if not _VARIABLE.fullmatch(value):
            raise WrongValueError(NO_VARIABLE_NAME)
        return value

    def join(self, weaker: str | None, stronger: str) -> str:
        return stronger


class ModelNamesKind(TextsKind, frozen=True):
    """A list of models, each with its provider."""

    def _item(self, item: object, index: int) -> str:
        name = super()._item(item, index)
        if problem := model_problem(name):
            raise WrongValueError(problem, index)
        return name


class AgentNamesKind(TextsKind, frozen=True):
    """A list of names of agents."""

    def _item(self, item: object, index: int) -> str:
        name = super()._item(item, index)
        if not _AGENT.fullmatch(name):
            raise WrongValueError("must be the name of an agent: that of a table [agents.NAME]", index)
        return name


class ModelNameKind(msgspec.Struct, frozen=True):
    """One model with its provider. A wrong one is not repeated: somebody may have put a key there."""

    words: str = 'a model as "provider:name"'

    def read(self, value: object, source: ValueSource) -> str:
        if not isinstance(value, str):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        if problem := model_problem(value):
            raise WrongValueError(problem)
        return value

    def join(self, weaker: str | None, stronger: str) -> str:
        return stronger


class AddressKind(msgspec.Struct, frozen=True):
    """The address of a server."""

    words: str = "an address"

    def read(self, value: object, source: ValueSource) -> str:
        if not isinstance(value, str):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        if problem := address_problem(value):
            raise WrongValueError(problem)
        return value

    def join(self, weaker: str | None, stronger: str) -> str:
        return stronger


class CountKind(msgspec.Struct, frozen=True):
    """A whole number between two others."""

    least: int
    most: int
    unit: str

    @property
    def words(self) -> str:
        return f"a number of {self.unit}"

    def read(self, value: object, source: ValueSource) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        if not self.least <= value <= self.most:
            raise WrongValueError(f"must be {self.words} from {self.least:,} to {self.most:,}")
        return value

    def join(self, weaker: int | None, stronger: int) -> int:
        return stronger


class NumberKind(msgspec.Struct, frozen=True):
    """A number between two others, whole or not."""

    least: float
    most: float

    @property
    def words(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def read(self, value: object, source: ValueSource) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        if not self.least <= value <= self.most:
            raise WrongValueError(f"must be {self.words}")
        return float(value)

    def join(self, weaker: float | None, stronger: float) -> float:
        return stronger


class SwitchKind(msgspec.Struct, frozen=True):
    """True or false."""

    @property
    def words(self) -> str:
        return "true or false"

    def read(self, value: object, source: ValueSource) -> bool:
        if not isinstance(value, bool):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        return value

    def join(self, weaker: bool, stronger: bool) -> bool:
        return stronger


class ChoiceKind(msgspec.Struct, frozen=True):
    """One of a few words."""

    options: tuple[str, ...]

    @property
    def words(self) -> str:
        return " or ".join(f'"{option}"' for option in self.options)

    def read(self, value: object, source: ValueSource) -> str:
        if not isinstance(value, str):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        if value not in self.options:
            raise WrongValueError(f"must be {self.words}; {suggestion(value, self.options, self.options)}")
        return value

    def join(self, weaker: str, stronger: str) -> str:
        return stronger


class KeepRule(msgspec.Struct, frozen=True):
    """A limit of age and size; what goes beyond is deleted, the oldest first."""

    age: int | None = None
    """Seconds since something last happened in it."""
    size: int | None = None
    """Bytes of all together."""
    words: str = ""
    """The rule as the user wrote it."""

    def __str__(self) -> str:
        return self.words


class KeepRuleKind(msgspec.Struct, frozen=True):
    """An age, a size, or a list of both."""

    words: str = 'an age such as "90d", a size such as "2GB", or a list of both'

    def read(self, value: object, source: ValueSource) -> KeepRule:
        parts = value if isinstance(value, list) else [value]
        if not parts:
            raise WrongValueError(f"must be {self.words}: it is empty")
        found: dict[str, int] = {}
        for index, part in enumerate(parts):
            below = (index,) if isinstance(value, list) else ()
            if not isinstance(part, str):
                raise WrongValueError(f"must be {self.words}, not {type_words(part)}", *below)
            name, amount = self._limit(part, below)
            if name in found:
                raise WrongValueError(f"is a second {name}: one age and one size can be set", *below)
            found[name] = amount
        return KeepRule(**found, words=" and ".join(map(str, parts)))

    def join(self, weaker: KeepRule | None, stronger: KeepRule) -> KeepRule:
        return stronger

    def _limit(self, text: str, below: tuple[int, ...]) -> tuple[str, int]:
        for name, parse in (("age", parse_age), ("size", parse_size)):
            try:
                amount = parse(text)
            except ValueError:
                continue
            if amount == 0:
                raise WrongValueError("must be more than nothing: with 0 everything would be deleted", *below)
            return name, amount
        raise WrongValueError(f"must be {self.words}; an age ends with m, h, d or w", *below)


class PathKind(msgspec.Struct, frozen=True):
    """A file: absolute, below `~`, or relative to the file that names it."""

    words: str = "a path"

    def read(self, value: object, source: ValueSource) -> str:
        if not isinstance(value, str):
            raise WrongValueError(f"must be {self.words}, not {type_words(value)}")
        if not value.strip() or _CONTROL_CHARACTERS.search(value):
            raise WrongValueError("must be a path: it is empty, or has control characters")
        return os.path.normpath(self._absolute(value, source))

    def join(self, weaker: str | None, stronger: str) -> str:
        return stronger

    def _absolute(self, path: str, source: ValueSource) -> str:
        if path == "~" or path.startswith("~/"):
            if source.home is None:
                raise WrongValueError("begins with ~, but this user has no home directory: write it whole")
            return os.path.join(source.home, path[2:])
        if path.startswith("~"):
            raise WrongValueError("names another user's home: write the path whole")
        if os.path.isabs(path):
            return path
        if source.origin.directory is None:
            raise WrongValueError("must be an absolute path, or begin with ~/")
        return os.path.join(source.origin.directory, path)


def model_problem(text: str) -> str | None:
    """The problem with the name of a model and its provider, as the end of a sentence.

    None if it is right.
    """
    if _CONTROL_CHARACTERS.search(text):
        return "must be one line without control characters"
    if not _MODEL.fullmatch(text):
        return 'must name provider and model, as "anthropic:NAME", "openai:NAME" or "ollama:NAME"'
    return None


def address_problem(text: str) -> str | None:
    """The problem with the address of a server, as the end of a sentence; None if it is right."""
    # Imported on use: hardly any file has an address.
    from urllib.parse import urlsplit

    if _CONTROL_CHARACTERS.search(text) or " " in text:
        return "must be one line without spaces or control characters"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address: look at its host and port"
    if parts.scheme not in ("https", "http") or not host:
        return "must begin with https:// or http:// and name a host"
    if parts.username is not None or parts.password is not None:
        return "must hold no password: keys are variables, or stored by `coupler login coder`"
    if parts.query or parts.fragment:
        return "must end with its path: it has a `?` or `#`"
    return None


def parse_age(text: str) -> int:
    """Convert an age such as `30d` to seconds; raises ValueError for what is none."""
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no age: write it as 12h, 30d or 8w")
    return int(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    """Convert a size such as `2GB` to bytes; raises ValueError for what is none."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no size: write it as 500MB or 2GB")
    return round(float(match[1]) * _BYTES[match[2]])


def type_words(value: object) -> str:
    """The TOML type of a value in words."""
    return next((words for types, words in _TYPE_WORDS if isinstance(value, types)), "this")
