"""A prompt on its way: await it for the reply, iterate it for the events, or enter it to be able to leave."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct

from coupler.client.errors import AgentError
from coupler.client.reply import Bill, Budget, Reply, ReplyInProgress, joined_rounds
from coupler.events import Event, Stop, Text, Thought, ToolCall
from coupler.runtime.threads import in_thread
from coupler.schema import unstable
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import ContentBlock, TextContent
from coupler.wire.messages import CANCELLED, INTERNAL_ERROR, RpcError
from coupler.wire.peer import Answer, Request

if TYPE_CHECKING:
    from coupler.client.policy import Decision
    from coupler.client.session import RemoteSession


CANCEL_PATIENCE = 10.0
"""Seconds that an agent has to answer a prompt that was cancelled."""

HEARING = 0.5
"""Seconds in which an agent can take the result of the tool that ends its turn."""

Outcome: TypeAlias = Reply | BaseException


class Prompt:
    """Sent when it is first awaited, iterated or entered. Leaving it early cancels the turn.

    The reply is gathered where messages are received, in their order; so it is complete when the answer is
    there, whoever reads the events, and however slowly. With goals, what the agent answers is judged, and
    it may be sent back to work: a prompt then takes several rounds.
    """

    def __init__(self, session: RemoteSession, blocks: tuple[ContentBlock, ...], terms: Terms) -> None:
        self._session = session
        self._blocks = blocks
        self._terms = terms
        self._progress = ReplyInProgress()
        self._earlier: Reply | None = None
        self._lane: Lane | None = None
        self._bill: Bill | None = None
        self._request = b""
        self._answered: asyncio.Future[Reply] | None = None
        self._outcome: Outcome | None = None
        self._failure: Exception | None = None
        self._stop = Stop("cancelled")
        self._is_entered = False
        self._is_iterated = False
        self._is_left = False
        self._patience: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._hearing: asyncio.TimerHandle | None = None
        self._last_call: str | None = None
        self._judging: asyncio.Task[None] | None = None

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
        if self._bill is not None:
            self._watch_budget(self._bill)

    def decided(self, decision: Decision) -> None:
        """Something that the agent asked for in this turn was decided."""
        self._progress.decided(decision)

    def end_with(self, failure: Exception, *, after_call: str | None = None) -> None:
        """End the turn for this reason: the prompt raises it, after everything was received.

        The agent is to have the result of `after_call` first; it may end its turn by itself then.
        """
        if self._failure is not None or self._outcome is not None or self._answered is None:
            return
        self._failure = failure
        if self._session.span is not None:
            self._session.span.fail(failure)
        if after_call is None:
            self._begin_cancel(self._terms.grace)
        else:
            self._last_call = after_call
            loop = self._answered.get_loop()
            self._hearing = loop.call_later(HEARING, self._begin_cancel, self._terms.grace)

    def call_reported(self, call: str | None) -> None:
        """The agent has reported the end of a call of ours."""
        if call is not None and call == self._last_call:
            self._begin_cancel(self._terms.grace)

    def accept_answer(self, answer: Answer) -> None:
        """The agent has answered, after everything that it sent before."""
        if isinstance(answer, RpcError):
            self._end_turn(self._session.failure("prompt", "session/prompt", answer))
            return
        try:
            response = decode(unstable.PromptResponse, answer, "client")
        except DecodingError as error:
            message = f"the agent's answer to session/prompt cannot be read: {error}"
            self._end_turn(AgentError("prompt", message))
            return
        self._stop = Stop(response.stop_reason, None if response.usage is UNSET else response.usage)
        if self._session.linger and not self.is_cancelled:
            self._judging = self._session.start(self._session.silence())
            self._judging.add_done_callback(self._lingered)
        else:
            self._end_turn(self._progress.finished(self._stop))

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
            self._terms.refuse_if_over()
            await self._session.cancelled_turn_ended()
        if self._answered is None:  # else another task has sent it meanwhile
            self._answered = asyncio.get_running_loop().create_future()
            try:
                self._session.take_prompt(self)
                self._send_round(self._terms.opening(self._blocks))
            except BaseException:
                self._answered = None
                self._session.prompt_ended(self)
                raise
            self._set_deadline()
        return self._answered

    def _send_round(self, blocks: tuple[ContentBlock, ...]) -> None:
        self._bill = None if self._terms.budget is None else self._terms.budget.begin_turn()
        self._progress = ReplyInProgress(_characters(blocks), self._session.usage)
        try:
            self._request = self._session.send_prompt(self, blocks)
        except BaseException:
            if self._bill is not None:
                self._bill.withdraw()
            raise

    def _set_deadline(self) -> None:
        seconds = self._terms.seconds_left()
        if seconds is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._expire, seconds)

    def _expire(self, seconds: float) -> None:
        self.end_with(AgentError("deadline", f"the agent was not done within {seconds:g} s"))

    def _watch_budget(self, bill: Bill) -> None:
        budget = self._terms.budget
        cost = self._progress.usage.cost if budget is not None and budget.cost is not None else None
        if (excess := bill.note(self._progress.rough_tokens, cost or 0.0)) is not None:
            self.end_with(AgentError("budget", excess))

    def _begin_cancel(self, grace: float | None = None) -> None:
        patience = CANCEL_PATIENCE if grace is None else grace
        if self._answered is None or self._answered.done() or self._patience is not None:
            return
        self._patience = self._answered.get_loop().call_later(patience, self._give_up, patience)
        if self._judging is not None:
            self._judging.cancel()
        else:
            self._session.send_cancel()

    def _give_up(self, patience: float) -> None:
        """The agent ignores that its turn was cancelled; nobody can use it any more."""
        self._session.give_up(self._request, kill=self._failure is not None)
        self._end_turn(AgentError("prompt", f"the agent did not end the turn within {patience:g} s"))

    def _lingered(self, silence: asyncio.Task[None]) -> None:
        """An agent that sends content late has been silent for a while, or nobody waits for that any more."""
        self._judging = None
        self._end_turn(self._progress.finished(self._stop))

    def _end_turn(self, outcome: Outcome) -> None:
        if self._answered is None or self._outcome is not None:
            return
        if self._session.span is not None:
            self._session.span.end(outcome)
        if self._bill is not None:
            # Also what failed was used, and whoever tries again and again is to notice.
            self._bill.settle(outcome.usage if isinstance(outcome, Reply) else self._progress.usage)
        if isinstance(outcome, Reply) and self._earlier is not None:
            outcome = joined_rounds(self._earlier, outcome)
        self._session.turn_ended(outcome)
        is_judged = self._terms.goals and not self.is_cancelled and self._failure is None
        if isinstance(outcome, Reply) and is_judged:
            reply = outcome
            self._judging = self._session.start(self._judge(reply))
            self._judging.add_done_callback(lambda judging: self._judged(judging, reply))
        else:
            self._end(outcome)

    async def _judge(self, reply: Reply) -> None:
        """Look at what the agent made, and send it back to work or be content."""
        verdict = await self._terms.judge(reply)
        if isinstance(verdict, Reply):
            self._end(verdict)
        elif self.is_cancelled:  # a check may have gone on all the same
            raise asyncio.CancelledError
        else:
            self._earlier, self._judging = reply, None
            self._send_round((TextContent(verdict),))

    def _judged(self, judging: asyncio.Task[None], reply: Reply) -> None:
        """Told of every end, also of one before the first step, and of whatever a check may raise."""
        if judging.cancelled():
            self._end(msgspec.structs.replace(reply, stop_reason="cancelled"))
        elif (error := judging.exception()) is not None:
            if isinstance(error, AgentError):
                error.reply = error.reply or reply
            self._end(error)

    def _end(self, outcome: Outcome) -> None:
        if self._answered is None or self._outcome is not None:
            return
        self._outcome = outcome = self._final(outcome)
        self._session.prompt_ended(self)
        for timer in (self._patience, self._deadline, self._hearing):
            if timer is not None:
                timer.cancel()
        if isinstance(outcome, Reply):
            self._answered.set_result(outcome)
        else:
            self._answered.set_exception(outcome)
            self._answered.exception()  # somebody who only iterates gets it from the lane
        if self._lane is not None:
            _end_lane(self._lane, outcome, self._stop)

    def _final(self, outcome: Outcome) -> Outcome:
        """The outcome that whoever waits gets: the reason for which the turn was ended goes first."""
        reply = outcome if isinstance(outcome, Reply) else self._partial(outcome)
        if self._failure is not None:
            outcome = self._failure
        elif isinstance(outcome, Reply) and self._session.is_failure(outcome):
            message = "the agent ended its turn without an answer; its stderr may tell why"
            outcome = AgentError("prompt", message)
        if isinstance(outcome, AgentError) and outcome.reply is None:
            outcome.reply = reply
        return outcome

    def _partial(self, error: BaseException) -> Reply | None:
        """What had come, if anything did."""
        if isinstance(error, AgentError) and error.reply is not None:
            return error.reply
        partial = self._progress.finished(Stop("cancelled" if self.is_cancelled else "failed"))
        return partial if self._earlier is None else joined_rounds(self._earlier, partial)

    def _open_lane(self) -> Lane:
        if self._lane is None:
            self._lane = Lane()
            if self._outcome is not None:  # what came was not kept, for nobody asked; how it ended is known
                _end_lane(self._lane, self._outcome, self._stop)
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


def _end_lane(lane: Lane, outcome: Outcome, stop: Stop) -> None:
    if isinstance(outcome, Reply):
        lane.put(Stop(outcome.stop_reason, stop.usage), 0)
        lane.end()
    else:
        lane.end(outcome)


def _characters(blocks: tuple[ContentBlock, ...]) -> int:
    return sum(len(block.text) for block in blocks if isinstance(block, TextContent))


# Events on their way from the reader, which never waits, to a consumer, which may.
#
# Unread events past a bound merge without loss: text of one message is joined, states of one tool call
# overlay each other. What is still too much fails this consumer alone.


MERGE_ABOVE = 256
"""Unread events; a consumer that keeps up sees every one."""

MOST_UNREAD = 64 * 1024 * 1024
"""Bytes, as they came over the wire."""


class _Joined:
    """Text of one message whose pieces are joined when somebody reads it."""

    def __init__(self, first: Text | Thought) -> None:
        self.kind = type(first)
        self.message_id = first.message_id
        self.pieces = [first.text]

    def continues(self, event: Event) -> bool:
        return type(event) is self.kind and event.message_id == self.message_id

    def event(self) -> Text | Thought:
        return self.kind("".join(self.pieces), self.message_id)


_Item: TypeAlias = tuple[Event | _Joined, int]


class Lane:
    """A queue for one consumer, fed synchronously."""

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self._unread = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._arrival: asyncio.Future[None] | None = None

    def put(self, event: Event, size: int) -> bool:
        """Add an event that took `size` bytes on the wire; false if too much is unread."""
        if self._ended:
            return False
        self._unread += size
        if self._unread > MOST_UNREAD:
            message = f"more than {MOST_UNREAD} bytes of events were not read"
            self.end(AgentError("overflow", message))
            return False
        if len(self._items) < MERGE_ABOVE or not self._merge(event, size):
            self._items.append((event, size))
        self._wake()
        return True

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing more will come; a failure is raised after everything before it was read."""
        if not self._ended:
            self._ended = True
            self._failure = failure
            self._wake()

    async def next(self) -> Event | None:
        """The next event, or None after the last."""
        while not self._items:
            if self._ended:
                if self._failure is not None:
                    raise self._failure.with_traceback(None)
                return None
            if self._arrival is not None and not self._arrival.done():
                raise AgentError("busy", "another task reads these events: iterate a prompt in one task")
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self.take()

    def take(self) -> Event | None:
        """The next event if one is there, for who cannot wait."""
        if not self._items:
            return None
        item, size = self._items.popleft()
        self._unread -= size
        return item.event() if isinstance(item, _Joined) else item

    def _merge(self, event: Event, size: int) -> bool:
        last, last_size = self._items[-1]
        if isinstance(event, ToolCall):
            if not isinstance(last, ToolCall) or last.id != event.id:
                return False
            self._items[-1] = (event, last_size + size)
            return True
        if not isinstance(event, Text | Thought):
            return False
        if isinstance(last, Text | Thought):
            last = _Joined(last)
        if not isinstance(last, _Joined) or not last.continues(event):
            return False
        last.pieces.append(event.text)
        self._items[-1] = (last, last_size + size)
        return True

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


