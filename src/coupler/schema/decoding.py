"""JSON into typed messages: strictly if it can be done, else by ACP's rules of leniency.

Nearly every message passes the strict decoder, in about a microsecond. What does not is read again by
`coupler.schema.lenient`, which is imported only then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec import DecodeError, Raw
from msgspec.json import Decoder
from msgspec.json import decode as decode_plain

from coupler.schema.errors import DecodingError
from coupler.schema.variants import resolve

__all__ = ["DecodingError", "Role", "decode"]

Role: TypeAlias = Literal["agent", "client"]

T = TypeVar("T")

# A long integer, broken UTF-8 and deep nesting each fail in a way of their own.
_FAILURES = (DecodeError, UnicodeDecodeError, RecursionError)


class _Decoders(dict[Any, Callable[[bytes | Raw], Any]]):
    """The strict decoder of each type, made when it is first needed."""

    def __missing__(self, kind: Any) -> Callable[[bytes | Raw], Any]:
        decoder = self[kind] = Decoder(kind, dec_hook=resolve).decode
        return decoder


_decoders = _Decoders()


def decode(kind: type[T], raw: bytes | Raw, role: Role) -> T:
    """Read `raw` as `kind`, as the side `role` that received it; raises DecodingError.

    An agent is strict where the schema is. A client keeps what a newer agent may send: unknown strings of an
    enumeration stay as they are, unknown variants become `Unknown`.
    """
    try:
        return cast(T, _decoders[kind](raw))
    except _FAILURES:
        pass  # read again below, so that the error raised there has no second one in its context
    from coupler.schema.lenient import read

    return read(kind, _parse(raw), role)


def _parse(raw: bytes | Raw) -> Any:
    if not bytes(raw).strip():
        return None
    try:
        return decode_plain(raw)
    except _FAILURES as error:
        raise DecodingError("", f"cannot be read as JSON: {error}") from None
