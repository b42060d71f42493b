"""Dialogs that an agent has opened: somebody decides them, unless a cancel or the end comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from coupler.wire.messages import CANCELLED, INTERNAL_ERROR, RpcError
from coupler.wire.peer import Request

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Questions:
    """The open questions of one session. Each is answered once: decided, withdrawn, or failed."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._open: dict[Request, tuple[Any, asyncio.Task[None] | None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, request: Request, decide: Callable[[], Awaitable[Any]], withdrawn: Any, who: str) -> None:
        """Let `decide` find the answer; `withdrawn` is the answer if nobody has to decide any more.

        `who` names what decides, in errors.
        """
        self._open[request] = (withdrawn, None)
        task = self._start(self._decide(request, decide, who))
        if request in self._open:  # else an eager task has answered already
            self._open[request] = (withdrawn, task)
        cancelled = RpcError.because(CANCELLED, "the request was cancelled")
        request.when_cancelled(lambda: self._withdraw(request, cancelled))

    def withdraw(self) -> None:
        """Nobody has to decide any more what the agent asked."""
        for request, (withdrawn, _) in [*self._open.items()]:
            self._withdraw(request, withdrawn)

    async def _decide(self, request: Request, decide: Callable[[], Awaitable[Any]], who: str) -> None:
        try:
            answer = await decide()
        except asyncio.CancelledError:
            if request in self._open:
                self._answer(request, self._open[request][0])
            raise
        except RpcError as error:
            self._answer(request, error)
        except BaseException as error:
            # Whoever cannot decide has not allowed anything, whatever was raised, and the agent is told.
            message = f"{who} failed: {type(error).__name__}: {error}"
            self._answer(request, RpcError.because(INTERNAL_ERROR, message))
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            context = {"message": f"{who} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        else:
            self._answer(request, answer)

    def _withdraw(self, request: Request, answer: Any) -> None:
        _, deciding = self._open.get(request, (None, None))
        self._answer(request, answer)
        if deciding is not None:
            deciding.cancel()

    def _answer(self, request: Request, answer: Any) -> None:
        """Answer a question that is still open; somebody may decide after it was withdrawn."""
        if request not in self._open:
            return
        del self._open[request]
        if isinstance(answer, RpcError):
            request.fail(answer)
        else:
            request.answer(answer)
