"""Sends a prompt and follows its turn to the reply, within limits of rounds, time and budget.

A `Prompt` is awaited for the reply, iterated for the events, or entered to be able to leave. Its goals judge
each reply and may send the agent back to work. `PendingDialogs` are the permission requests and elicitations
that the agent has opened meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct

from coupler.client.errors import NOT_PERMITTED, AgentError
from coupler.client.reply import Budget, Reply, ReplyBuilder, TurnCharge, merge_rounds, refuse_no_budget
from coupler.events import Event, Stop, Text, Thought, ToolCall
from coupler.runtime.threads import in_thread
from coupler.schema import unstable
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import ContentBlock, TextContent
from coupler.wire.messages import CANCELLED, INTERNAL_ERROR, RpcError
from coupler.wire.peer import Request, Response

if TYPE_CHECKING:
    from coupler.client.policy import Decision
    from coupler.client.session import RemoteSession


GRACE = 5.0
"""Seconds that an agent has to end a turn that was cancelled, or is over its time."""

RESULT_DELIVERY_TIMEOUT = 0.5
"""Seconds that an agent has to receive the result of the tool that ends its turn."""

MOST_ROUNDS = 5

NOT_DONE_FEEDBACK = "That is not done yet. Go on until it is."

MERGE_ABOVE = 256
"""Unread events above which events merge; a consumer that keeps up sees every one."""

MOST_UNREAD_BYTES = 64 * 1024 * 1024
"""Unread bytes, as they came over the wire, above which the consumer fails."""

T = TypeVar("T")

PromptOutcome: TypeAlias = Reply | BaseException

Check: TypeAlias = Callable[[Reply], bool | str | Awaitable[bool | str | None] | None]

StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Goal(Protocol):
    """A condition that a prompt's reply has to meet."""

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        """Return the prompt, with what the agent must be told of the goal."""

    async def judge(self, reply: Reply) -> Reply | str:
        """Return the finished reply, or feedback for the agent to go on. Raises if it is hopeless."""


class PromptOptions(Struct, frozen=True):
    """The goals and limits of a prompt: rounds, budget, timeout and grace."""

    goals: tuple[Goal, ...] = ()
    rounds: int = MOST_ROUNDS
    budget: Budget | None = None
    timeout: float | None = None
    grace: float = GRACE
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds= is 1 at least, not {self.rounds!r}")
        refuse_no_budget(self.budget)
        if self.timeout is not None:
            _refuse_no_seconds("timeout", self.timeout)
        _refuse_no_seconds("grace", self.grace)

    def refuse_if_over(self) -> None:
        """Raise if the time is up or the budget spent before anything is sent or started."""
        if self.timeout is not None and self.timeout <= 0:
            raise AgentError(
                "deadline", f"the time was up before it began: the timeout is {self.timeout:g} s"
            )
        if self.budget is not None:
            self.budget.refuse_if_spent()

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        """Return the prompt as it is sent."""
        for goal in self.goals:
            blocks = goal.opening(blocks)
        return blocks

    async def judge(self, reply: Reply) -> Reply | str:
        """Return the finished reply, or feedback for the next round.

        A turn that did not end well is not judged.
        """
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
        """Return the seconds until the prompt must have ended, counted from now."""
        limits = [self.timeout, None if self.budget is None else self.budget.seconds_left()]
        return min((limit for limit in limits if limit is not None), default=None)


def _refuse_no_seconds(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}= is a number of seconds, not {value!r}")
    if math.isnan(value):
        raise ValueError(f"{name}= is a number of seconds, not {value!r}")


class Until:
    """A goal that is met when a check returns True or None.

    A text is feedback for the agent, False sends it back to work. A blank text counts as no feedback. A plain
    function runs in a thread, so that one which tests for minutes blocks nobody, and a deadline does not wait
    for it.
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
            return NOT_DONE_FEEDBACK
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
    """Wraps an exception as a value: some cannot be set on a future, such as pytest's failures."""

    error: BaseException


def _settled(work: Callable[[], T]) -> T | _Raised:
    try:
        return work()
    except BaseException as error:
        return _Raised(error)


