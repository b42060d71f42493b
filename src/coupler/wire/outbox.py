"""Queues what waits to be written: the control queue first, then every lane in turn.

A lane is a key that the layer above chooses (a session). Frames of one lane keep their order; a lane that has
much to say cannot delay the frame of another. Writers that can wait ask for room before they go on. What a
peer can ask for without an end is in a lane, too: in the control queue it would delay all sessions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Final

LaneKey = Hashable | None
"""The lane that a frame queues in; None is the control queue."""

ANSWERS: Final = object()
"""The lane of answers that belong to no session, and that no message of a session has to follow.

It is written also while lanes are held back.
"""

QUANTUM = 16 * 1024
"""Bytes a lane may write before the next one has its turn."""

CHUNK = 64 * 1024
"""Bytes handed to the transport at once."""

BUDGET = 256 * 1024
"""Unsent bytes of all lanes together before writers are asked to wait."""

LEAST_SHARE = 4 * 1024
"""Unsent bytes that any single lane may have, however many lanes there are."""


class Answer(bytes):
    """The frame of an answer: unlike other frames it was asked for, and the other side has to read it."""

    __slots__ = ()


class _Queue:
    """The frames that wait in one lane, and how many bytes they have."""

    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.size = 0


class Outbox:
    """Queues of encoded frames, taken out in fair order."""

    def __init__(self) -> None:
        self.unsent = 0
        self.answers = 0
        """Answers among what is unsent, in the control queue and in lanes."""
        self.answer_bytes = 0
        self._control: deque[bytes] = deque()
        self._lanes: dict[Hashable, _Queue] = {}
        self._rotation: deque[Hashable] = deque()
        self._waiting: dict[Hashable, list[asyncio.Future[None]]] = {}
        self._share = BUDGET
        """Unsent bytes that each lane may have; depends on the number of lanes."""

    def put(self, frame: bytes, lane: LaneKey = None) -> bool:
        """Queue a frame. Never blocks. Returns True if a writer of this lane may continue without waiting."""
        size = len(frame)
        self.unsent += size
        if type(frame) is Answer:
            self.answers += 1
            self.answer_bytes += size
        if lane is None:
            self._control.append(frame)
            return True
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._add(lane)
        queue.frames.append(frame)
        queue.size += size
        return queue.size < self._share

    @property
    def has_control(self) -> bool:
        """True if something waits that is not held back with the lanes."""
        return bool(self._control) or ANSWERS in self._lanes

    def take(self, *, only_control: bool = False) -> bytes:
        """The next bytes to write: about CHUNK of them, and always whole frames."""
        taken: list[bytes] = []
        size = 0
        while self._control and size < CHUNK:
            frame = self._control.popleft()
            taken.append(frame)
            size += len(frame)
            if type(frame) is Answer:
                self._count_sent(frame)
        if only_control:
            while ANSWERS in self._lanes and size < CHUNK:
                self._rotation.remove(ANSWERS)
                size += self._take_turn(ANSWERS, taken)
        while self._rotation and size < CHUNK and not only_control:
            size += self._take_turn(self._rotation.popleft(), taken)
        self.unsent -= size
        return b"".join(taken)

    def has_room(self, lane: LaneKey) -> bool:
        """Return whether a writer of this lane may continue without waiting."""
        queue = self._lanes.get(lane)
        return queue is None or queue.size < self._share

    async def wait_for_room(self, lane: LaneKey) -> None:
        """Wait until the lane's frames have gone out far enough."""
        while not self.has_room(lane):
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(lane, []).append(ready)
            await ready

    def clear(self) -> None:
        """Drop everything, because nobody will read it; release all writers."""
        self.unsent = self.answers = self.answer_bytes = 0
        self._control.clear()
        self._rotation.clear()
        for lane in [*self._lanes]:
            self._drop(lane)

    def _take_turn(self, lane: Hashable, taken: list[bytes]) -> int:
        queue = self._lanes[lane]
        size = 0
        while queue.frames and size < QUANTUM:
            frame = queue.frames.popleft()
            taken.append(frame)
            size += len(frame)
            if self.answers and type(frame) is Answer:
                self._count_sent(frame)
        if queue.frames:
            queue.size -= size
            self._rotation.append(lane)
            if self.has_room(lane):
                self._release(lane)
        else:
            self._drop(lane)
        return size

    def _count_sent(self, answer: Answer) -> None:
        self.answers -= 1
        self.answer_bytes -= len(answer)

    def _add(self, lane: Hashable) -> _Queue:
        queue = self._lanes[lane] = _Queue()
        self._rotation.append(lane)
        self._divide()
        return queue

    def _drop(self, lane: Hashable) -> None:
        del self._lanes[lane]
        self._divide()
        self._release(lane)

    def _divide(self) -> None:
        self._share = max(LEAST_SHARE, BUDGET // max(len(self._lanes), 1))

    def _release(self, lane: Hashable) -> None:
        for ready in self._waiting.pop(lane, ()):
            if not ready.done():
                ready.set_result(None)
