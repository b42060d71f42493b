"""The sessions of one connection: opened, found again, listed, left and deleted.

Each session is open in one place at a time. What the store keeps of it outlives the connection; without a
store there are only the sessions that are open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from coupler.agent.blueprint import Blueprint
from coupler.agent.chronicle import Chronicle
from coupler.agent.directories import check_same
from coupler.agent.editor import Editor
from coupler.agent.errors import agent_failed, session_busy, store_failed, unknown_session
from coupler.agent.hooks import call_hook
from coupler.agent.session import Place, Session
from coupler.events.record import TOOL
from coupler.schema.v1 import ListSessionsResponse, SessionInfo
from coupler.store.errors import HeldError, StoreError
from coupler.wire.errors import RpcError
from coupler.wire.peer import Peer

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord
    from coupler.store.store import Store

# The store and the replay are imported on use: an agent's first answer needs neither.
log = logging.getLogger("coupler.agent")

T = TypeVar("T")


class Sessions:
    """Those that are open here, and the way to all others that this agent ever had."""

    _taken: ClassVar[set[str]] = set()
    """The sessions that are open in this process, on any connection; the store knows other processes only."""

    def __init__(self, peer: Peer, blueprint: Callable[[], Awaitable[Blueprint]]) -> None:
        self._peer = peer
        self._blueprint = blueprint
        self._open: dict[str, Session] = {}
        self._store: Store | None = None

    def __iter__(self) -> Iterator[Session]:
        return iter([*self._open.values()])

    def find(self, id: str) -> Session | None:
        """The session if it is open here."""
        return self._open.get(id)

    async def new(self, place: Place, editor: Editor) -> Session:
        """Begin a session."""
        blueprint = await self._blueprint()
        store = self._opened_store(blueprint)
        session = Session(_new_id(), place, editor, self._peer)
        await self._give_agent(session, blueprint, None)
        if store is not None:
            await _stored(store.create(_record_of(session, blueprint)))
            session.keep_in(Chronicle(await _stored(store.journal(session.id))))
        self._open[session.id] = session
        self._taken.add(session.id)
        return session

    async def reopen(self, id: str, place: Place, editor: Editor, *, replaying: bool) -> Session:
        """Go on with a session, in the directories that are named now; replayed before this returns."""
        blueprint = await self._blueprint()
        store = self._opened_store(blueprint)
        session = self._open.get(id)
        if session is not None:
            if session.is_busy:
                raise session_busy(id)
            check_same(place.cwd, session.cwd)
            await session.move_to(place)
        elif store is None:
            raise unknown_session(id)
        else:
            session = await self._take_up(id, place, editor, store, blueprint)
        try:
            if replaying and store is not None:
                from coupler.agent.replay import replay

                await replay(session, store)
        except BaseException:
            if id not in self._open:
                await self._leave(session)
            raise
        self._open[id] = session
        return session

    async def fork(self, id: str, place: Place, editor: Editor) -> Session:
        """A new session with everything that the other one has answered so far."""
        blueprint = await self._blueprint()
        store = self._opened_store(blueprint)
        if store is None:
            raise unknown_session(id)
        source = self._open.get(id)
        if source is not None:
            await source.until_stored()
        record = await self._recorded(id, store, blueprint)
        new_id, now = _new_id(), _now()
        roots = place.additional_directories
        record = msgspec.structs.replace(
            record, id=new_id, cwd=place.cwd, roots=roots, created_at=now, updated_at=now
        )
        await _stored(store.copy(id, record))
        session = await self._take_up(new_id, place, editor, store, blueprint)
        self._open[new_id] = session
        return session

    async def list(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """A page of the sessions, the latest first."""
        blueprint = await self._blueprint()
        store = self._opened_store(blueprint)
        if store is None:
            return ListSessionsResponse(())
        page = await _stored(store.page(blueprint.identity, cwd=cwd, cursor=cursor))
        listed = tuple(_listed(record) for record in page.records)
        return ListSessionsResponse(listed, page.next_cursor or msgspec.UNSET)

    async def close(self, session: Session) -> None:
        """Cancel what runs and free the session; what is stored of it stays."""
        session.cancel()
        await session.until_idle()
        self._open.pop(session.id, None)
        await self._leave(session)

    async def delete(self, id: str) -> None:
        """Make the session disappear; nothing happens if there is none."""
        blueprint = await self._blueprint()
        store = self._opened_store(blueprint)
        session = self._open.get(id)
        if session is not None:
            await self.close(session)
        if store is not None:
            await _stored(store.delete(id, agent=blueprint.identity))

    async def leave_all(self) -> None:
        """The connection ends: leave what is open, in the state that it has reached."""
        sessions, self._open = [*self._open.values()], {}
        await asyncio.gather(*(self._leave(session) for session in sessions))

    def close_store(self) -> None:
        """Nothing more will be kept."""
        if self._store is not None:
            self._store.close()

    def _opened_store(self, blueprint: Blueprint) -> Store | None:
        if self._store is None and blueprint.store is not None:
            from coupler.store.store import Store

            try:
                self._store = Store.open(blueprint.store)
            except StoreError as error:
                raise store_failed(error) from None
        return self._store

    async def _take_up(
        self, id: str, place: Place, editor: Editor, store: Store, blueprint: Blueprint
    ) -> Session:
        record = await self._recorded(id, store, blueprint)
        check_same(place.cwd, record.cwd)
        if id in self._taken:
            raise store_failed(HeldError(id, os.getpid()))
        await _stored(store.hold(id))
        self._taken.add(id)
        try:
            session = Session(id, place, editor, self._peer)
            journal = await _stored(store.journal(id))
            session.keep_in(Chronicle(journal, turns=record.turns, state=record.state))
            session.know_calls(await _stored(store.keys(id, TOOL)))
            await self._give_agent(session, blueprint, record)
            if place.additional_directories != record.roots:
                await session.move_to(place)
        except BaseException:
            self._taken.discard(id)
            await _stored(store.release(id))
            raise
        return session

    async def _recorded(self, id: str, store: Store, blueprint: Blueprint) -> SessionRecord:
        record = await _stored(store.find(id))
        if record is None or record.agent != blueprint.identity:
            raise unknown_session(id)
        return record

    async def _give_agent(self, session: Session, blueprint: Blueprint, record: SessionRecord | None) -> None:
        try:
            session.give_to(await blueprint.agent_for(session))
            if record is not None:
                session.go_on_from(record)
            await call_hook(session.agent.opened, session)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            log.error("the agent could not be made", exc_info=error)
            raise agent_failed(error) from None

    async def _leave(self, session: Session) -> None:
        session.end()
        self._taken.discard(session.id)
        try:
            await call_hook(session.agent.closed, session)
        except Exception:
            log.exception("the agent's `closed` failed")
        if self._store is not None:
            try:
                await session.until_stored()
                await self._store.release(session.id)
            except (RpcError, StoreError) as error:
                log.error("the end of the session could not be stored: %s", error)


async def _stored(work: Awaitable[T]) -> T:
    try:
        return await work
    except StoreError as error:
        raise store_failed(error) from None


def _new_id() -> str:
    """Nobody can guess it: who knows an id may load the session."""
    return f"sess_{os.urandom(16).hex()}"


def _record_of(session: Session, blueprint: Blueprint) -> SessionRecord:
    from coupler.store.sessions import SessionRecord

    now = _now()
    return SessionRecord(
        id=session.id,
        agent=blueprint.identity,
        cwd=session.cwd,
        roots=session.place.additional_directories,
        title=session.title,
        created_at=now,
        updated_at=now,
        turns=0,
        settings=msgspec.json.encode(session.settings.saved()).decode(),
    )


def _listed(record: SessionRecord) -> SessionInfo:
    moment = datetime.fromtimestamp(record.updated_at / 1000, UTC)
    return SessionInfo(
        record.id,
        record.cwd,
        additional_directories=record.roots or msgspec.UNSET,
        title=record.title or msgspec.UNSET,
        updated_at=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
