"""What the generated Structs are made of: two base classes, number ranges, and rules over several fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Uint16: TypeAlias = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Uint32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
# msgspec knows no limit above int64: a larger number fails there, and the lenient reader takes it.
Uint64: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
NonEmptyString: TypeAlias = Annotated[str, Meta(min_length=1)]


class Message(Struct, frozen=True, rename="camel"):
    """snake_case here, camelCase on the wire."""


class Extensible(Message, frozen=True, kw_only=True):
    """A Struct with `_meta`, the place where ACP lets anyone add what they like."""

    meta: Mapping[str, Any] | UnsetType | None = field(default=UNSET, name="_meta")


class Scoped:
    """Belongs to a session or to a request: one of both must be named."""

    __slots__ = ()
    session_id: str | UnsetType
    request_id: int | str | UnsetType | None

    def __post_init__(self) -> None:
        if self.session_id is UNSET and self.request_id is UNSET:
            raise ValueError("expected a sessionId or a requestId")


class UniformOptions:
    """Options are all single ones or all groups."""

    __slots__ = ()
    options: Sequence[object]

    def __post_init__(self) -> None:
        if len({type(option) for option in self.options}) > 1:
            raise ValueError("expected options or groups, got both")
