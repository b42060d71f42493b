"""The store as agents and commands use it: sessions, their journals, choices and names."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from coupler.runtime.directories import NoHomeError, store_file
from coupler.store.carry_over import CarriedNumbers, OpenWork
from coupler.store.checkpoints import has_earlier, remove_earlier_orphans
from coupler.store.choices import ChoiceRecord, Trust, forget_choices, read_choices, remember_choices
from coupler.store.database import Database, Synchronous
from coupler.store.errors import StoreError, unusable
from coupler.store.journal import (
    JournalEntry,
    SessionJournal,
    read_end,
    read_entries,
    read_keys,
)
from coupler.store.journal_writer import JournalWriter
from coupler.store.leases import LeaseHolder, hold_name, release_name, when_ended
from coupler.store.retention import (
    NO_RULES,
    RetentionReport,
    RetentionRules,
    RetentionSweep,
    mark_told,
    untold_report,
)
from coupler.store.runs import Runs, RunTable, has_deleted_runs, purge_run_slice
from coupler.store.sessions import (
    CursorSigner,
    KeptSession,
    SessionPage,
    SessionQuery,
    SessionRecord,
    SessionTable,
    find_kept,
    forget_kept,
    has_deleted,
    keep_session,
    kept_sessions,
    purge_slice,
)

log = logging.getLogger("coupler.store")

PAGE_SIZE = 50
ENTRIES_AT_ONCE = 500


_databases: dict[tuple[int, int, str], list[Database]] = {}
"""The databases of open stores: of which process, of which thread, and where."""


def database_in_use(path: str, thread: int) -> Database | None:
    """Return the database that a store in a thread of this process has open at a path.

    Whoever has more to keep there uses the same one: two would take each other for another process when a
    file beside it is lost.
    """
    return next(reversed(_databases.get((os.getpid(), thread, os.path.realpath(path)), ())), None)


class Store:
    """One database of sessions, for the event loop; `blocking` is the same for commands."""

    def __init__(self, database: Database, holder: LeaseHolder) -> None:
        signer = CursorSigner(database.wait_to_read(_cursor_key))
        self.blocking = BlockingStore(database, SessionTable(signer, holder), holder)
        self.trust = Trust(database)
        self.runs = Runs(database, holder)
        self._database = database
        self._use = os.getpid(), threading.get_ident(), database.path
        _databases.setdefault(self._use, []).append(database)
        self._holder = holder
        self._sessions = SessionTable(signer, holder)
        self._writer = JournalWriter(database)
        # A journal lives as long as its session, or as something of it is unwritten.
        self._journals: WeakValueDictionary[str, SessionJournal] = WeakValueDictionary()
        self._open: dict[str, SessionRecord] = {}
        database.open_work.append(
            OpenWork(holder, self._sessions, lambda: [*self._open.values()], self._renumber)
        )

    @classmethod
    def open(cls, path: str | None = None, synchronous: Synchronous = "normal") -> Store:
        """Open or make the database, by default the user's; ":memory:" lasts as long as this object."""
        try:
            database = Database(store_file() if path is None else path, synchronous)
        except NoHomeError as error:
            raise StoreError("unusable", str(error)) from None
        try:
            holder = LeaseHolder.of(database.path)
        except OSError as error:
            database.close()
            raise unusable(f"{database.path}.holders", error.strerror or str(error)) from error
        try:
            store = cls(database, holder)
            if database.wait_to_read(_has_something_to_purge):
                store._purge()
        except BaseException:
            database.close()
            holder.release()
            raise
        return store

    @property
    def path(self) -> str:
        """The database's file."""
        return self._database.path

    def close(self, patience: float = 1.0) -> None:
        """Write what is left and release everything that this process holds."""
        if self._database in (shared := _databases.get(self._use, [])):
            shared.remove(self._database)
        deadline = time.monotonic() + patience
        if self._open:
            self._database.open_if_replaced(patience)
            self._open = {}
        self._writer.close(max(0.1, deadline - time.monotonic()))
        self._database.close(max(0.1, deadline - time.monotonic()))
        self._holder.release()

    def tidy_up(self, rules: RetentionRules = NO_RULES, *, after: float = 0.0) -> None:
        """Delete what the rules do not keep, and give free space back: beside everything else.

        It begins after so many seconds, so that nobody's first answer waits for it.
        """
        if has_earlier(self.path):
            # In a thread of its own: that file may be large, and nobody else needs it.
            timer = threading.Timer(after, self.blocking.remove_earlier_orphans)
            timer.daemon = True
            timer.start()
        if rules == NO_RULES:
            self._database.reclaim_left_space(after=after)
            return
        sweep = RetentionSweep(rules, self._sessions, RunTable(self._holder))
        self._database.reclaim_space(
            lambda connection: sweep.do_some(connection) or _purge_some(connection), after=after
        )

    def tell_if_replaced(self, tell: Callable[[str], None]) -> None:
        """Call this on another thread when the file was deleted or replaced, with a sentence about it."""
        self._database.on_replaced = tell

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Keep a new session, held by this process; dates that are 0 become now."""
        made = await self._database.attempt(lambda connection: self._sessions.create(connection, record))
        self._open[made.id] = msgspec.structs.replace(made, state=None)
        return made

    async def find(self, id: str) -> SessionRecord | None:
        """The session with this id, with its state, unless it was deleted."""
        return await self._database.attempt_to_read(lambda connection: self._sessions.find(connection, id))

    async def page(
        self,
        agent: str | None,
        *,
        cwd: str | None = None,
        cursor: str | None = None,
        limit: int = PAGE_SIZE,
        include_empty: bool = False,
    ) -> SessionPage:
        """The next sessions, the newest first, without their states."""
        query = SessionQuery(agent, cwd, include_empty)
        self._writer.write_dates()
        return await self._database.attempt_to_read(
            lambda connection: self._sessions.page(connection, query, cursor, limit)
        )

    async def hold(self, id: str) -> bool:
        """Take a session for this process; raises HeldError if another one that lives has it."""

        def take(connection: sqlite3.Connection) -> SessionRecord | None:
            is_taken = self._sessions.hold(connection, id)
            return self._sessions.find_bare(connection, id) if is_taken else None

        record = await when_ended(self._database, take)
        if record is not None:
            self._open[id] = record
        return record is not None

    async def release(self, id: str) -> None:
        """Release the session for others, after everything of it is written."""
        self._database.look_again()
        await self._flush_if_pending(id)
        await self._database.attempt(lambda connection: self._sessions.release(connection, id))
        self._open.pop(id, None)

    async def delete(self, id: str, agent: str | None = None) -> bool:
        """Delete a session, at once for all who look for it; its entries are removed by and by."""
        is_deleted = await self._database.attempt(
            lambda connection: self._sessions.delete(connection, id, agent)
        )
        if is_deleted:
            self._open.pop(id, None)
            journal = self._journals.pop(id, None)
            if journal is not None:
                self._writer.forget(journal)
        self._purge()
        return is_deleted

    async def copy(self, source_id: str, new: SessionRecord, *, until: str) -> SessionRecord | None:
        """Make a new session of another's entries up to the last of a kind; None if that is missing."""
        await self._flush_if_pending(source_id)
        # Never on the event loop: a session may have many megabytes.
        return await asyncio.wrap_future(
            self._database.submit(lambda connection: self._sessions.copy(connection, source_id, new, until))
        )

    async def journal(self, id: str) -> SessionJournal:
        """The journal of a session, which continues after its last entry; the same one while it is used."""
        end = await self._database.attempt_to_read(lambda connection: read_end(connection, id))
        self._writer.attach(asyncio.get_running_loop())
        journal = self._journals.get(id)
        if journal is not None:
            return journal
        if end is None:
            raise LookupError(f"there is no session {id!r}")
        journal = self._journals[id] = SessionJournal(*end, self._writer)
        return journal

    async def entries(self, id: str, after: int = 0, limit: int = ENTRIES_AT_ONCE) -> list[JournalEntry]:
        """Read the entries of a session after one of them, also those of just now."""
        await self._flush_if_pending(id)
        return await self._database.attempt_to_read(
            lambda connection: read_entries(connection, id, after, limit)
        )

    async def keys(self, id: str, kind: str) -> set[str]:
        """The keys of a session's entries of one kind."""
        return await self._database.attempt_to_read(lambda connection: read_keys(connection, id, kind))

    async def choices(self, project: str) -> tuple[ChoiceRecord, ...]:
        """The permission choices of a project, the oldest first."""
        return await self._database.attempt_to_read(lambda connection: read_choices(connection, project))

    async def remember_choices(self, *records: ChoiceRecord) -> None:
        """Keep permission choices, all or none."""
        await self._database.attempt(lambda connection: remember_choices(connection, records))

    async def keep_session(self, kept: KeptSession) -> None:
        """Keep a client's session under its name, in place of the one that had it."""
        await self._database.attempt(lambda connection: keep_session(connection, kept))

    async def find_kept(self, name: str, directory: str) -> KeptSession | None:
        """The session that a client has kept under a name in a directory."""
        return await self._database.attempt_to_read(lambda connection: find_kept(connection, name, directory))

    async def forget_kept(self, name: str, directory: str) -> bool:
        """Forget a name in a directory; False if there was none."""
        return await self._database.attempt(lambda connection: forget_kept(connection, name, directory))

    async def hold_name(self, name: str, directory: str) -> None:
        """Take a name in a directory for one user; raises HeldError if somebody that lives has it."""
        await when_ended(
            self._database, lambda connection: hold_name(connection, self._holder, name, directory)
        )

    async def release_name(self, name: str, directory: str) -> None:
        """Release the name for others."""
        await self._database.attempt(
            lambda connection: release_name(connection, self._holder, name, directory)
        )

    async def flush(self) -> None:
        """Make everything so far durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.flush(lambda error: _resolve(future, error))
        await future

    async def _flush_if_pending(self, id: str) -> None:
        journal = self._journals.get(id)
        if journal is not None and (journal.is_pending or self._writer.is_writing):
            await self.flush()

    def _renumber(self, numbers: CarriedNumbers) -> None:
        """Let open sessions and runs go on under the numbers that they have in another file."""
        for session_id, journal in [*self._journals.items()]:
            journal.number = numbers.sessions.get(session_id, journal.number)
        self.runs.renumber(numbers.runs)

    def _purge(self) -> None:
        """Remove what was deleted, slice by slice; an interrupted purge continues at a later start."""
        self._database.reclaim_space(_purge_some)


class BlockingStore:
    """The store for commands, which wait for what they ask."""

    def __init__(self, database: Database, sessions: SessionTable, holder: LeaseHolder) -> None:
        self._database = database
        self._sessions = sessions
        self._holder = holder

    def find(self, id: str) -> SessionRecord | None:
        """The session with this id, with its state, unless it was deleted."""
        return self._database.wait_to_read(lambda connection: self._sessions.find(connection, id))

    def page(
        self,
        agent: str | None = None,
        *,
        cwd: str | None = None,
        cursor: str | None = None,
        limit: int = PAGE_SIZE,
        include_empty: bool = False,
    ) -> SessionPage:
        """The next sessions, the newest first, without their states."""
        query = SessionQuery(agent, cwd, include_empty)
        return self._database.wait_to_read(
            lambda connection: self._sessions.page(connection, query, cursor, limit)
        )

    def entries(self, id: str, after: int = 0, limit: int = ENTRIES_AT_ONCE) -> list[JournalEntry]:
        """Read the entries of a session after one of them."""
        return self._database.wait_to_read(lambda connection: read_entries(connection, id, after, limit))

    def held_by(self, id: str) -> int | None:
        """The other process that has a session open, if one that lives has."""
        return self._database.wait_to_read(lambda connection: self._sessions.held_by(connection, id))

    def choices(self, project: str | None = None) -> tuple[ChoiceRecord, ...]:
        """The permission choices of a project, or of all, the oldest first."""
        return self._database.wait_to_read(lambda connection: read_choices(connection, project))

    def forget_choices(self, project: str, subject: str | None = None, pattern: str | None = None) -> int:
        """Withdraw one permission choice, those on one subject, or all of a project; tells how many."""
        return self._database.wait(lambda connection: forget_choices(connection, project, subject, pattern))

    def delete(self, id: str, agent: str | None = None) -> bool:
        """Delete a session, at once for all who look for it; `purge` removes its entries."""
        return self._database.wait(lambda connection: self._sessions.delete(connection, id, agent))

    def take_report(self) -> RetentionReport | None:
        """Return what the user's rules have deleted since somebody was told last, who is told now."""
        if self._database.wait_to_read(untold_report) is None:
            return None

        def take(connection: sqlite3.Connection) -> RetentionReport | None:
            report = untold_report(connection)
            mark_told(connection)
            return report

        return self._database.wait(take)

    def purge(self) -> int:
        """Remove what was deleted and make the file smaller; returns the bytes that stay free in it."""
        left = self._database.wait_to_reclaim_space(_purge_some, is_alone=self._holder.is_alone())
        self.remove_earlier_orphans()
        return left

    def remove_earlier_orphans(self) -> None:
        """Remove what the file of version 0.1 has of sessions that were deleted."""

        def kept(ids: Sequence[str]) -> set[str]:
            return self._database.submit_to_read(lambda connection: kept_sessions(connection, ids)).result()

        try:
            remove_earlier_orphans(self._database.path, kept)
        except (StoreError, RuntimeError) as error:  # that file is in trouble, or this store is closed
            log.debug("what deleted sessions have left in an earlier file is not yet removed: %s", error)


def _has_something_to_purge(connection: sqlite3.Connection) -> bool:
    return has_deleted(connection) or has_deleted_runs(connection)


def _purge_some(connection: sqlite3.Connection) -> bool:
    """Remove a slice of a deleted session or run; False if there is none."""
    return purge_slice(connection) or purge_run_slice(connection)


def _cursor_key(connection: sqlite3.Connection) -> bytes:
    return bytes(connection.execute("SELECT value FROM meta WHERE key = 'cursor key'").fetchone()[0])


def _resolve(future: asyncio.Future[None], error: StoreError | None) -> None:
    if future.done():
        return  # nobody waits any more
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