# The terms of a prompt: what counts as done, how often the agent is sent back, and what it may use.


GRACE = 5.0
"""Seconds that an agent has to end its turn after a deadline, before its process is ended."""

MOST_ROUNDS = 5

GO_ON = "That is not done yet. Go on until it is."

T = TypeVar("T")
Check: TypeAlias = Callable[[Reply], bool | str | Awaitable[bool | str | None] | None]


class Goal(Protocol):
    """What a prompt is for, beyond an answer."""

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        """The prompt, with what the agent must be told of the goal."""

    async def judge(self, reply: Reply) -> Reply | str:
        """The reply, finished; or what to tell the agent so that it goes on. Raises if it is hopeless."""


class Until:
    """Done when a check says so: True or None. A text is feedback for the agent, False sends it on.

    A text without a word finds no fault, and so is content. A plain function runs in a thread, so that one
    which tests for minutes holds up nobody, and a deadline does not wait for it.
    """

    def __init__(self, check: Check) -> None:
        self._check = check

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        return blocks

    async def judge(self, reply: Reply) -> Reply | str:
        verdict = await self._verdict(reply)
        if verdict is None or verdict is True:
            return reply
        if verdict is False:
            return GO_ON
        if not isinstance(verdict, str):
            raise TypeError(f"a check returns True, False, None or feedback as a text; this is {verdict!r}")
        return verdict if verdict.strip() else reply

    async def _verdict(self, reply: Reply) -> bool | str | None:
        if inspect.iscoroutinefunction(self._check):
            verdict: bool | str | None = await self._check(reply)
            return verdict
        surroundings = contextvars.copy_context()
        said = await in_thread(lambda: _settled(lambda: surroundings.run(self._check, reply)))
        if isinstance(said, _Raised):
            raise said.error
        return await said if inspect.isawaitable(said) else said


