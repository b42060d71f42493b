"""An agent's own memory of a session, as bytes for the store: bytes as they are, everything else as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

_BYTES = b"b"
_JSON = b"j"


class StateError(TypeError):
    """The agent's state is something that cannot be saved."""


def pack(state: Any) -> bytes | None:
    """The state as it is saved; None stays nothing."""
    if state is None:
        return None
    if isinstance(state, bytes | bytearray | memoryview):
        return _BYTES + bytes(state)
    try:
        return _JSON + msgspec.json.encode(state)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"session.state is saved with the turn, so it must be bytes or what JSON can hold: {error}"
        raise StateError(message) from None


def unpack(packed: bytes | None) -> Any:
    """The state as the agent left it, as far as JSON remembers types."""
    if not packed:
        return None
    if packed[:1] == _BYTES:
        return packed[1:]
    return msgspec.json.decode(packed[1:])
