"""The base classes of the generated types, the rules of leniency, and the error of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Flag, auto
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Uint16: TypeAlias = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Uint32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
# msgspec knows no limit above int64: a larger number fails there, and the lenient reader takes it.
Uint64: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
NonEmptyString: TypeAlias = Annotated[str, Meta(min_length=1)]

_JSON_WORDS: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a decimal number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_SHOWN = 60

OWN_META, COMMANDS_META = "coupler", "commands"
"""Our key in a `_meta`, and the one below it in a prompt's: False if its text is data, and not typed."""


def without_commands(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the `_meta` of a prompt whose text is data: no slash command in it is to be carried out."""
    given = meta or {}
    own = given.get(OWN_META)
    return {**given, OWN_META: {**(own if isinstance(own, Mapping) else {}), COMMANDS_META: False}}


def has_commands(meta: Mapping[str, Any]) -> bool:
    """Tell whether a slash command in a prompt with this `_meta` is to be carried out, as editors expect."""
    own = meta.get(OWN_META)
    return not isinstance(own, Mapping) or own.get(COMMANDS_META) is not False


MAX_ITEMS = 10_000
"""Items of a list, and members of a map, in the typed part of a message."""


class Message(Struct, frozen=True, rename="camel"):
    """The base of all types: snake_case here, camelCase on the wire."""


class Extensible(Message, frozen=True, kw_only=True):
    """A Struct with `_meta`, the place where ACP lets anyone add what they like."""

    meta: Mapping[str, Any] | UnsetType | None = field(default=UNSET, name="_meta")


class Scoped:
    """Mixin of what belongs to a session or to a request: one of both must be named."""

    __slots__ = ()
    session_id: str | UnsetType
    request_id: int | str | UnsetType | None

    def __post_init__(self) -> None:
        if self.session_id is UNSET and self.request_id is UNSET:
            raise ValueError("expected a sessionId or a requestId")


class UniformOptions:
    """Mixin that checks that options are all single ones or all groups."""

    __slots__ = ()
    options: Sequence[object]

    def __post_init__(self) -> None:
        if len({type(option) for option in self.options}) > 1:
            raise ValueError("expected options or groups, got both")


class Leniency(Flag):
    """The ways to read a field whose value is wrong, named after the schema's `x-deserialize-…` markers."""

    STRICT = 0
    DEFAULT_ON_ERROR = auto()
    DEFAULT_ON_NULL = auto()
    SKIP_INVALID_ITEMS = auto()
    KEEP_UNKNOWN_STRING = auto()


STRICT = Leniency.STRICT
DEFAULT_ON_ERROR = Leniency.DEFAULT_ON_ERROR
DEFAULT_ON_NULL = Leniency.DEFAULT_ON_NULL
SKIP_INVALID_ITEMS = Leniency.SKIP_INVALID_ITEMS
KEEP_UNKNOWN_STRING = Leniency.KEEP_UNKNOWN_STRING


class Unknown(dict[str, Any]):
    """The JSON object of a variant that only a newer peer knows: a dict, so that it is sent on unchanged."""

    __slots__ = ("tag",)

    def __init__(self, tag: str, raw: Mapping[str, Any]) -> None:
        super().__init__(raw)
        self.tag = tag

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tag!r}, {super().__repr__()})"

    def __reduce__(self) -> tuple[type[Unknown], tuple[str, dict[str, Any]]]:
        return type(self), (self.tag, dict(self))


class DecodingError(ValueError):
    """A message does not have the shape its type asks for; `path` says where, spelled as on the wire."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    @classmethod
    def expected(cls, what: str, value: object, path: str = "") -> DecodingError:
        return cls(path, f"expected {what}, got {_JSON_WORDS.get(type(value), 'something else')}")

    @classmethod
    def not_among(cls, known: Iterable[object], value: str, path: str) -> DecodingError:
        choices = ", ".join(f'"{choice}"' for choice in known)
        shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
        return cls(path, f'expected one of {choices}, got "{shown}"')

    @classmethod
    def too_many(cls, count: int, path: str) -> DecodingError:
        return cls(path, f"expected at most {MAX_ITEMS} items, got {count}")

    @classmethod
    def missing(cls, path: str) -> DecodingError:
        return cls(path, "is required")

    def below(self, path: str) -> DecodingError:
        """Return the same error with its path extended by what encloses it."""
        return DecodingError(join_path(path, self.path), self.problem)


def join_path(path: str, name: str) -> str:
    if len(name) > _SHOWN:  # a key that a peer has chosen
        name = f"{name[:_SHOWN]}…"
    return f"{path}.{name}" if path and name else path or name