class _Raised(Struct, frozen=True):
    """Carried as a value: there are exceptions that no future takes, such as the failure of a test."""

    error: BaseException


def _settled(work: Callable[[], T]) -> T | _Raised:
    try:
        return work()
    except BaseException as error:
        return _Raised(error)


class Terms(Struct, frozen=True):
    """What a prompt was given besides its content."""

    goals: tuple[Goal, ...] = ()
    rounds: int = MOST_ROUNDS
    budget: Budget | None = None
    timeout: float | None = None
    grace: float = GRACE

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds= is 1 at least, not {self.rounds!r}")
        if self.timeout is not None:
            _refuse_no_seconds("timeout", self.timeout)
        _refuse_no_seconds("grace", self.grace)

    def refuse_if_over(self) -> None:
        """Raise if nothing may be sent any more, or started for it: the time is up, or the budget spent."""
        if self.timeout is not None and self.timeout <= 0:
            raise AgentError(
                "deadline", f"the time was up before it began: the timeout is {self.timeout:g} s"
            )
        if self.budget is not None:
            self.budget.refuse_if_spent()

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        """The prompt as it is sent."""
        for goal in self.goals:
            blocks = goal.opening(blocks)
        return blocks

    async def judge(self, reply: Reply) -> Reply | str:
        """The finished reply, or feedback for the next round. A turn that did not end well is not judged."""
        reply.raise_for_stop()
        for goal in self.goals:
            verdict = await goal.judge(reply)
            if isinstance(verdict, str):
                if reply.rounds >= self.rounds:
                    message = f"the agent was not done after {self.rounds} rounds: {verdict}"
                    raise AgentError("limit", message, reply=reply)
                return verdict
            reply = verdict
        return reply

    def seconds_left(self) -> float | None:
        """Until the prompt must have ended, counted from now."""
        limits = [self.timeout, None if self.budget is None else self.budget.seconds_left()]
        return min((limit for limit in limits if limit is not None), default=None)


def _refuse_no_seconds(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}= is a number of seconds, not {value!r}")
    if math.isnan(value):
        raise ValueError(f"{name}= is a number of seconds, not {value!r}")


# Dialogs that an agent has opened: somebody decides them, unless a cancel or the end comes first.


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
