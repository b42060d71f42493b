"""The record of a session: all that an agent has reported, in order, without saying anything twice."""

from __future__ import annotations

from coupler.client.observation import Received
from coupler.events import Event, Text, Thought, ToolCall


class Record:
    """Text of one message is one entry; a tool call is one entry, as it stands now, where it began."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._entries: list[tuple[Event, bool]] = []
        self._pieces: list[str] = []
        self._calls: dict[str, int] = {}

    def add(self, event: Event, late: bool) -> None:
        """Take an event in; `late` says that its turn was over."""
        if isinstance(event, Text | Thought):
            self._add_text(event, late)
            return
        self._close_text()
        if isinstance(event, ToolCall) and event.id in self._calls:
            place = self._calls[event.id]
            self._entries[place] = (event, self._entries[place][1] or late)
            return
        if isinstance(event, ToolCall):
            self._calls[event.id] = len(self._entries)
        self._entries.append((event, late))

    def entries(self) -> tuple[Received, ...]:
        """All of it so far."""
        self._close_text()
        return tuple(Received(self._session_id, event, late) for event, late in self._entries)

    def _add_text(self, event: Text | Thought, late: bool) -> None:
        if self._pieces:
            last, was_late = self._entries[-1]
            if type(last) is type(event) and last.message_id == event.message_id and was_late == late:
                self._pieces.append(event.text)
                return
            self._close_text()
        self._entries.append((event, late))
        self._pieces = [event.text]

    def _close_text(self) -> None:
        if len(self._pieces) > 1:
            last, late = self._entries[-1]
            assert isinstance(last, Text | Thought)
            self._entries[-1] = (type(last)("".join(self._pieces), last.message_id), late)
        self._pieces = []
