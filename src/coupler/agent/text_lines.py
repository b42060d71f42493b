"""Lines that tell a client a piece of a message: all but the text is the same in each, and encoded once."""

from __future__ import annotations

import os

from coupler.events import Text
from coupler.events.v1_codec import to_update
from coupler.schema.v1 import SessionNotification
from coupler.wire.messages import encode, encode_text, notification

_PLACE = os.urandom(16).hex()
"""Stands for the text while the rest is encoded; nobody can have written it anywhere."""


class TextLines:
    """Of one session."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._message_id: str | None = None
        self._head, self._tail = self._around(None)

    def line(self, text: str, message_id: str | None) -> bytes:
        """The line that tells this piece."""
        if message_id != self._message_id:
            self._message_id = message_id
            self._head, self._tail = self._around(message_id)
        return self._head + encode_text(text) + self._tail

    def _around(self, message_id: str | None) -> tuple[bytes, bytes]:
        update = to_update(Text(_PLACE, message_id), ())
        whole = notification("session/update", SessionNotification(self._session_id, update))
        head, _, tail = whole.partition(encode(_PLACE))
        return head, tail
