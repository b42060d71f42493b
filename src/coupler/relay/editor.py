"""Serves files, terminals and elicitations to a relayed agent: by the editor if it offers them, else here."""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.agent.terminal import can_use_terminals
from coupler.client.actions import action_of, unasked_call
from coupler.client.elicitation import MOST_OPEN_PAGES
from coupler.client.errors import OUTSIDE_ROOTS, NotificationListener, Responder
from coupler.client.files import ClientFiles, FileAccess
from coupler.client.policy import PermissionRequest
from coupler.client.terminals import ClientTerminals
from coupler.permission.action import Action
from coupler.relay.errors import NOT_IN_A_TURN
from coupler.relay.mirror import TerminalWatcher
from coupler.runtime.files import OutsideRootsError, find_inside
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    CancelElicitationResponse,
    CompleteElicitationNotification,
    CreateElicitationRequest,
    CreateElicitationResponse,
    CreateFormElicitationRequest,
    CreateTerminalRequest,
    CreateTerminalResponse,
    CreateUrlElicitationRequest,
    KillTerminalRequest,
    KillTerminalResponse,
    ReadTextFileRequest,
    ReadTextFileResponse,
    ReleaseTerminalRequest,
    ReleaseTerminalResponse,
    TerminalOutputRequest,
    TerminalOutputResponse,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from coupler.wire.messages import INVALID_PARAMS, RpcError
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.relay.errors import RelayContext

READS = "fs.readTextFile"
WRITES = "fs.writeTextFile"

TERMINAL = "terminal"

CANCELLED = CancelElicitationResponse()


class RelayedFiles(ClientFiles):
    """Reads and writes files as the editor has them, with what is not saved yet, else on the disk.

    The rules decide about each first, and nothing outside of the session's directories is touched.
    """

    def __init__(self, access: FileAccess, find: Callable[[str], RelayContext | None]) -> None:
        super().__init__(access)
        self._find = find

    async def _read(self, request: ReadTextFileRequest, session: RemoteSession) -> ReadTextFileResponse:
        relayed = self._find(session.id)
        if relayed is None:
            return await super()._read(request, session)
        await _require(relayed, session, "read", request.path)
        if not relayed.can_ask_editor(READS):
            return await super()._read(request, session)
        path = await _inside(relayed, request.path)
        asked = msgspec.structs.replace(request, session_id=relayed.session.id, path=path)
        answer: ReadTextFileResponse = await relayed.session.outlet.ask(asked)
        if not answer.content and not await in_thread(lambda: os.path.lexists(path)):
            # Editors exist that give an empty text for a missing file: the disk has the right error.
            return await super()._read(request, session)
        return answer

    async def _write(self, request: WriteTextFileRequest, session: RemoteSession) -> WriteTextFileResponse:
        relayed = self._find(session.id)
        if relayed is None:
            return await super()._write(request, session)
        await _require(relayed, session, "edit", request.path)
        if not relayed.can_ask_editor(WRITES):
            return await super()._write(request, session)
        path = await _inside(relayed, request.path)
        asked = msgspec.structs.replace(request, session_id=relayed.session.id, path=path)
        answer: WriteTextFileResponse = await relayed.session.outlet.ask(asked)
        return answer


async def _require(relayed: RelayContext, remote: RemoteSession, kind: str, path: str) -> None:
    session = relayed.session
    action = Action(kind=kind, paths=(path,), cwd=session.cwd, roots=session.roots)
    verb = "Read" if kind == "read" else "Write"
    await relayed.guard.require(action, f"{verb} {path}", remote.rules)


async def _inside(relayed: RelayContext, path: str) -> str:
    """Return the path as the editor gets it; raises if it is outside of the session's directories."""
    session = relayed.session
    try:
        return (await in_thread(lambda: find_inside(path, session.cwd, session.roots))).shown
    except OutsideRootsError as error:
        raise RpcError.because(OUTSIDE_ROOTS, str(error), path="path") from None
    except ValueError as error:
        raise RpcError.because(INVALID_PARAMS, str(error), path="path") from None


class RelayedTerminals(ClientTerminals):
    """Runs commands in the editor's terminals, where its user can watch them, else here.

    The editor's terminals have the editor's ids, so that a tool call can show them.
    """

    def __init__(self, find: Callable[[str], RelayContext | None]) -> None:
        super().__init__()
        self._relayed = find

    async def _create(self, request: CreateTerminalRequest, session: RemoteSession) -> CreateTerminalResponse:
        relayed = self._relayed(session.id)
        if relayed is None:
            return await super()._create(request, session)
        await relayed.guard.require(_action(request, relayed), _line(request), session.rules)
        if not relayed.can_ask_editor(TERMINAL) or not await can_use_terminals(relayed.session, relayed.turn):
            return await self._create_here(request, session, relayed)
        cwd = await _directory(request, relayed)
        asked = msgspec.structs.replace(request, session_id=relayed.session.id, cwd=cwd)
        created: CreateTerminalResponse = await relayed.session.outlet.ask(asked)
        relayed.editor_made(created.terminal_id)
        return created

    async def _create_here(
        self, request: CreateTerminalRequest, session: RemoteSession, relayed: RelayContext
    ) -> CreateTerminalResponse:
        created = await super()._create(request, session)
        terminal = self._find(created.terminal_id, session)
        show = partial(relayed.show_output, created.terminal_id)
        TerminalWatcher(terminal, show, relayed.session.outlet.has_room)
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
        answer: KillTerminalResponse = await _ask(relayed, request)
        return answer

    async def _release(
        self, request: ReleaseTerminalRequest, session: RemoteSession
    ) -> ReleaseTerminalResponse:
        relayed = self._with_editors(request.terminal_id, session)
        if relayed is None:
            self._show(request.terminal_id, session)
            return await super()._release(request, session)
        relayed.editor_terminals.discard(request.terminal_id)
        answer: ReleaseTerminalResponse = await _ask(relayed, request)
        return answer

    def _with_editors(self, id: str, session: RemoteSession) -> RelayContext | None:
        """Return the session's context if the terminal is one of its editor's."""
        relayed = self._relayed(session.id)
        return relayed if relayed is not None and id in relayed.editor_terminals else None

    def _show(self, id: str, session: RemoteSession, output: str | None = None) -> None:
        """Show the output of one of our terminals in the tool call that it belongs to."""
        relayed = self._relayed(session.id)
        if relayed is None:
            return
        text = self._find(id, session).output().output if output is None else output
        relayed.show_output(id, text)