class Prompt:
    """A prompt, sent when it is first awaited, iterated or entered. Leaving it early cancels the turn.

    The reply is built where messages are received, in their order: it is complete when the answer is there,
    however slowly the events are read. With goals, the answer is judged, and the agent may be sent back to
    work: a prompt then takes several rounds.
    """

    def __init__(
        self, session: RemoteSession, blocks: tuple[ContentBlock, ...], options: PromptOptions
    ) -> None:
        self._session = session
        self._blocks = blocks
        self._options = options
        self._progress = ReplyBuilder()
        self._earlier: Reply | None = None
        self._queue: EventQueue | None = None
        self._charge: TurnCharge | None = None
        self._request = b""
        self._answered: asyncio.Future[Reply] | None = None
        self._outcome: PromptOutcome | None = None
        self._failure: Exception | None = None
        self._is_over_budget = False
        """True if the budget has ended the turn."""
        self._stop = Stop("cancelled")
        self._is_entered = False
        self._is_iterated = False
        self._is_left = False
        self._has_ended_itself = False
        """True if the agent has answered the last round before a cancel."""
        self._cancel_timer: asyncio.TimerHandle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._delivery_timer: asyncio.TimerHandle | None = None
        self._last_call: str | None = None
        self._judging: asyncio.Task[None] | None = None

    def __await__(self) -> Generator[Any, None, Reply]:
        return self._complete().__await__()

    def __aiter__(self) -> PromptEvents:
        return PromptEvents(self)

    async def __aenter__(self) -> Self:
        self._open_queue()
        await self._send()
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_entered = False
        await self.cancel()

    @property
    def reply(self) -> Reply | None:
        """The whole reply, if the agent has given it before anybody cancelled the turn."""
        if not isinstance(self._outcome, Reply) or not self._has_ended_itself:
            return None
        return self._outcome if self._outcome.stop_reason != "cancelled" else None

    @property
    def is_cancelled(self) -> bool:
        """True if the turn was cancelled or left, and only its end is waited for."""
        return self._is_left or self._cancel_timer is not None

    async def cancel(self) -> None:
        """Cancel the turn, if it runs, and wait until the agent has answered."""
        self._begin_cancel()
        if self._answered is not None:
            await asyncio.wait([self._answered])

    def leave(self) -> None:
        """Cancel the turn without waiting for it, because nobody reads on. Can be called in any thread.

        A prompt that was entered goes on until it is left.
        """
        if self._answered is None or self._answered.done():
            return
        self._is_left = not self._is_entered
        then = self.reading_ended if self._is_entered else self._begin_cancel
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the connection
            self._answered.get_loop().call_soon_threadsafe(then)

    async def listen(self) -> EventQueue:
        """Send the prompt, unless that was done, and return the queue of its events since the first call."""
        self._is_iterated = True
        queue = self._open_queue()
        await self._send()
        return queue

    def event_read(self, queue: EventQueue) -> None:
        """Let the agent go on, if enough of what it said has been read."""
        if queue.unread <= self._session.limits.unread_bytes // 2:
            self._session.let_go_on(self)

    def reading_ended(self) -> None:
        """Let the agent go on, because nobody iterates any more."""
        self._is_iterated = False
        self._session.let_go_on(self)

    async def explain(self, error: AgentError) -> AgentError:
        """Return a copy of the error with what is known of the agent's process by now."""
        return await self._session.with_exit_details(error)

    def accept(self, event: Event, size: int) -> None:
        """Take an event of this turn, which took `size` bytes."""
        self._progress.add(event)
        if self._queue is not None:
            if not self._queue.put(event, size) and self._is_iterated:
                self._begin_cancel()
            elif self._is_iterated and self._queue.unread > self._session.limits.unread_bytes:
                self._session.hold_back(self)
        if self._charge is not None:
            self._watch_budget(self._charge)

    def forget_call(self, id: str) -> bool:
        """Drop a tool call that the session holds no longer; returns whether it was one of this turn."""
        return self._progress.forget_call(id)

    def decided(self, decision: Decision) -> int:
        """Note a decision about a permission request of this turn; returns how many are held no longer."""
        return self._progress.decided(decision, self._session.limits.held_bytes)

    def end_with(self, failure: Exception, *, after_call: str | None = None) -> None:
        """End the turn: the prompt raises `failure`, after everything was received.

        The agent is to receive the result of `after_call` first; it may end its turn by itself then.
        """
        if self._failure is not None or self._outcome is not None or self._answered is None:
            return
        self._failure = failure
        if self._session.span is not None:
            self._session.span.fail(failure)
        if after_call is None:
            self._begin_cancel(self._options.grace)
        else:
            self._last_call = after_call
            loop = self._answered.get_loop()
            self._delivery_timer = loop.call_later(
                RESULT_DELIVERY_TIMEOUT, self._begin_cancel, self._options.grace
            )

    def call_reported(self, call: str | None) -> None:
        """Note that the agent has reported the end of a Python tool's call."""
        if call is not None and call == self._last_call:
            self._begin_cancel(self._options.grace)

    def accept_answer(self, answer: Response) -> None:
        """Take the answer to `session/prompt`, which comes after all updates of the turn."""
        self._has_ended_itself = not self.is_cancelled
        if isinstance(answer, RpcError):
            self._end_turn(self._session.failure("prompt", "session/prompt", answer))
            return
        try:
            response = decode(unstable.PromptResponse, answer, "client")
        except DecodingError as error:
            message = f"the agent's answer to session/prompt cannot be read: {error}"
            self._end_turn(AgentError("prompt", message))
            return
        usage = None if response.usage is UNSET else response.usage
        self._stop = Stop(response.stop_reason, usage, dict(response.meta) if response.meta else None)
        if self._session.linger and not self.is_cancelled:
            self._judging = self._session.start(self._session.silence())
            self._judging.add_done_callback(self._lingered)
        else:
            self._end_turn(self._finished(self._stop))

    def _finished(self, stop: Stop) -> Reply:
        self._session.fail_rejected(self._progress.rejected)
        return self._progress.finished(stop, self._session.cut)

    async def _complete(self) -> Reply:
        try:
            answered = await self._send()
            self.reading_ended()  # whoever waits for the reply does not read the events
            # Shielded, because the answer is still wanted when this wait is cancelled.
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        except AgentError as error:
            raise await self.explain(error) from None

    async def _send(self) -> asyncio.Future[Reply]:
        if self._answered is None:
            self._options.refuse_if_over()
            await self._session.cancelled_turn_ended()
            await self._session.late_text_ended()
        if self._answered is None:  # else another task has sent it meanwhile
            self._answered = asyncio.get_running_loop().create_future()
            try:
                self._session.take_prompt(self)
                if self._session.awaits_tools:
                    self._judging = self._session.start(self._send_with_tools())
                    self._judging.add_done_callback(self._waited)
                else:
                    self._send_round(self._options.opening(self._blocks))
            except BaseException:
                self._answered = None
                self._session.prompt_ended(self)
                raise
            self._set_deadline()
        return self._answered

    async def _send_with_tools(self) -> None:
        """Send the prompt once the agent has our tools: some ask after they have opened it."""
        await self._session.tools_told()
        self._judging = None
        self._send_round(self._options.opening(self._blocks))

    def _waited(self, waiting: asyncio.Task[None]) -> None:
        """End a prompt that was not sent: it was cancelled, its agent has ended, or it cannot be sent."""
        if not waiting.cancelled():
            if (error := waiting.exception()) is not None:
                self._end(error)
            return
        outcome: PromptOutcome = self._progress.finished(Stop("cancelled"))
        if not self.is_cancelled:
            try:
                self._session.refuse_if_over()
            except AgentError as error:
                outcome = error
        self._end(outcome)

    def _send_round(self, blocks: tuple[ContentBlock, ...]) -> None:
        self._charge = None if self._options.budget is None else self._options.budget.begin_turn()
        session = self._session
        self._progress = ReplyBuilder(_characters(blocks), session.usage, session.token_reports)
        try:
            self._request = self._session.send_prompt(self, blocks, self._options.meta)
        except BaseException:
            if self._charge is not None:
                self._charge.withdraw()
            raise

    def _set_deadline(self) -> None:
        seconds = self._options.seconds_left()
        if seconds is not None:
            self._deadline_timer = asyncio.get_running_loop().call_later(seconds, self._expire, seconds)

    def _expire(self, seconds: float) -> None:
        self.end_with(AgentError("deadline", f"the agent was not done within {seconds:g} s"))

    def _watch_budget(self, charge: TurnCharge) -> None:
        budget = self._options.budget
        cost = self._progress.usage.cost if budget is not None and budget.cost is not None else None
        if (excess := charge.note(self._progress.rough_tokens, cost or 0.0)) is not None:
            self._is_over_budget = self._is_over_budget or self._failure is None
            self.end_with(AgentError("budget", excess))

    def _tell_final_excess(self) -> None:
        """Let the error of a turn that the budget has ended name what was used in the end."""
        budget = self._options.budget
        if self._is_over_budget and budget is not None and (excess := budget.excess()) is not None:
            self._failure = AgentError("budget", excess)

    def _begin_cancel(self, grace: float | None = None) -> None:
        seconds = self._options.grace if grace is None else grace
        if self._answered is None or self._answered.done() or self._cancel_timer is not None:
            return
        self._cancel_timer = self._answered.get_loop().call_later(seconds, self._give_up, seconds)
        self._session.let_go_on(self)  # its answer is to be read
        if self._judging is not None:
            self._judging.cancel()
        else:
            self._session.send_cancel()

    def _give_up(self, seconds: float) -> None:
        """Stop waiting for an agent that ignores the cancel; one that still speaks is ended."""
        self._session.give_up(self._request, kill=self._failure is not None)
        self._end_turn(AgentError("prompt", f"the agent did not end the turn within {seconds:g} s"))

    def _lingered(self, silence: asyncio.Task[None]) -> None:
        """End the turn after the silence that follows an answer, or when nobody waits for that any more."""
        self._judging = None
        self._end_turn(self._finished(self._stop))

    def _end_turn(self, outcome: PromptOutcome) -> None:
        if self._answered is None or self._outcome is not None:
            return
        if self._session.span is not None:
            self._session.span.end(outcome)
        if self._charge is not None:
            # Also what failed was used, and whoever tries again and again is to notice.
            self._charge.settle(outcome.usage if isinstance(outcome, Reply) else self._progress.usage)
            self._tell_final_excess()
        if isinstance(outcome, Reply) and self._earlier is not None:
            outcome = merge_rounds(self._earlier, outcome)
        self._session.turn_ended(outcome)
        is_judged = self._options.goals and not self.is_cancelled and self._failure is None
        if isinstance(outcome, Reply) and is_judged:
            reply = outcome
            self._judging = self._session.start(self._judge(reply))
            self._judging.add_done_callback(lambda judging: self._judged(judging, reply))
        else:
            self._end(outcome)

    async def _judge(self, reply: Reply) -> None:
        """Let the goals judge the reply, and send the agent back to work or end."""
        verdict = await self._options.judge(reply)
        if isinstance(verdict, Reply):
            self._end(verdict)
        elif self.is_cancelled:  # a check may have gone on all the same
            raise asyncio.CancelledError
        else:
            await self._session.late_text_ended()
            self._earlier, self._judging = reply, None
            self._send_round((TextContent(verdict),))

    def _judged(self, judging: asyncio.Task[None], reply: Reply) -> None:
        """Handle every end of the judging task: a cancel before its first step, or any exception."""
        if judging.cancelled():
            self._end(msgspec.structs.replace(reply, stop_reason="cancelled"))
        elif (error := judging.exception()) is not None:
            if isinstance(error, AgentError):
                error.reply = error.reply or reply
            self._end(error)

    def _end(self, outcome: PromptOutcome) -> None:
        if self._answered is None or self._outcome is not None:
            return
        self._outcome = outcome = self._final(outcome)
        self._session.prompt_ended(self)
        for timer in (self._cancel_timer, self._deadline_timer, self._delivery_timer):
            if timer is not None:
                timer.cancel()
        if isinstance(outcome, Reply):
            self._answered.set_result(outcome)
        else:
            self._answered.set_exception(outcome)
            self._answered.exception()  # somebody who only iterates gets it from the queue
        if self._queue is not None:
            _end_queue(self._queue, outcome, self._stop)

    def _final(self, outcome: PromptOutcome) -> PromptOutcome:
        """Return the outcome for whoever waits: the reason for which the turn was ended goes first."""
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
        """Return the partial reply, if anything was received."""
        if isinstance(error, AgentError) and error.reply is not None:
            return error.reply
        stop = Stop("cancelled" if self.is_cancelled else "failed")
        partial = self._progress.finished(stop, self._session.cut)
        return partial if self._earlier is None else merge_rounds(self._earlier, partial)

    def _open_queue(self) -> EventQueue:
        if self._queue is None:
            self._queue = EventQueue()
            if self._outcome is not None:  # what came was not kept, for nobody asked; how it ended is known
                _end_queue(self._queue, self._outcome, self._stop)
        return self._queue


