"""Commands for the agent behind: in the editor's terminals, where its user can watch them, else here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.client.reasons import OUTSIDE_ROOTS
from coupler.client.terminals import Terminals
from coupler.permission.action import Action
from coupler.relay.live_output import LiveOutput
from coupler.runtime.files import OutsideRootsError, find_inside
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    KillTerminalRequest,
    KillTerminalResponse,
    ReleaseTerminalRequest,
    ReleaseTerminalResponse,
    TerminalOutputRequest,
    TerminalOutputResponse,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
)
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.relay.behind import Behind

TERMINAL = "terminal"


class RelayedTerminals(Terminals):
    """Terminals of both kinds. The editor's have the editor's ids, so that a tool call can show them."""

    def __init__(self, find: Callable[[str], Behind | None]) -> None:
        super().__init__()
        self._relayed = find

    async def _create(self, request: CreateTerminalRequest, session: RemoteSession) -> CreateTerminalResponse:
        relayed = self._relayed(session.id)
        if relayed is None:
            return await super()._create(request, session)
        await relayed.guard.require(_action(request, relayed), _line(request))
        if not relayed.can_ask_editor(TERMINAL):
            return await self._create_here(request, session, relayed)
        cwd = await _directory(request, relayed)
        asked = msgspec.structs.replace(request, session_id=relayed.session.id, cwd=cwd)
        created: CreateTerminalResponse = await relayed.session.outlet.ask(asked)
        relayed.editor_made(created.terminal_id)
        return CreateTerminalResponse(created.terminal_id)

    async def _create_here(
        self, request: CreateTerminalRequest, session: RemoteSession, relayed: Behind
    ) -> CreateTerminalResponse:
        created = await super()._create(request, session)
        terminal = self._find(created.terminal_id, session)
        show = partial(relayed.show_output, created.terminal_id)
        LiveOutput(terminal, show, relayed.session.outlet.has_room)
        return created

    async def _output(self, request: TerminalOutputRequest, session: RemoteSession) -> TerminalOutputResponse:
        relayed = self._with_editors(request.terminal_id, session)
        if relayed is None:
            response = await super()._output(request, session)
            self._show(request.terminal_id, session, response.output)
            return response
        answer: TerminalOutputResponse = await _ask(relayed, request)
        return answer

    async def _wait_for_exit(
        self, request: WaitForTerminalExitRequest, session: RemoteSession
    ) -> WaitForTerminalExitResponse:
        relayed = self._with_editors(request.terminal_id, session)
        if relayed is None:
            response = await super()._wait_for_exit(request, session)
            self._show(request.terminal_id, session)
            return response
        answer: WaitForTerminalExitResponse = await _ask(relayed, request)
        await _keep_output(relayed, request.terminal_id)
        return answer

    async def _kill(self, request: KillTerminalRequest, session: RemoteSession) -> KillTerminalResponse:
        relayed = self._with_editors(request.terminal_id, session)
        if relayed is None:
            return await super()._kill(request, session)
        await _ask(relayed, request)
        return KillTerminalResponse()

    async def _release(
        self, request: ReleaseTerminalRequest, session: RemoteSession
    ) -> ReleaseTerminalResponse:
        relayed = self._with_editors(request.terminal_id, session)
        if relayed is None:
            self._show(request.terminal_id, session)
            return await super()._release(request, session)
        relayed.editor_terminals.discard(request.terminal_id)
        await _ask(relayed, request)
        return ReleaseTerminalResponse()

    def _with_editors(self, id: str, session: RemoteSession) -> Behind | None:
        """The session, if the terminal is one of its editor's."""
        relayed = self._relayed(session.id)
        return relayed if relayed is not None and id in relayed.editor_terminals else None

    def _show(self, id: str, session: RemoteSession, output: str | None = None) -> None:
        """Let the call that shows a terminal of ours show what was written in it by now."""
        relayed = self._relayed(session.id)
        if relayed is None:
            return
        text = self._find(id, session).output().output if output is None else output
        relayed.show_output(id, text)


async def release(relayed: Behind) -> None:
    """End what runs in the editor's terminals, for an agent that does not do it any more."""
    while relayed.editor_terminals:
        terminal = relayed.editor_terminals.pop()
        with contextlib.suppress(RpcError):
            await relayed.session.outlet.ask(KillTerminalRequest(relayed.session.id, terminal))
            await relayed.session.outlet.ask(ReleaseTerminalRequest(relayed.session.id, terminal))


async def _ask(relayed: Behind, request: Any) -> Any:
    asked = msgspec.structs.replace(request, session_id=relayed.session.id)
    return await relayed.session.outlet.ask(asked)


async def _keep_output(relayed: Behind, id: str) -> None:
    """Keep what was in a terminal of the editor's: no other client will know it."""
    mirror = relayed.mirror
    call_id = mirror.showing(id) if mirror is not None else None
    if call_id is None:
        return
    with contextlib.suppress(RpcError):
        shown = await relayed.session.outlet.ask(TerminalOutputRequest(relayed.session.id, id))
        relayed.session.outlet.ledger.record_output(call_id, shown.output)


def _action(request: CreateTerminalRequest, relayed: Behind) -> Action:
    arguments = () if request.args is UNSET else tuple(request.args)
    session = relayed.session
    return Action(
        kind="execute",
        # Without arguments it may be a line for a shell, and is judged as one.
        command=(request.command, *arguments) if arguments else request.command,
        env=tuple(variable.name for variable in request.env or ()),
        cwd=request.cwd or session.cwd,
        roots=session.roots,
    )


def _line(request: CreateTerminalRequest) -> str:
    return " ".join((request.command, *(request.args or ())))


async def _directory(request: CreateTerminalRequest, relayed: Behind) -> str:
    session = relayed.session
    directory = request.cwd or session.cwd
    try:
        return (await in_thread(lambda: find_inside(directory, session.cwd, session.roots))).shown
    except (OutsideRootsError, ValueError) as error:
        raise RpcError.because(OUTSIDE_ROOTS, f"cwd: {error}", path="cwd") from None
