"""Finds, lists, copies, replays and deletes the stored sessions of one agent.

A session is open in one place at a time: the store sees to it between processes, the archive between the
connections of this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import UNSET

from coupler.agent.content import pieces
from coupler.agent.errors import SESSION_HELD, store_failed, unknown_session
from coupler.agent.history import EventJournal, HistoryReplay, ReplayedEvent, journal_turn
from coupler.agent.session import configuration_of, pack_state, unpack_state
from coupler.agent.turn import COMPACTION, NOTICES, compaction_text, notice_text
from coupler.events import Compaction, Content, Info, Notice, Options, Text, Thought, ToolUpdate, Usage
from coupler.events import Mode as ModeChange
from coupler.events.records import HIDDEN, STOP, TOOL, UserMessage, hidden_turns
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import ListSessionsResponse, SessionInfo
from coupler.store.database import now
from coupler.store.errors import StoreError
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.factory import ExternalSession
    from coupler.agent.session import Session, SessionParams
    from coupler.permission.offers import ChoiceStore
    from coupler.store.journal import JournalEntry
    from coupler.store.sessions import SessionRecord
    from coupler.store.store import Store


log = logging.getLogger("coupler.agent")

TIDY_UP_AFTER = 2.0
"""Seconds after which the store is tidied up: nobody's first answer waits for it."""