class PromptEvents:
    """Iterates over a prompt's events. Dropped before the last one, as by `break`, it cancels the turn."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._queue: EventQueue | None = None
        self._has_read = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            if self._queue is None:
                self._queue = await self._prompt.listen()
            event = await self._queue.next()
            self._prompt.event_read(self._queue)
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
        """Cancel the turn, and wait until it has ended."""
        await self._prompt.cancel()

    def __del__(self) -> None:
        if self._has_read:
            self._prompt.leave()


def _end_queue(queue: EventQueue, outcome: PromptOutcome, stop: Stop) -> None:
    if isinstance(outcome, Reply):
        queue.put(Stop(outcome.stop_reason, stop.usage, stop.meta), 0)
        queue.end()
    else:
        queue.end(outcome)


def _characters(blocks: tuple[ContentBlock, ...]) -> int:
    return sum(len(block.text) for block in blocks if isinstance(block, TextContent))


class _Joined:
    """Chunks of one message that are joined when they are read."""

    def __init__(self, first: Text | Thought) -> None:
        self.kind = type(first)
        self.message_id = first.message_id
        self.pieces = [first.text]

    def continues(self, event: Event) -> bool:
        return type(event) is self.kind and event.message_id == self.message_id

    def event(self) -> Text | Thought:
        return self.kind("".join(self.pieces), self.message_id)


_Item: TypeAlias = tuple[Event | _Joined, int]


class EventQueue:
    """Passes events from the reader, which never waits, to one consumer, which may.

    Unread events past a limit merge without loss: text of one message is joined, and a tool call's later
    state replaces the earlier one. What is still too much fails this consumer alone.
    """

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self.unread = 0
        """Bytes of the events in it."""
        self._ended = False
        self._failure: BaseException | None = None
        self._arrival: asyncio.Future[None] | None = None

    def put(self, event: Event, size: int) -> bool:
        """Add an event that took `size` bytes on the wire; False if too much is unread."""
        if self._ended:
            return False
        self.unread += size
        if self.unread > MOST_UNREAD_BYTES:
            message = f"more than {MOST_UNREAD_BYTES} bytes of events were not read"
            self.end(AgentError("overflow", message))
            return False
        if len(self._items) < MERGE_ABOVE or not self._merge(event, size):
            self._items.append((event, size))
        self._wake()
        return True

    def end(self, failure: BaseException | None = None) -> None:
        """End the queue; a failure is raised after everything before it was read."""
        if not self._ended:
            self._ended = True
            self._failure = failure
            self._wake()

    async def next(self) -> Event | None:
        """Wait for the next event; None after the last."""
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
        """Return the next event if one is there, without waiting."""
        if not self._items:
            return None
        item, size = self._items.popleft()
        self.unread -= size
        return item.event() if isinstance(item, _Joined) else item

    def _merge(self, event: Event, size: int) -> bool:
        last, last_size = self._items[-1]
        if isinstance(event, ToolCall):
            if not isinstance(last, ToolCall) or last.id != event.id or last.meta is not event.meta:
                return False
            self._items[-1] = (event, last_size + size)
            return True
        if not isinstance(event, Text | Thought) or event.meta is not None:
            return False
        if isinstance(last, Text | Thought) and last.meta is None:
            last = _Joined(last)
        if not isinstance(last, _Joined) or not last.continues(event):
            return False
        last.pieces.append(event.text)
        self._items[-1] = (last, last_size + size)
        return True

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


WITHDRAWN = "not permitted: the turn was cancelled"


class PendingDialogs:
    """The open permission requests and elicitations of one session.

    Each is answered once: decided, withdrawn by a cancel or the end of the session, or failed.
    """

    def __init__(self, start: StartTask) -> None:
        self._start = start
        self._open: dict[Request, tuple[Any, asyncio.Task[None] | None]] = {}
        self._unasked: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, request: Request, decide: Callable[[], Awaitable[Any]], withdrawn: Any, who: str) -> None:
        """Run `decide` to find the answer; `withdrawn` is the answer if the request is withdrawn first.

        `who` names what decides, in errors.
        """
        self._open[request] = (withdrawn, None)
        task = self._start(self._decide(request, decide, who))
        if request in self._open:  # else an eager task has answered already
            self._open[request] = (withdrawn, task)
        cancelled = RpcError.because(CANCELLED, "the request was cancelled")
        request.when_cancelled(lambda: self._withdraw(request, cancelled))

    async def decided(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a decision that is no request of its own; raises RpcError if it is withdrawn first."""
        deciding = asyncio.ensure_future(work)
        self._unasked.add(deciding)
        try:
            await deciding
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            raise RpcError.because(NOT_PERMITTED, WITHDRAWN) from None
        finally:
            self._unasked.discard(deciding)
            deciding.cancel()

    def withdraw(self) -> None:
        """Answer all open requests as withdrawn."""
        for deciding in self._unasked:
            deciding.cancel()
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
        """Answer a request that is still open; a decision may come after it was withdrawn."""
        if request not in self._open:
            return
        del self._open[request]
        if isinstance(answer, RpcError):
            request.fail(answer)
        else:
            request.answer(answer)
