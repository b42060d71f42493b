"""A prompt on its way: await it for the reply, iterate it for the events, or enter it to be able to leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET

from coupler.client.errors import AgentError
from coupler.client.lane import Lane
from coupler.client.reply import Reply, ReplyInProgress
from coupler.events import Event, Stop
from coupler.schema import unstable
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import ContentBlock
from coupler.wire.errors import RpcError
from coupler.wire.peer import Answer

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession

CANCEL_PATIENCE = 10.0
"""Seconds that an agent has to answer a prompt that was cancelled."""


class Prompt:
    """Sent when it is first awaited, iterated or entered. Leaving it early cancels the turn.

    The reply is gathered where messages are received, in their order; so it is complete when the answer is
    there, whoever reads the events, and however slowly.
    """

    def __init__(self, session: RemoteSession, blocks: tuple[ContentBlock, ...]) -> None:
        self._session = session
        self._blocks = blocks
        self._progress = ReplyInProgress()
        self._lane: Lane | None = None
        self._request = b""
        self._answered: asyncio.Future[Reply] | None = None
        self._outcome: Reply | AgentError | None = None
        self._is_entered = False
        self._is_iterated = False
        self._is_left = False
        self._patience: asyncio.TimerHandle | None = None

    def __await__(self) -> Generator[Any, None, Reply]:
        return self._complete().__await__()

    def __aiter__(self) -> Events:
        return Events(self)

    async def __aenter__(self) -> Self:
        self._open_lane()
        await self._send()
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_entered = False
        await self.cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether the turn is only waited for until it has ended."""
        return self._is_left or self._patience is not None

    async def cancel(self) -> None:
        """Cancel the turn, if it runs, and wait until the agent has answered."""
        self._begin_cancel()
        if self._answered is not None:
            await asyncio.wait([self._answered])

    def leave(self) -> None:
        """Nobody reads on: cancel the turn without waiting for it. Can be called in any thread."""
        if self._is_entered or self._answered is None or self._answered.done():
            return
        self._is_left = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the connection
            self._answered.get_loop().call_soon_threadsafe(self._begin_cancel)

    async def listen(self) -> Lane:
        """Send it, unless that was done. The lane has the events from the first call on."""
        self._is_iterated = True
        lane = self._open_lane()
        await self._send()
        return lane

    async def explain(self, error: AgentError) -> AgentError:
        """A copy of the error for whoever waits, with what is known of the agent by now."""
        return await self._session.with_last_words(error)

    def accept(self, event: Event, size: int) -> None:
        """An event of this turn was received."""
        self._progress.add(event)
        if self._lane is not None and not self._lane.put(event, size) and self._is_iterated:
            self._begin_cancel()

    def accept_answer(self, answer: Answer) -> None:
        """The agent has answered, after everything that it sent before."""
        if isinstance(answer, RpcError):
            self._end(self._session.failure("prompt", "session/prompt", answer))
            return
        try:
            response = decode(unstable.PromptResponse, answer, "client")
        except DecodingError as error:
            self._end(AgentError("prompt", f"the agent's answer to session/prompt cannot be read: {error}"))
            return
        stop = Stop(response.stop_reason, None if response.usage is UNSET else response.usage)
        self._end(self._progress.finished(stop))

    async def _complete(self) -> Reply:
        try:
            # Shielded, because the answer is still wanted when this wait is cancelled.
            return await asyncio.shield(await self._send())
        except asyncio.CancelledError:
            await self.cancel()
            raise
        except AgentError as error:
            raise await self.explain(error) from None

    async def _send(self) -> asyncio.Future[Reply]:
        if self._answered is None:
            await self._session.cancelled_turn_ended()
        if self._answered is None:  # else another task has sent it meanwhile
            self._answered = asyncio.get_running_loop().create_future()
            try:
                self._request = self._session.send_prompt(self, self._blocks)
            except BaseException:
                self._answered = None
                raise
        return self._answered

    def _begin_cancel(self) -> None:
        if self._answered is None or self._answered.done() or self._patience is not None:
            return
        self._patience = self._answered.get_loop().call_later(CANCEL_PATIENCE, self._give_up)
        self._session.send_cancel()

    def _give_up(self) -> None:
        self._session.give_up(self._request)
        self._end(AgentError("prompt", f"the agent did not end the turn within {CANCEL_PATIENCE:g} s"))

    def _end(self, outcome: Reply | AgentError) -> None:
        if self._answered is None or self._outcome is not None:
            return
        self._outcome = outcome
        self._session.prompt_ended(self)
        if self._patience is not None:
            self._patience.cancel()
        if isinstance(outcome, Reply):
            self._answered.set_result(outcome)
        else:
            self._answered.set_exception(outcome)
            self._answered.exception()  # somebody who only iterates gets it from the lane
        if self._lane is not None:
            _end_lane(self._lane, outcome)

    def _open_lane(self) -> Lane:
        if self._lane is None:
            self._lane = Lane()
            if self._outcome is not None:  # what came was not kept, for nobody asked; how it ended is known
                _end_lane(self._lane, self._outcome)
        return self._lane


class Events:
    """Reads a prompt's events. Dropped before the last one, as by `break`, it leaves the turn."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._lane: Lane | None = None
        self._has_read = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            if self._lane is None:
                self._lane = await self._prompt.listen()
            event = await self._lane.next()
        except asyncio.CancelledError:
            await self._prompt.cancel()
            raise
        except AgentError as error:
            raise await self._prompt.explain(error) from None
        if event is None:
            raise StopAsyncIteration
        self._has_read = True
        return event

    async def aclose(self) -> None:
        """Leave the turn, and wait until it has ended."""
        await self._prompt.cancel()

    def __del__(self) -> None:
        if self._has_read:
            self._prompt.leave()


def _end_lane(lane: Lane, outcome: Reply | AgentError) -> None:
    if isinstance(outcome, AgentError):
        lane.end(outcome)
    else:
        lane.put(Stop(outcome.stop_reason, outcome.tokens), 0)
        lane.end()
