"""The last part of a run's log, in memory: so much that a follower who keeps up never reads the store.

It consists of batches, each of which is written to the store in one go. Text is gathered on its way there,
but never across the end of a batch: there a follower can change from memory to the store and back. A follower
holds on to the batch that it reads, so forgetting one disturbs nobody, and a slow follower costs one batch.
"""

from __future__ import annotations

from bisect import bisect_right

from coupler.workflow.journal.happenings import Logged

MOST = 1024 * 1024
"""Bytes, roughly, that are kept after they were written."""

ENTRY_COST = 200
"""What an entry costs besides its texts, in bytes."""


class Batch:
    """Entries after `start`; more may come until it is sealed."""

    __slots__ = ("end", "entries", "is_sealed", "size", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.entries: list[Logged] = []
        self.size = 0
        self.is_sealed = False


class Recent:
    """The batches that are not yet forgotten, the oldest first; the last one is open."""

    def __init__(self, seq: int) -> None:
        self._batches = [Batch(seq)]
        self._size = 0

    @property
    def start(self) -> int:
        """The seq after which everything is here."""
        return self._batches[0].start

    def add(self, logged: Logged, size: int) -> None:
        batch = self._batches[-1]
        batch.entries.append(logged)
        batch.end = logged.seq
        batch.size += size + ENTRY_COST
        self._size += size + ENTRY_COST

    def seal(self) -> None:
        """What comes now is written another time."""
        batch = self._batches[-1]
        if batch.entries:
            batch.is_sealed = True
            self._batches.append(Batch(batch.end))

    def shrink(self) -> None:
        """All that is sealed was written: keep the latest of it."""
        count = 0
        while self._size > MOST and count < len(self._batches) - 1:
            self._size -= self._batches[count].size
            count += 1
        del self._batches[:count]

    def batch_after(self, seq: int) -> Batch:
        """The batch with the entry that follows this one, which must not be older than `start`."""
        return self._batches[bisect_right(self._batches, seq, key=lambda batch: batch.start) - 1]