async def release(relayed: RelayContext) -> None:
    """Kill and release the editor's terminals that the agent has left open."""
    while relayed.editor_terminals:
        terminal = relayed.editor_terminals.pop()
        with contextlib.suppress(RpcError):
            await relayed.session.outlet.ask(KillTerminalRequest(relayed.session.id, terminal))
            await relayed.session.outlet.ask(ReleaseTerminalRequest(relayed.session.id, terminal))


async def _ask(relayed: RelayContext, request: Any) -> Any:
    asked = msgspec.structs.replace(request, session_id=relayed.session.id)
    return await relayed.session.outlet.ask(asked)


async def _keep_output(relayed: RelayContext, id: str) -> None:
    """Journal the output of an editor's terminal, because other clients will not know the terminal."""
    mirror = relayed.mirror
    call_id = mirror.showing(id) if mirror is not None else None
    if call_id is None:
        return
    with contextlib.suppress(RpcError):
        shown = await relayed.session.outlet.ask(TerminalOutputRequest(relayed.session.id, id))
        relayed.session.outlet.ledger.record_output(call_id, shown.output)


def _action(request: CreateTerminalRequest, relayed: RelayContext) -> Action:
    call = unasked_call(request)
    assert call is not None
    return action_of(PermissionRequest(call, (), relayed.session.cwd, relayed.session.roots))


def _line(request: CreateTerminalRequest) -> str:
    return " ".join((request.command, *(request.args or ())))


async def _directory(request: CreateTerminalRequest, relayed: RelayContext) -> str:
    session = relayed.session
    directory = request.cwd or session.cwd
    try:
        return (await in_thread(lambda: find_inside(directory, session.cwd, session.roots))).shown
    except (OutsideRootsError, ValueError) as error:
        raise RpcError.because(OUTSIDE_ROOTS, f"cwd: {error}", path="cwd") from None


class RelayedElicitations:
    """Passes the agent's elicitations on to an editor that can show them, and the completion of pages."""

    params = CreateElicitationRequest

    def __init__(self, find: Callable[[str], RelayContext | None]) -> None:
        self._find = find
        self._pages: dict[str, RelayContext] = {}

    def responders(self) -> dict[str, Responder | NotificationListener]:
        """Return the responder of `elicitation/create`, and the listener for completed pages."""
        return {
            "elicitation/create": self,
            "elicitation/complete": NotificationListener(CompleteElicitationNotification, self._complete),
        }

    def requested(
        self, request: Request, params: CreateElicitationRequest, session: RemoteSession | None
    ) -> None:
        relayed = self._find(session.id) if session is not None else None
        if session is None or relayed is None or relayed.turn is None:
            raise RpcError.because(NOT_IN_A_TURN, "the user can be asked only in a turn of a session")
        if not isinstance(params, CreateFormElicitationRequest | CreateUrlElicitationRequest):
            raise RpcError.because(INVALID_PARAMS, "mode: expected 'form' or 'url'", path="mode")
        asked = params
        session.questions.ask(request, lambda: self._passed_on(asked, relayed), CANCELLED, "the editor")

    async def _passed_on(
        self, asked: CreateFormElicitationRequest | CreateUrlElicitationRequest, relayed: RelayContext
    ) -> CreateElicitationResponse:
        turn, mirror = relayed.turn, relayed.mirror
        if turn is None or mirror is None:
            return CANCELLED
        mirror.flush()
        call_id = mirror.known(asked.tool_call_id) if isinstance(asked.tool_call_id, str) else None
        ours = msgspec.structs.replace(
            asked, session_id=relayed.session.id, tool_call_id=call_id or UNSET, request_id=UNSET
        )
        if isinstance(asked, CreateUrlElicitationRequest):
            self._pages[asked.elicitation_id] = relayed
            if len(self._pages) > MOST_OPEN_PAGES:
                del self._pages[next(iter(self._pages))]
        response: CreateElicitationResponse = await turn.call_editor(ours)
        return response

    def _complete(self, notification: CompleteElicitationNotification) -> None:
        relayed = self._pages.pop(notification.elicitation_id, None)
        if relayed is not None:
            relayed.session.editor.tell(relayed.session.secrets.covered(notification), relayed.session.id)
