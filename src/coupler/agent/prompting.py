"""One `session/prompt`, from its admission to its one answer.

Whatever the agent's code does, the answer comes: after a return, an exception, a cancel, and also when the
code ignores the cancel. Before it goes out every open tool call is settled, and after it the turn is dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import get_args

from msgspec import UNSET

from coupler.agent.agent import Agent
from coupler.agent.errors import AuthRequiredError, TurnFailedError, agent_failed, describe
from coupler.agent.turn import CANCEL_GRACE, Turn, TurnEndedError
from coupler.events.records import End
from coupler.schema.v1 import PromptResponse, StopReason
from coupler.wire.messages import CANCELLED, RpcError
from coupler.wire.peer import Peer, Request

log = logging.getLogger("coupler.agent")

LAST_MOMENTS = 0.3
"""Seconds that the agent's code has after that, to clean up, before it is left behind."""

STOP_REASONS: tuple[str, ...] = get_args(StopReason)


class Prompting:
    """Runs an agent's code for one prompt and answers the request exactly once."""

    def __init__(self, request: Request, turn: Turn, agent: Agent, ended: Callable[[], None]) -> None:
        self._request = request
        self._turn = turn
        self._agent = agent
        self._ended = ended
        self._has_begun = False
        self._is_cancelled = False
        self._is_over = False
        self._patience: asyncio.TimerHandle | None = None

    def start(self, peer: Peer) -> None:
        """Begin; a cancel that was read right behind the prompt finds it running."""
        self._peer = peer
        self._task = peer.start(self._run())
        self._request.when_cancelled(self.cancel)

    def cancel(self, grace: float | None = None) -> None:
        """Cancel the agent's code; what has not ended after the grace is left behind."""
        grace = CANCEL_GRACE if grace is None else grace
        self._turn.grace = min(self._turn.grace, grace)
        if not self._is_cancelled:
            self._is_cancelled = self._turn.is_cancelled = True
            # A task that is cancelled before its first step never enters its own code.
            if self._has_begun:
                self._task.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace + LAST_MOMENTS
        if self._patience is not None:
            # Who cancels again and again must not put off the end.
            deadline = min(deadline, self._patience.when())
            self._patience.cancel()
        self._patience = loop.call_at(deadline, self._abandon)

    async def _run(self) -> None:
        self._has_begun = True
        if self._is_cancelled:
            self._conclude_cancelled()
            return
        try:
            await self._turn.session.until_ready()
        except RpcError as error:
            self._refuse(error)
            return
        except asyncio.CancelledError:
            self._conclude_cancelled()
            return
        try:
            self._conclude_stopped(await self._agent.perform(self._turn) or "end_turn")
        except asyncio.CancelledError:
            self._conclude_cancelled()
        except BaseException as error:
            self._conclude_failed(error)

    def _conclude_stopped(self, reason: str) -> None:
        if self._is_cancelled:
            self._conclude_cancelled()
        elif reason in STOP_REASONS:
            self._settle("completed")
            self._finish(reason)
        else:
            known = ", ".join(STOP_REASONS)
            self._conclude_failed(
                ValueError(f"the agent returned {reason!r}; a stop reason is one of {known}")
            )

    def _conclude_failed(self, error: BaseException) -> None:
        if self._is_cancelled:
            log.info("the cancelled turn raised %s", describe(error))
            self._conclude_cancelled()
            return
        if isinstance(error, AuthRequiredError):  # whoever has to log in has done nothing wrong
            log.info("the turn needs a login: %s", error.message)
        elif isinstance(
            error, TurnFailedError
        ):  # no fault of the code, whose traceback would explain nothing
            log.info("the turn cannot be answered: %s", error.message)
        else:
            log.error("the agent's turn failed", exc_info=error)
        self._settle("failed", describe(error))
        self._finish(agent_failed(error))

    def _conclude_cancelled(self) -> None:
        if self._is_over:
            return
        self._settle("failed", "cancelled", cancelled=True)
        if self._is_cancelled:
            self._finish("cancelled")
        else:
            self._finish(RpcError.because(CANCELLED, "the agent's code cancelled itself"))

    def _abandon(self) -> None:
        if not self._is_over:
            log.warning("the cancelled turn did not end in time and is left behind")
            self._conclude_cancelled()

    def _settle(self, status: str, reason: str | None = None, *, cancelled: bool = False) -> None:
        if not self._is_over:
            self._turn.session.outlet.ledger.settle_all(status, reason, cancelled=cancelled)

    def _refuse(self, error: RpcError) -> None:
        """The turn never began, and the store that could not keep its prompt need not be tried again."""
        if not self._is_over:
            self._end()
            self._answer(error)

    def _finish(self, outcome: str | RpcError) -> None:
        if self._is_over:
            return
        self._end()
        end = End(error=outcome.message) if isinstance(outcome, RpcError) else End(reason=outcome)
        # Who cancelled wants to hear that, also of a turn that could not be kept.
        self._turn.session.end_turn(
            end, lambda error: self._answer(outcome if error is None or self._is_cancelled else error)
        )

    def _end(self) -> None:
        self._is_over = True
        self._turn.end(asyncio.CancelledError if self._is_cancelled else TurnEndedError)
        if self._patience is not None:
            self._patience.cancel()

    def _answer(self, outcome: str | RpcError) -> None:
        self._ended()
        if isinstance(outcome, RpcError):
            self._request.fail(outcome)
        else:
            self._request.answer(self._response(outcome))
        # Somebody waits for just this: a tick of the loop is a tenth of a short turn's round trip.
        self._peer.flush()

    def _response(self, reason: str) -> PromptResponse:
        meta = self._turn.meta or UNSET
        if self._turn.tokens is None:
            return PromptResponse(reason, meta=meta)  # type: ignore[arg-type]
        # Imported on use: what was counted has loaded it.
        from coupler.schema import unstable

        return unstable.PromptResponse(reason, usage=self._turn.tokens, meta=meta)  # type: ignore[arg-type]
