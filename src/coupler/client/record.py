"""The record of a session: all that an agent has reported, in order, without saying anything twice."""

from __future__ import annotations

from coupler.client.observation import Received
from coupler.events import Event, Text, Thought, ToolCall


class Record:
    """Text of one message is one entry; a tool call is one entry, as it stands now, where it began."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._entries: list[tuple[Event, bool]] = []
        self._calls: dict[str, int] = {}
        self._open: tuple[type[Event], str | None, bool] | None = None
        self._pieces: list[str] = []

    def add_text(self, event: Text | Thought, late: bool) -> None:
        """Take a piece of text in; `late` says that its turn was over."""
        key = (event.__class__, event.message_id, late)
        if key == self._open:
            self._pieces.append(event.text)
            return
        self.close_text()
        self._entries.append((event, late))
        self._open, self._pieces = key, [event.text]

    def add(self, event: Event, late: bool) -> None:
        """Take anything else in."""
        self.close_text()
        if isinstance(event, ToolCall) and event.id in self._calls:
            place = self._calls[event.id]
            self._entries[place] = (event, self._entries[place][1] or late)
            return
        if isinstance(event, ToolCall):
            self._calls[event.id] = len(self._entries)
        self._entries.append((event, late))

    def entries(self) -> tuple[Received, ...]:
        """All of it so far."""
        self._join_text()
        return tuple(Received(self._session_id, event, late) for event, late in self._entries)

    def close_text(self) -> None:
        """What comes next is another message, as at the beginning of a turn, whether it has an id or not."""
        self._join_text()
        self._open, self._pieces = None, []

    def _join_text(self) -> None:
        if len(self._pieces) > 1:
            last, late = self._entries[-1]
            assert isinstance(last, Text | Thought)
            self._pieces = ["".join(self._pieces)]
            self._entries[-1] = (type(last)(self._pieces[0], last.message_id), late)
