"""Events on their way from the reader, which never waits, to a consumer, which may.

Unread events past a bound merge without loss: text of one message is joined, states of one tool call
overlay each other. What is still too much fails this consumer alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from coupler.client.errors import AgentError
from coupler.events import Event, Text, Thought, ToolCall

MERGE_ABOVE = 256
"""Unread events; a consumer that keeps up sees every one."""

MOST_UNREAD = 64 * 1024 * 1024
"""Bytes, as they came over the wire."""


class _Joined:
    """Text of one message whose pieces are joined when somebody reads it."""

    def __init__(self, first: Text | Thought) -> None:
        self.kind = type(first)
        self.message_id = first.message_id
        self.pieces = [first.text]

    def continues(self, event: Event) -> bool:
        return type(event) is self.kind and event.message_id == self.message_id

    def event(self) -> Text | Thought:
        return self.kind("".join(self.pieces), self.message_id)


_Item: TypeAlias = tuple[Event | _Joined, int]


class Lane:
    """A queue for one consumer, fed synchronously."""

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self._unread = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._arrival: asyncio.Future[None] | None = None

    def put(self, event: Event, size: int) -> bool:
        """Add an event that took `size` bytes on the wire; false if too much is unread."""
        if self._ended:
            return False
        self._unread += size
        if self._unread > MOST_UNREAD:
            message = f"more than {MOST_UNREAD} bytes of events were not read"
            self.end(AgentError("overflow", message))
            return False
        if len(self._items) < MERGE_ABOVE or not self._merge(event, size):
            self._items.append((event, size))
        self._wake()
        return True

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing more will come; a failure is raised after everything before it was read."""
        if not self._ended:
            self._ended = True
            self._failure = failure
            self._wake()

    async def next(self) -> Event | None:
        """The next event, or None after the last."""
        while not self._items:
            if self._ended:
                if self._failure is not None:
                    raise self._failure.with_traceback(None)
                return None
            if self._arrival is not None and not self._arrival.done():
                raise AgentError("busy", "another task reads these events: iterate a prompt in one task")
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self.take()

    def take(self) -> Event | None:
        """The next event if one is there, for who cannot wait."""
        if not self._items:
            return None
        item, size = self._items.popleft()
        self._unread -= size
        return item.event() if isinstance(item, _Joined) else item

    def _merge(self, event: Event, size: int) -> bool:
        last, last_size = self._items[-1]
        if isinstance(event, ToolCall):
            if not isinstance(last, ToolCall) or last.id != event.id:
                return False
            self._items[-1] = (event, last_size + size)
            return True
        if not isinstance(event, Text | Thought):
            return False
        if isinstance(last, Text | Thought):
            last = _Joined(last)
        if not isinstance(last, _Joined) or not last.continues(event):
            return False
        last.pieces.append(event.text)
        self._items[-1] = (last, last_size + size)
        return True

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
