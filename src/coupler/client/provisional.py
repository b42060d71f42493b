"""Updates that came before the answer which opens their session."""

from __future__ import annotations

import logging

from coupler.schema.v1 import SessionNotification

log = logging.getLogger("coupler.client")

MOST_UPDATES = 1000
MOST_BYTES = 4 * 1024 * 1024


class Provisional:
    """Keeps updates of sessions that nobody knows yet, all of them together within two limits."""

    def __init__(self) -> None:
        self._waiting: list[tuple[SessionNotification, int]] = []
        self._bytes = 0
        self._is_full = False

    def keep(self, notification: SessionNotification, size: int) -> None:
        """Keep an update that took `size` bytes on the wire, if there is room."""
        if len(self._waiting) >= MOST_UPDATES or self._bytes + size > MOST_BYTES:
            if not self._is_full:
                self._is_full = True
                log.warning("updates came before their session was opened, and too many: some are dropped")
            return
        self._waiting.append((notification, size))
        self._bytes += size

    def take(self, session_id: str) -> list[tuple[SessionNotification, int]]:
        """The updates of a session that is known now, in their order."""
        taken = [kept for kept in self._waiting if kept[0].session_id == session_id]
        self._waiting = [kept for kept in self._waiting if kept[0].session_id != session_id]
        self._bytes -= sum(size for _, size in taken)
        return taken

    def clear(self) -> None:
        """No session is being opened any more."""
        self._waiting.clear()
        self._bytes = 0
        self._is_full = False
