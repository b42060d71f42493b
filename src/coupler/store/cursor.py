"""Cursors: where the next page of a list begins, sealed so that only this store's own are taken."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from typing import NamedTuple

import msgspec

from coupler.store.errors import CursorError

_POSITION = struct.Struct(">qq")
_SEAL_SIZE = 16


class Position(NamedTuple):
    """The last session of a page."""

    updated_at: int
    number: int


class Query(NamedTuple):
    """What a list was asked for; a cursor of one query is worth nothing for another."""

    agent: str | None
    cwd: str | None
    include_empty: bool


class Seal:
    """Makes and reads cursors with the key of one database."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def cursor(self, position: Position, query: Query) -> str:
        """A cursor for what follows this position."""
        packed = _POSITION.pack(*position)
        return _as_text(packed + self._seal(packed, query))

    def position(self, cursor: str, query: Query) -> Position:
        """What a cursor says; raises if it was not made here for this query."""
        try:
            content = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except ValueError:
            raise CursorError from None
        packed = content[: _POSITION.size]
        # Several texts can decode to the same bytes, and only one of them was given out.
        if len(packed) != _POSITION.size or _as_text(content) != cursor:
            raise CursorError
        if not hmac.compare_digest(content[_POSITION.size :], self._seal(packed, query)):
            raise CursorError
        return Position(*_POSITION.unpack(packed))

    def _seal(self, packed: bytes, query: Query) -> bytes:
        content = packed + msgspec.json.encode(query)
        return hashlib.blake2b(content, key=self._key, digest_size=_SEAL_SIZE).digest()


def _as_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
