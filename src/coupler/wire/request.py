"""A request that the other side sent: it gets exactly one answer, however its work ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from coupler.wire import messages
from coupler.wire.errors import CANCELLED, INTERNAL_ERROR, RpcError
from coupler.wire.outbox import Lane

if TYPE_CHECKING:
    from coupler.wire.peer import Peer

log = logging.getLogger("coupler.wire")


class Request:
    """A request of the other side that wants exactly one answer."""

    def __init__(self, peer: Peer, id: Raw, method: str, params: Raw) -> None:
        self.id = id
        self.key = bytes(id)
        self.method = method
        self.params = params
        self.lane: Lane = None
        self.error: RpcError | None = None
        """What it was refused with, once it was."""
        self._peer = peer
        self._cancel: Callable[[], object] | None = None
        self._cancelled = False
        self._answered = False
        self._afterwards: list[Callable[[], object]] = []

    def answer(self, result: Any) -> None:
        """Answer with a result; None means an empty object."""
        self._finish(messages.answer(self.id, self._peer.screen(result, self.lane)))

    def fail(self, error: RpcError) -> None:
        """Answer with an error."""
        self.error = error
        try:
            frame = messages.failure(self.id, self._peer.screen(error, self.lane))
        except Exception as fault:
            log.exception("the error of %s cannot be sent", self.method)
            frame = messages.failure(self.id, internal_error(fault))
        self._finish(frame)

    def waive(self) -> None:
        """The answer was given by other means."""
        self._answered = True
        self._peer.forget_incoming(self)

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Answer with what `work` returns or raises; `$/cancel_request` cancels it."""
        task = self._peer.start(self._answer_with(work))
        task.add_done_callback(lambda _: self._finish_unstarted(work))
        self.when_cancelled(task.cancel)

    def when_cancelled(self, cancel: Callable[[], object]) -> None:
        """What `$/cancel_request` calls, now if it came already; the answer is still owed afterwards."""
        self._cancel = cancel
        if self._cancelled:
            cancel()

    def when_answered(self, callback: Callable[[], object]) -> None:
        """Called once the answer, whichever it is, is on its way: what has to follow it."""
        self._afterwards.append(callback)

    def cancel(self) -> None:
        """The other side no longer needs the answer. To say so twice does not disturb the clean-up."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._cancel is not None:
            self._cancel()

    async def _answer_with(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.answer(await work)
        except asyncio.CancelledError:
            self.fail(RpcError.because(CANCELLED, "the request was cancelled"))
        except RpcError as error:
            self.fail(error)
        except (Exception, SystemExit) as error:
            log.exception("%s failed", self.method)
            self.fail(internal_error(error))

    def _finish_unstarted(self, work: Coroutine[Any, Any, Any]) -> None:
        # A task that is cancelled before its first step never enters its own code.
        if not self._answered:
            work.close()
            self.fail(RpcError.because(CANCELLED, "the request was cancelled"))

    def _finish(self, frame: bytes) -> None:
        if self._answered:
            log.error("a second answer to %s was dropped", self.method)
            return
        self._answered = True
        self._peer.forget_incoming(self)
        self._peer.send(frame, self.lane)
        for callback in self._afterwards:
            callback()


def internal_error(error: Exception | SystemExit) -> RpcError:
    """The answer for an exception that nobody foresaw."""
    return RpcError.because(INTERNAL_ERROR, f"{type(error).__name__}: {error}")
