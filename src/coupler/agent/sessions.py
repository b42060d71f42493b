"""The sessions of one connection: opened, found again, listed, left and deleted.

What is kept of a session outlives the connection; without an archive there are only those that are open.
Whatever fails on the way leaves nothing half made behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from coupler.agent.blueprint import Blueprint
from coupler.agent.directories import check_same
from coupler.agent.editor import Editor
from coupler.agent.errors import TARGET_FAILED, agent_failed, session_busy, unknown_session
from coupler.agent.forecast import Forecast, Foresight
from coupler.agent.hooks import call_hook
from coupler.agent.project import Project
from coupler.agent.serve_options import NO_STORE
from coupler.agent.session import Place, Session
from coupler.agent.settings import BOOLEANS
from coupler.agent.state import StateError
from coupler.schema.v1 import ListSessionsResponse
from coupler.wire.messages import RpcError
from coupler.wire.peer import Peer

if TYPE_CHECKING:
    from coupler.agent.archive import Archive
    from coupler.events import Usage
    from coupler.store.sessions import SessionRecord

log = logging.getLogger("coupler.agent")


class Sessions:
    """Those that are open here, and the way to all others that this agent ever had."""

    def __init__(
        self,
        peer: Peer,
        blueprint: Callable[[], Awaitable[Blueprint]],
        foresight: Foresight | None = None,
    ) -> None:
        self._peer = peer
        self._load_blueprint = blueprint
        self._foresight = foresight
        self._coming: dict[str, Session] = {}
        self._open: dict[str, Session] = {}
        self._archive: Archive | None = None

    def __iter__(self) -> Iterator[Session]:
        return iter([*self._open.values()])

    def find(self, id: str) -> Session | None:
        """The session if it is open here."""
        return self._open.get(id)

    async def new(self, place: Place, editor: Editor) -> Session:
        """Begin a session."""
        blueprint = await self._ready_blueprint()
        session = Session(_new_id(), place, editor, self._peer)
        await self._give_agent(session, blueprint)
        try:
            if self._archive is not None:
                session.outlet.keep_in(await self._archive.add(session))
        except BaseException:
            await self._leave(session)
            await self._forget(session.id)
            raise
        self._open[session.id] = session
        if self._foresight is not None:
            self._foresight.foresee(blueprint, session)
        return session

    def forecast_for(self, editor: Editor) -> Forecast | None:
        """What a new session of this client will be told, if that is known before its agent is there."""
        forecast = None if self._foresight is None else self._foresight.forecast
        return forecast if forecast is not None and forecast.booleans == editor.offers(BOOLEANS) else None

    async def announce(self, place: Place, editor: Editor, forecast: Forecast) -> Session:
        """Begin a session whose agent is still to come: it is kept, and `complete` makes it whole."""
        self._open_archive(forecast.store, forecast.identity)
        session = Session(_new_id(), place, editor, self._peer)
        try:
            if self._archive is not None:
                session.outlet.keep_in(await self._archive.add(session))
        except BaseException:
            await self._forget(session.id)
            raise
        self._coming[session.id] = session
        return session

    async def complete(self, session: Session, forecast: Forecast) -> None:
        """Give a session its agent that was begun without one, once that is there."""
        try:
            blueprint = await self._ready_blueprint()
            if blueprint.identity != forecast.identity:
                raise RpcError.because(TARGET_FAILED, "the agent is another one than before: restart it")
            await self._give_agent(session, blueprint)
            session.tell_settings(mode_changed=False)
        except BaseException:
            del self._coming[session.id]
            session.end()
            await self._forget(session.id)
            raise
        self._open[session.id] = self._coming.pop(session.id)
        if self._foresight is not None:
            self._foresight.foresee(blueprint, session)

    async def reopen(self, id: str, place: Place, editor: Editor, *, replaying: bool) -> Session:
        """Go on with a session, in the directories that are named now; replayed before this returns."""
        blueprint = await self._ready_blueprint()
        session = self._open.get(id)
        if session is not None:
            if session.is_busy:
                raise session_busy(id)
            check_same(place.cwd, session.cwd)
            await session.move_to(place)
        else:
            session = await self._take_up(id, place, editor, blueprint)
        if replaying and self._archive is not None:
            await self._replay(session, self._archive)
        self._open[id] = session
        return session

    async def kept_usage(self, session: Session) -> Usage | None:
        """What a session has used up so far, if that is kept."""
        from coupler.agent.replay import kept_usage

        return None if self._archive is None else await kept_usage(session.id, self._archive)

    async def fork(self, id: str, place: Place, editor: Editor) -> Session:
        """A new session with everything that the other one has answered so far."""
        blueprint = await self._ready_blueprint()
        if self._archive is None:
            raise unknown_session(id)
        new_id = _new_id()
        try:
            await self._archive.copy(id, new_id, place)
            session = await self._take_up(new_id, place, editor, blueprint)
        except BaseException:
            await self._forget(new_id)
            raise
        self._open[new_id] = session
        return session

    async def list(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """A page of the sessions, the latest first."""
        blueprint = await self._blueprint()
        if self._archive is None:
            return ListSessionsResponse(())
        if cursor is None:
            await self._take_in_foreign(blueprint, self._archive)
        return await self._archive.page(cwd, cursor)

    async def close(self, session: Session) -> None:
        """Cancel what runs and free the session; what is stored of it stays."""
        session.cancel()
        await session.until_idle()
        self._open.pop(session.id, None)
        await self._leave(session)

    async def delete(self, id: str) -> None:
        """Make the session disappear; nothing happens if there is none."""
        blueprint = await self._blueprint()
        session = self._open.get(id)
        if session is not None:
            await self.close(session)
        if self._archive is not None:
            state = await self._archive.state(id)
            await self._archive.delete(id)
            if blueprint.forget is not None and state is not None:
                await blueprint.forget(id, state)

    async def leave_all(self) -> None:
        """The connection ends: leave what is open, in the state that it has reached."""
        sessions, self._open = [*self._open.values()], {}
        await asyncio.gather(*(self._leave(session) for session in sessions))

    def close_archive(self) -> None:
        """Nothing more will be kept."""
        if self._archive is not None:
            self._archive.close()

    async def _blueprint(self) -> Blueprint:
        """The agent's blueprint, as soon as it is loaded; what keeps its sessions is open then."""
        blueprint = await self._load_blueprint()
        self._open_archive(blueprint.store, blueprint.identity)
        return blueprint

    def _open_archive(self, store: str | None, identity: str) -> None:
        if self._archive is None and store != NO_STORE:
            # Imported on use: an agent's first answer does not need it.
            from coupler.agent.archive import Archive

            self._archive = Archive.open(store, identity)

    async def _ready_blueprint(self) -> Blueprint:
        """The blueprint, once the user is logged in; raises what is to be answered if not."""
        blueprint = await self._blueprint()
        await blueprint.logins.require()
        return blueprint

    async def _take_up(self, id: str, place: Place, editor: Editor, blueprint: Blueprint) -> Session:
        if self._archive is None:
            raise unknown_session(id)
        try:
            record = await self._archive.find(id)
        except RpcError:
            if not await self._take_in_foreign(blueprint, self._archive):
                raise
            record = await self._archive.find(id)
        check_same(place.cwd, record.cwd)
        session = Session(id, place, editor, self._peer)
        try:
            session.outlet.keep_in(await self._archive.take(record, place))
            session.outlet.know_calls(await self._archive.call_ids(id))
            await self._give_agent(session, blueprint, record)
        except BaseException:
            await self._let_go(id)
            raise
        return session

    async def _take_in_foreign(self, blueprint: Blueprint, archive: Archive) -> bool:
        """Take in conversations that were held elsewhere; whether there were any."""
        if blueprint.foreign is None:
            return False
        found = await blueprint.foreign(await archive.ids())
        for foreign in found:
            await archive.take_in(foreign)
        return bool(found)

    async def _replay(self, session: Session, archive: Archive) -> None:
        from coupler.agent.replay import replay

        try:
            await replay(session, archive)
        except BaseException:
            if session.id not in self._open:
                await self._leave(session)
            raise

    async def _give_agent(
        self, session: Session, blueprint: Blueprint, record: SessionRecord | None = None
    ) -> None:
        choices = self._archive.choices if self._archive is not None else None
        session.belong_to(Project.of(session.cwd, session.env, choices))
        try:
            if record is not None:
                session.go_on_from(record)
            session.give_to(await blueprint.agent_for(session), blueprint.logins)
            await call_hook(session.agent.opened, session)
        except asyncio.CancelledError:
            await session.end_servers()
            raise
        except BaseException as error:
            if isinstance(error, RpcError):  # somebody has put it into words
                log.error("the agent could not be made: %s", error.message)
            else:
                log.error("the agent could not be made", exc_info=error)
            await session.end_servers()
            raise agent_failed(error) from None

    async def _leave(self, session: Session) -> None:
        session.fall_silent()
        try:
            await call_hook(session.agent.closed, session)
        except Exception:
            log.exception("the agent's `closed` failed")
        await session.end_servers()
        try:
            session.keep_state()
            await session.until_stored()
        except (RpcError, StateError) as error:
            log.error("the end of the session could not be stored: %s", error)
        session.end()
        await self._let_go(session.id)

    async def _let_go(self, id: str) -> None:
        """Others may have the session, however it went here."""
        if self._archive is not None:
            try:
                await self._archive.let_go(id)
            except RpcError as error:
                log.error("the session could not be let go: %s", error)

    async def _forget(self, id: str) -> None:
        """A session that could not be made must not be found."""
        if self._archive is not None:
            try:
                await self._archive.delete(id)
            except RpcError as error:
                log.error("a session that is half made could not be removed: %s", error)


def _new_id() -> str:
    """Nobody can guess it: who knows an id may load the session."""
    return f"sess_{os.urandom(16).hex()}"
