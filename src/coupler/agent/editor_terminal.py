"""Commands in the editor's terminals, where its user can watch them.

Every terminal that the editor has made is released, whatever happens: after a cancel, a timeout or an error,
and also when its id arrives after everybody has stopped waiting for it. So the requests that matter for that
are not the turn's, which end with it, and nobody waits for the answer to a release.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from coupler.agent.errors import EditorError
from coupler.agent.terminal import Finished
from coupler.runtime.process import Ring
from coupler.schema.v1 import (
    CreateTerminalRequest,
    KillTerminalRequest,
    ReleaseTerminalRequest,
    TerminalExitStatus,
    TerminalOutputRequest,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
)
from coupler.wire.messages import METHOD_NOT_FOUND, TIMED_OUT

if TYPE_CHECKING:
    from coupler.agent.call import Call
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.agent")

TIME_TO_CREATE = 30.0
"""Seconds that the editor has to make a terminal: it does not wait for the command."""


async def run_in_editor(
    turn: Turn, request: CreateTerminalRequest, call: Call, seconds: float | None
) -> Finished | None:
    """Run a command to its end, shown by the call; None if the editor turns out to have no terminals."""
    try:
        terminal = EditorTerminal(turn.session, await _create(turn.session, request))
    except EditorError as error:
        if error.code == METHOD_NOT_FOUND.code:
            return None
        raise
    is_over = False
    try:
        terminal.show_in(turn, call)
        finished = await terminal.follow(turn, seconds, request.output_byte_limit or 0)
        turn.session.outlet.ledger.record_output(call.id, finished.output)
        is_over = True
        return finished
    finally:
        terminal.release(kills=not is_over)


class EditorTerminal:
    """A terminal that the editor has made."""

    def __init__(self, session: Session, id: str) -> None:
        self._session = session
        self._id = id

    def show_in(self, turn: Turn, call: Call) -> None:
        """Let the call show the terminal, while it lives and afterwards."""
        turn.check_alive()
        call.start()
        self._session.outlet.ledger.show_terminal(call.id, self._id)

    async def follow(self, turn: Turn, seconds: float | None, output_limit: int) -> Finished:
        """Wait for the command's end, for so many seconds, and take what it wrote."""
        ending: WaitForTerminalExitResponse | None = None
        try:
            async with asyncio.timeout(seconds):
                ending = await turn.call_editor(WaitForTerminalExitRequest(self._session.id, self._id))
        except TimeoutError:
            # It may have ended just now, and the release ends it in any case.
            with contextlib.suppress(EditorError):
                await turn.call_editor(KillTerminalRequest(self._session.id, self._id), deadline=turn.grace)
        shown = await turn.call_editor(TerminalOutputRequest(self._session.id, self._id))
        output, is_cut = _last_of(shown.output, output_limit)
        exit_code, signal = _how_it_ended(ending, shown.exit_status or None)
        return Finished(exit_code, signal, output, shown.truncated or is_cut, ending is None)

    def release(self, *, kills: bool) -> None:
        """Give the terminal back. Sent at once, so that the turn's answer cannot come before it."""
        if kills:
            self._tell(KillTerminalRequest(self._session.id, self._id))
        self._tell(ReleaseTerminalRequest(self._session.id, self._id))

    def _tell(self, request: Any) -> None:
        self._session.editor.ask(request, self._session.id, self._note)

    def _note(self, answer: Any) -> None:
        if isinstance(answer, EditorError):
            log.info("the terminal %s could not be ended: %s", self._id, answer.message)


async def _create(session: Session, request: CreateTerminalRequest) -> str:
    """The id of a new terminal. One that comes when nobody waits any more is released at once."""
    created: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answered(answer: Any) -> None:
        if created.cancelled():
            if not isinstance(answer, EditorError):
                EditorTerminal(session, answer.terminal_id).release(kills=True)
        elif isinstance(answer, EditorError):
            created.set_exception(answer)
        else:
            created.set_result(answer.terminal_id)

    session.editor.ask(request, session.id, answered)
    try:
        async with asyncio.timeout(TIME_TO_CREATE):
            return await created
    except EditorError:
        raise
    except BaseException as error:
        # A cancel can come between the answer and the moment in which it is taken.
        if not created.cancel() and not created.cancelled() and created.exception() is None:
            EditorTerminal(session, created.result()).release(kills=True)
        if isinstance(error, TimeoutError):
            raise _too_late() from None
        raise


def _too_late() -> EditorError:
    message = f"terminal/create was not answered within {TIME_TO_CREATE:g} s"
    return EditorError(TIMED_OUT.code, message, {"reason": TIMED_OUT.name, "method": "terminal/create"})


def _last_of(output: str, limit: int) -> tuple[str, bool]:
    """The end of the output, also from an editor that does not heed the limit."""
    ring = Ring(limit)
    ring.append(output.encode("utf-8", "replace"))
    return (ring.text(), True) if ring.is_cut else (output, False)


def _how_it_ended(
    *endings: WaitForTerminalExitResponse | TerminalExitStatus | None,
) -> tuple[int | None, str | None]:
    """The exit code or the signal, from the first answer that has one."""
    for ending in endings:
        if ending is not None and ending.signal:
            return None, ending.signal
        if ending is not None and isinstance(ending.exit_code, int):
            return ending.exit_code, None
    return None, None