class Archive:
    """The stored sessions of one agent. A session that was taken is locked until it is let go."""

    _taken: ClassVar[set[str]] = set()
    """Ids of the sessions that are open in this process, on any connection."""

    def __init__(self, store: Store, identity: str) -> None:
        self._store = store
        self._identity = identity
        self._mine: set[str] = set()

    @classmethod
    def open(cls, path: str | None, identity: str) -> Archive:
        """Open the archive of an agent in this file, by default the one that its user has set."""
        from coupler.store.retention import NO_RULES, RetentionRules
        from coupler.store.store import Store

        config = configuration_of(None, os.environ)
        rules = RetentionRules(config.store.keep_sessions, config.store.keep_runs)
        with _told_to_clients():
            store = Store.open(path or config.sessions.store, config.sessions.synchronous)
            # The rules are about the user's own file, not about one that an agent has for itself.
            store.tidy_up(rules if path is None else NO_RULES, after=TIDY_UP_AFTER)
            return cls(store, identity)

    def tell_if_replaced(self, tell: Callable[[str], None]) -> None:
        """Call this on the event loop when the store's file was deleted or replaced, with a sentence."""
        loop = asyncio.get_running_loop()

        def tell_in_loop(sentence: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(tell, sentence)

        self._store.tell_if_replaced(tell_in_loop)

    @property
    def choices(self) -> ChoiceStore:
        """The store that keeps the user's answers to permission requests."""
        return self._store

    async def add(self, session: Session) -> EventJournal:
        """Store a new session, which is open here."""
        from coupler.store.sessions import SessionRecord

        moment = now()
        record = SessionRecord(
            id=session.id,
            agent=self._identity,
            cwd=session.cwd,
            roots=session.place.additional_directories,
            title=session.title,
            created_at=moment,
            updated_at=moment,
            turns=0,
            settings=msgspec.json.encode(session.settings.saved()).decode(),
        )
        self._take(session.id)
        try:
            await self._store.create(record)
        except StoreError as error:
            # It is not stored: to delete it would mean to wait for the same lock once more.
            self._let_go(session.id)
            raise store_failed(error) from None
        except asyncio.CancelledError:
            await self.forget(session.id)  # the store's thread may be at it
            raise
        with _told_to_clients():
            journal = await self._store.journal(session.id)
        return EventJournal(journal, partial(self.entries, session.id), partial(self.find, session.id))

    async def find(self, id: str) -> SessionRecord:
        """Return the record of a session; raises the error for an unknown one if it is another agent's."""
        with _told_to_clients():
            record = await self._store.find(id)
        if record is None or record.agent != self._identity:
            raise unknown_session(id)
        return record

    async def state(self, id: str) -> Any:
        """Return the state that the agent has saved of a session; None if there is none."""
        with _told_to_clients():
            record = await self._store.find(id)
        return unpack_state(record.state) if record is not None and record.agent == self._identity else None

    async def take(self, record: SessionRecord, place: SessionParams) -> EventJournal:
        """Lock a session for this connection, with the directories that the client names now."""
        self._refuse_if_open_elsewhere(record.id)
        self._take(record.id)
        with _told_to_clients():
            if not await self._store.hold(record.id):
                raise unknown_session(record.id)
            journal = await self._store.journal(record.id)
        event_journal = EventJournal(
            journal, partial(self.entries, record.id), partial(self.find, record.id), state=record.state
        )
        if place.additional_directories != record.roots:
            event_journal.keep_roots(place.additional_directories)
            await event_journal.until_stored()
        return event_journal

    async def call_ids(self, id: str) -> set[str]:
        """The ids of all tool calls that the session ever had."""
        with _told_to_clients():
            return await self._store.keys(id, TOOL)

    async def hidden_turns(self, id: str) -> frozenset[int]:
        """The turns of a session that its user has taken back."""
        with _told_to_clients():
            return hidden_turns(await self._store.keys(id, HIDDEN))

    async def entries(self, id: str, after: int) -> list[JournalEntry]:
        """The next entries of a session, at least one if there are any."""
        with _told_to_clients():
            return await self._store.entries(id, after=after)

    async def copy(self, id: str, new_id: str, place: SessionParams) -> None:
        """Make a new session that goes on from the last whole turn of another."""
        record = await self.find(id)
        moment = now()
        new = msgspec.structs.replace(
            record,
            id=new_id,
            cwd=place.cwd,
            roots=place.additional_directories,
            created_at=moment,
            updated_at=moment,
        )
        with _told_to_clients():
            await self._store.copy(id, new, until=STOP)

    async def page(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """Return a page of the agent's sessions, the latest first."""
        with _told_to_clients():
            page = await self._store.page(self._identity, cwd=cwd, cursor=cursor)
        listed = tuple(_listed(record) for record in page.records)
        return ListSessionsResponse(listed, page.next_cursor or msgspec.UNSET)

    async def ids(self) -> set[str]:
        """The ids of all the agent's sessions that are listed."""
        known: set[str] = set()
        cursor: str | None = None
        while True:
            with _told_to_clients():
                page = await self._store.page(self._identity, cursor=cursor)
            known |= {record.id for record in page.records}
            cursor = page.next_cursor
            if cursor is None:
                return known

    async def import_external(self, external: ExternalSession) -> None:
        """Store a session that a framework kept by itself; one that is stored already is left as it is."""
        from coupler.store.sessions import SessionRecord

        with _told_to_clients():
            if await self._store.find(external.id) is not None:
                return
            made = SessionRecord(
                id=external.id,
                agent=self._identity,
                cwd=external.cwd,
                title=external.title,
                created_at=external.updated_at,
                updated_at=external.updated_at,
                turns=len(external.turns),
                state=pack_state(external.state),
            )
            await self._store.create(made)
            try:
                journal = await self._store.journal(external.id)
                for turn in external.turns:
                    journal_turn(journal, turn)
                journal.set(turns=made.turns, updated_at=made.updated_at, state=made.state)
            finally:
                await self._store.release(external.id)

    async def delete(self, id: str) -> None:
        """Delete a session; nothing happens if there is none."""
        self._refuse_if_open_elsewhere(id)
        with _told_to_clients():
            await self._store.delete(id, agent=self._identity)
        self._let_go(id)

    async def forget(self, id: str) -> None:
        """Delete a session that could not be opened completely; an error is logged."""
        try:
            await self.delete(id)
        except RpcError as error:
            log.error("a session that is half made could not be removed: %s", error)

    async def let_go(self, id: str) -> None:
        """Release a session that was taken here, so that others can take it."""
        if id not in self._mine:
            return
        try:
            with _told_to_clients():
                await self._store.release(id)
        finally:
            self._let_go(id)

    def close(self) -> None:
        """Write what is not written yet, and release every session that was taken."""
        for session_id in [*self._mine]:
            self._let_go(session_id)
        self._store.close()

    def _take(self, id: str) -> None:
        self._taken.add(id)
        self._mine.add(id)

    def _let_go(self, id: str) -> None:
        self._taken.discard(id)
        self._mine.discard(id)

    def _refuse_if_open_elsewhere(self, id: str) -> None:
        if id in self._taken and id not in self._mine:
            message = f"the session {id} is open on another connection of this process: close it there first"
            raise RpcError.because(SESSION_HELD, message, pid=os.getpid())


@contextlib.contextmanager
def _told_to_clients() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise store_failed(error) from None


def _listed(record: SessionRecord) -> SessionInfo:
    moment = datetime.fromtimestamp(record.updated_at / 1000, UTC)
    return SessionInfo(
        record.id,
        record.cwd,
        additional_directories=record.roots or msgspec.UNSET,
        title=record.title or msgspec.UNSET,
        updated_at=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )


async def replay(session: Session, archive: Archive) -> None:
    """Send a session's history to its client again, before its `session/load` is answered."""
    history = HistoryReplay(await archive.hidden_turns(session.id))
    last = 0
    while entries := await archive.entries(session.id, after=last):
        last = entries[-1].seq
        for entry in entries:
            for event in history.take(entry):
                await _show(session, event)
        # Much may be read before anything is sent, and others want to be served meanwhile.
        await asyncio.sleep(0)
    for event in history.rest():
        await _show(session, event)
    if history.plan is not None:
        session.outlet.show(history.plan)
    session.outlet.end_message()
    await _show_standing(session, archive)
    await session.outlet.wait_for_room()


async def _show(session: Session, event: ReplayedEvent) -> None:
    match event:
        case UserMessage(message_id, blocks):
            for block in blocks:
                session.outlet.show(Content(block, "user", message_id))  # type: ignore[arg-type]
        case Text(text, message_id) | Thought(text, message_id):
            for piece in pieces(text):
                session.outlet.show(type(event)(piece, message_id))
                await session.outlet.wait_for_room()
        case ToolUpdate():
            session.outlet.show_again(event)
        case Compaction() if not session.editor.offers(COMPACTION):
            session.outlet.show(Text(compaction_text(event), session.outlet.new_message_id()))
        case Compaction() | Content():
            session.outlet.show(event)
    await session.outlet.wait_for_room()


def warn(session: Session, sentence: str) -> None:
    """Show the client of a session a warning that belongs to no turn."""
    title, _, description = sentence.partition(". ")
    notice = Notice("warning", title, description or None)
    if session.editor.offers(NOTICES):
        session.outlet.show(notice)
    else:
        session.outlet.show(Text(notice_text(notice), session.outlet.new_message_id()))


async def _show_standing(session: Session, archive: Archive) -> None:
    """Send the session's current mode, options, title and usage."""
    if session.mode is not None:
        session.outlet.show(ModeChange(session.mode))
    options = session.settings.as_options()
    if options is not UNSET:
        session.outlet.show(Options(options))
    if session.title is not None:
        session.outlet.show(Info(session.title))
    usage = await kept_usage(session.id, archive)
    if usage is not None:
        session.outlet.show(usage)


async def kept_usage(id: str, archive: Archive) -> Usage | None:
    """Return the usage of a session when it was left, from which clients count a turn's cost."""
    record = await archive.find(id)
    if record.usage is None:
        return None
    try:
        return decode(Usage, record.usage.encode(), "client")
    except DecodingError:
        return None  # a newer version wrote it
