"""The runs of workflows as the engine and the commands use them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coupler.store.database import Database
from coupler.store.errors import StoreError
from coupler.store.holder import Holder
from coupler.store.run_table import RunChange, RunEntry, RunRecord, RunTable, read_run_entries

INLINE_LIMIT = 1024 * 1024
"""Bytes that are written on the event loop, in 2 to 10 ms."""


class Runs:
    """The runs of a store, for the event loop; `blocking` is the same for commands."""

    def __init__(self, database: Database, holder: Holder) -> None:
        self._database = database
        self._table = RunTable(holder)
        self.blocking = BlockingRuns(database, self._table)

    async def create(self, record: RunRecord) -> int | None:
        """Keep a new run, held by this process; its number, or None if the id is taken."""
        return await self._database.attempt(lambda connection: self._table.create(connection, record))

    async def find(self, id: str) -> RunRecord | None:
        """The run with this id."""
        return await self._database.attempt_to_read(lambda connection: self._table.find(connection, id))

    async def ids(self) -> list[str]:
        """The ids of all runs, the newest first."""
        return await self._database.attempt_to_read(self._table.ids)

    async def hold(self, id: str) -> tuple[int, int] | int | None:
        """Take a run for this process: its number, and the seq of its last entry.

        Just a number is the process that has it; that can be this one. None: there is no such run.
        """
        return await self._database.attempt(lambda connection: self._table.hold(connection, id))

    async def release(self, number: int) -> None:
        """Let others take a run that this process holds."""
        await self._database.attempt(lambda connection: self._table.release(connection, number))

    async def write(
        self, number: int, entries: Sequence[RunEntry], change: RunChange | None, size: int = 0
    ) -> None:
        """Make entries durable: now if they are small and the file is free, else on the store's thread."""
        if size < INLINE_LIMIT:
            await self._database.attempt(
                lambda connection: self._table.write(connection, number, entries, change)
            )
        else:
            future = self._database.submit(
                lambda connection: self._table.write(connection, number, entries, change)
            )
            await asyncio.wrap_future(future)

    def write_at_once(self, number: int, entries: Sequence[RunEntry], change: RunChange | None) -> bool:
        """The same if it can be done without waiting; False if the file is locked just now."""
        if self._database.has_waiting_work:
            return False
        try:
            self._database.transaction(
                lambda connection: self._table.write(connection, number, entries, change)
            )
        except StoreError as error:
            if error.kind != "locked":
                raise
            return False
        return True

    async def entries(
        self,
        id: str,
        after: int = 0,
        until: int | None = None,
        kinds: Sequence[str] = (),
        *,
        is_whole: bool = False,
    ) -> list[RunEntry]:
        """What happened in a run after an entry; some of it, unless the whole is wanted."""
        return await self._database.attempt_to_read(
            lambda connection: read_run_entries(connection, id, after, until, kinds, is_whole=is_whole)
        )


class BlockingRuns:
    """The runs for commands, which wait for what they ask."""

    def __init__(self, database: Database, table: RunTable) -> None:
        self._database = database
        self._table = table

    def find(self, id: str) -> RunRecord | None:
        """The run with this id."""
        return self._database.wait_to_read(lambda connection: self._table.find(connection, id))

    def find_all(self) -> list[RunRecord]:
        """The runs, the newest first, without what they were started with."""
        return self._database.wait_to_read(self._table.find_all)

    def ids(self) -> list[str]:
        """The ids of all runs, the newest first."""
        return self._database.wait_to_read(self._table.ids)

    def entries(self, id: str, after: int = 0, kinds: Sequence[str] = ()) -> list[RunEntry]:
        """Some of what happened in a run after an entry."""
        return self._database.wait_to_read(
            lambda connection: read_run_entries(connection, id, after, None, kinds)
        )

    def end_unheld(self, id: str, kind: str, body: bytes, change: RunChange) -> bool:
        """End a run that no living process has, with a last entry; False if one has, or if it is over."""
        return self._database.wait(
            lambda connection: self._table.end_unheld(connection, id, kind, body, change)
        )
