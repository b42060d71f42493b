"""One side of a JSON-RPC connection.

`data_received` is synchronous and awaits nothing: messages are handled in the order in which they came,
and whatever takes time runs in a task of its own. So a running request, a dialog or a slow consumer never
stops the next message from being read. Sending never blocks either; see `Outbox` for who goes first.

Two things are bounded. Requests that wait for their answers: those beyond the limit are answered with an
error. And answers that wait to be read: beyond the limit nothing is read until the other side has taken some.
The reasons are in docs/decisions/flow-control.md.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import UNSET, DecodeError, Raw, Struct, json

from coupler.runtime import logs
from coupler.runtime.exceptions import exception_text
from coupler.wire import messages
from coupler.wire.frames import DEFAULT_LIMIT, Frame, FrameBuffer
from coupler.wire.messages import (
    ANSWERS_UNREAD,
    CANCELLED,
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    TIMED_OUT,
    TOO_MANY_REQUESTS,
    Envelope,
    Malformed,
    RpcError,
)
from coupler.wire.outbox import ANSWERS, Answer, LaneKey, Outbox
from coupler.wire.transport import Transport

if sys.version_info < (3, 11, 4):
    from coupler.runtime import threads

    threads.install_timeout_backport()

log = logging.getLogger("coupler.wire")

logs.limit_logs()

CANCEL_REQUEST = "$/cancel_request"

MAX_REQUESTS_IN_FLIGHT = 4096
"""Requests of the other side that wait for their answers; one more is answered with an error."""

FRAMES_IN_FLIGHT = 4
"""Frames of the greatest length that the requests in flight may have in all."""

MAX_UNREAD_ANSWERS = 10_000
"""Answers that wait to be written; with more nothing is read, until the other side has taken half of them."""

MAX_UNREAD_BYTES = 16 * 1024 * 1024
"""Bytes of such answers; the same holds for them."""

UNREAD_TIMEOUT = 60.0
"""Seconds in which the other side must take some of too many answers, or the connection ends."""

FRAMES_AT_ONCE = 64
"""Frames that are handled without a look at the clock, and at the answers that wait."""

TIME_SLICE = 0.01
"""Seconds after which the handling of many frames lets the event loop do something else."""

UNREADABLE_KEPT = 100
"""Bytes kept of the first line that is no message."""

Response = Raw | RpcError
ResponseCallback = Callable[[Response], None]

# What code of the layers above may raise without harm to the connection.
_FAULTS = (Exception, asyncio.CancelledError)


class Endpoint(Protocol):
    """Handles the messages of a peer. All calls are synchronous and in the order of arrival."""

    def request_received(self, request: Request) -> None:
        """Answer the request now, or start what will answer it."""

    def notification_received(self, method: str, params: Raw) -> None:
        """Handle the notification now, or start what will."""

    def disconnected(self, error: RpcError) -> None:
        """Handle the end: nothing more will come; pending requests have failed with this error."""


class Peer:
    """Sends and receives JSON-RPC messages over one transport; the endpoint handles them."""

    def __init__(
        self,
        transport: Transport,
        endpoint: Endpoint,
        *,
        frame_limit: int = DEFAULT_LIMIT,
        answers_garbage: bool = True,
    ) -> None:
        self.outbox = Outbox()
        self.closed_because: RpcError | None = None
        self.screen: Callable[[Any, LaneKey], Any] = _show_all
        """Filters every result and error, with its lane, before it is sent: secrets are redacted there."""
        self.unreadable = b""
        """The beginning of the first line that is no message, to show what the other side is."""
        self.before_write: Callable[[int, Callable[[], None]], bool] | None = None
        """Called before any of so many bytes are written: what they tell of may have to be durable.

        If it returns False, nothing but the control queue is written until it calls its second argument.
        """
        self._transport = transport
        self._endpoint = endpoint
        self._answers_garbage = answers_garbage
        self._most_bytes_in_flight = FRAMES_IN_FLIGHT * frame_limit
        self._frames = FrameBuffer(frame_limit)
        self._held: deque[Frame] = deque()
        """Frames that were read and are handled later, in order: nothing is read meanwhile."""
        self._input_is_over = False
        self._is_paused = False
        """True while frames wait to be handled, or too many answers to be read."""
        self._is_stopped = False
        """True between `pause_reading` and `resume_reading`."""
        self._resumes_soon = False
        self._unread_timer: asyncio.TimerHandle | None = None
        self._in_flight = 0
        self._bytes_in_flight = 0
        self._last_id = 0
        self._pending: dict[bytes, tuple[str, LaneKey, ResponseCallback]] = {}
        self._incoming: dict[bytes, Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwritten: bytes | memoryview = b""
        self._flush_is_due = False
        self._output_blocked = False
        self._output_broken = False
        self._await_drained: list[asyncio.Future[None]] = []
        self._await_answered: list[asyncio.Future[None]] = []

    def open(self) -> None:
        """Begin to receive. Needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._transport.open(self)

    def notify(self, method: str, params: Any, lane: LaneKey = None) -> None:
        """Send a notification. Never blocks."""
        self.send(messages.notification(method, params), lane)

    def ask(self, method: str, params: Any, deliver: ResponseCallback, lane: LaneKey = None) -> bytes:
        """Send a request; `deliver` gets the answer at receipt, in order with all other messages.

        Returns the request's id, which `give_up` takes.
        """
        self._last_id += 1
        key = b"%d" % self._last_id
        if self.closed_because is not None:
            deliver(self.closed_because)
            return key
        frame = messages.request(self._last_id, method, params)
        self._pending[key] = (method, lane, deliver)
        self.send(frame, lane)
        return key

    async def request(
        self, method: str, params: Any, *, lane: LaneKey = None, deadline: float | None = None
    ) -> Raw:
        """Send a request and wait for its result; cancelling the wait cancels the other side's work."""
        answered: asyncio.Future[Raw] = self._loop.create_future()
        key = self.ask(method, params, lambda answer: _settle(answered, answer), lane)
        try:
            async with asyncio.timeout(deadline):
                return await answered
        except TimeoutError:
            self.give_up(key)
            message = f"{method} was not answered within {deadline:g} s"
            raise RpcError.because(TIMED_OUT, message, method=method) from None
        except asyncio.CancelledError:
            self.give_up(key)
            raise

    def give_up(self, id: bytes) -> None:
        """Stop waiting for an answer and tell the other side so; what still comes is ignored."""
        if id in self._pending:
            # In the request's own lane: the cancel must not come before what it cancels.
            _, lane, _ = self._pending.pop(id)
            self.notify(CANCEL_REQUEST, {"requestId": int(id)}, lane)

    def send(self, frame: bytes, lane: LaneKey = None) -> bool:
        """Queue an encoded frame; once the other side is gone it is dropped.

        Returns whether a writer of this lane may continue without waiting.
        """
        if self._output_broken:
            return True
        if not self._flush_is_due:
            self._schedule_flush()
        return self.outbox.put(frame, lane)

    def send_answer(self, frame: bytes, lane: LaneKey = None) -> None:
        """Queue the frame of an answer; with too many of them unread, nothing more is read."""
        self.send(Answer(frame), lane)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that belongs to this connection and ends with it at the latest."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def all_answered(self) -> None:
        """Wait until every request that was read has its answer."""
        while self._in_flight:
            await self._wait_among(self._await_answered)

    async def drain(self) -> None:
        """Wait until everything queued was handed to the transport."""
        while self.outbox.unsent or self._unwritten:
            await self._wait_among(self._await_drained)

    def pause_reading(self) -> None:
        """Stop reading, so that the other side has to wait; also its answers then wait."""
        self._is_stopped = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless too many answers are unread."""
        self._is_stopped = False
        if not self._is_paused:
            self._transport.resume_reading()

    async def close(self, grace: float = 1.0) -> None:
        """End the connection and all running requests; what ignores that is left behind."""
        running = self._tasks - {asyncio.current_task()}
        for task in running:
            task.cancel()
        try:
            if running:
                await asyncio.wait(running, timeout=grace)
        finally:
            self.input_ended(RpcError.because(CONNECTION_CLOSED, "the connection was closed"))
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Handle every message that these bytes complete, in order."""
        frames = self._frames.feed(data)
        if self._held or len(frames) > FRAMES_AT_ONCE:
            self._held.extend(frames)
            if not self._is_paused:
                self._handle_held()
            return
        for frame in frames:
            self._handle(frame)
        if self._has_unread_answers():
            self._pause()

    def input_ended(self, error: Exception | None) -> None:
        """Handle the end of the input; with an error the other side does not read either."""
        if error is None and self._held:
            self._input_is_over = True
            return
        if error is not None:
            self._output_broken = True
            self._unwritten = b""
            self._held.clear()
            self._stop_unread_timer()
            self.outbox.clear()
            _wake(self._await_drained)
        if self.closed_because is not None:
            return
        if error is None:
            for frame in self._frames.end():
                self._handle(frame)
        self.closed_because = _closed_because(error)
        pending, self._pending = self._pending, {}
        for _, _, deliver in pending.values():
            self._tell(deliver, self.closed_because)
        self._tell(self._endpoint.disconnected, self.closed_because)

    def output_ready(self) -> None:
        """Continue writing."""
        self._output_blocked = False
        self._flush()

    def flush(self) -> None:
        """Write what is queued in this tick and not in the next, as far as the transport takes it."""
        if not self._output_blocked:
            self._flush()

    def forget_incoming(self, request: Request) -> None:
        """Note that the request was answered."""
        self._in_flight -= 1
        self._bytes_in_flight -= request.size
        if self._incoming.get(request.key) is request:
            del self._incoming[request.key]
        if not self._in_flight:
            _wake(self._await_answered)

    def _schedule_flush(self) -> None:
        if not self._flush_is_due and not self._output_blocked:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write once, so that what came in meanwhile is read before more goes out."""
        self._flush_is_due = False
        is_held = False
        if self.before_write is not None and self.outbox.unsent:
            is_held = not self.before_write(self.outbox.unsent, self._schedule_flush)
        data = self._unwritten or self.outbox.take(only_control=is_held)
        sent = self._transport.write(data) if data else 0
        if self._unread_timer is not None:
            self._resume_if_read()
        if sent < len(data):
            self._unwritten = memoryview(data)[sent:]
            self._output_blocked = True
            return
        self._unwritten = b""
        if not self.outbox.unsent:
            _wake(self._await_drained)
        elif not is_held or self.outbox.has_control:
            self._schedule_flush()

    def _handle_held(self) -> None:
        """Handle frames for a while; the rest waits for the loop's next turn, or for answers to be read."""
        self._resumes_soon = False
        ends = self._loop.time() + TIME_SLICE
        held, handle = self._held, self._handle
        while held and not self._has_unread_answers() and self._loop.time() < ends:
            for frame in [held.popleft() for _ in range(min(FRAMES_AT_ONCE, len(held)))]:
                handle(frame)
        if self._held or self._has_unread_answers():
            self._pause()
        elif self._is_paused:
            self._is_paused = False
            if not self._is_stopped:
                self._transport.resume_reading()
        if self._input_is_over and not self._held:
            self.input_ended(None)

    def _has_unread_answers(self) -> bool:
        return self.outbox.answers > MAX_UNREAD_ANSWERS or self.outbox.answer_bytes > MAX_UNREAD_BYTES

    def _pause(self) -> None:
        if self._output_broken:
            return
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        if self._has_unread_answers():
            if self._unread_timer is None:
                log.info("nothing is read while the other side leaves %d answers unread", self.outbox.answers)
                self._unread_timer = self._loop.call_later(UNREAD_TIMEOUT, self._end_unread)
        else:
            self._resume_soon()

    def _resume_if_read(self) -> None:
        """Go on reading if the other side has taken half of what it may leave unread; else wait for more."""
        self._stop_unread_timer()
        outbox = self.outbox
        if outbox.answers > MAX_UNREAD_ANSWERS // 2 or outbox.answer_bytes > MAX_UNREAD_BYTES // 2:
            self._unread_timer = self._loop.call_later(UNREAD_TIMEOUT, self._end_unread)
        else:
            self._resume_soon()

    def _resume_soon(self) -> None:
        if not self._resumes_soon:
            self._resumes_soon = True
            self._loop.call_soon(self._handle_held)

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _end_unread(self) -> None:
        count, size = self.outbox.answers, self.outbox.answer_bytes
        message = f"the other side left {count} answers ({size} bytes) unread for {UNREAD_TIMEOUT:g} s"
        log.warning("the connection ends: %s", message)
        self.input_ended(RpcError.because(ANSWERS_UNREAD, message))
        self._transport.close()

    async def _wait_among(self, waiters: list[asyncio.Future[None]]) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        waiters.append(waiter)
        await waiter

    def _tell(self, listener: Callable[[RpcError], None], error: RpcError) -> None:
        """Call a listener at the end of the connection; its error is logged, and others are still called."""
        try:
            listener(error)
        except _FAULTS:
            log.exception("the end of the connection could not be handled")

    def _handle(self, frame: Frame) -> None:
        try:
            message = messages.parse(frame, self._frames.limit)
            if isinstance(message, Malformed):
                self.unreadable = self.unreadable or _head(frame)
                self._handle_malformed(message)
            elif message.method is UNSET:
                self._handle_answer(message.id, _answer_in(message))
            elif message.id:
                size = len(frame)
                self._handle_request(Request(self, message.id, message.method, message.params, size))
            elif message.method == CANCEL_REQUEST:
                self._handle_cancel(message.params)
            else:
                self._endpoint.notification_received(message.method, message.params)
        except _FAULTS:
            # A fault of ours must cost one message, like a fault of the peer's.
            log.exception("a message could not be handled")

    def _handle_request(self, request: Request) -> None:
        self._incoming[request.key] = request
        self._in_flight += 1
        self._bytes_in_flight += request.size
        try:
            if self._in_flight > MAX_REQUESTS_IN_FLIGHT or self._bytes_in_flight > self._most_bytes_in_flight:
                self._refuse_if_busy(request)
            self._endpoint.request_received(request)
        except _FAULTS as error:
            request.fail_with(error)

    def _refuse_if_busy(self, request: Request) -> None:
        """Refuse a request among too many; a long one that is alone is served."""
        if self._in_flight > 1:
            message = (
                f"{self._in_flight - 1} requests wait for their answers already: "
                f"send {request.method[:100]} again when some have come"
            )
            raise RpcError.because(TOO_MANY_REQUESTS, message)

    def _handle_answer(self, id: Raw, answer: Response) -> None:
        method, _, deliver = self._pending.pop(bytes(id), (None, None, None))
        if deliver is None:
            log.info("an answer to the unknown request %s was ignored", bytes(id)[:100])
            return
        log.debug("%s was answered", method)
        deliver(answer)

    def _handle_cancel(self, params: Raw) -> None:
        try:
            target = _cancel_decoder.decode(params).request_id
        except DecodeError:
            log.warning("a %s without a requestId was ignored", CANCEL_REQUEST)
            return
        request = self._incoming.get(bytes(target))
        if request is not None:
            request.cancel()

    def _handle_malformed(self, message: Malformed) -> None:
        kind, echo, error = message
        if kind == "unknown" and bytes(echo) in self._pending:
            # JavaScript leaves a result out that is undefined.
            self._handle_answer(echo, messages.NULL)
            return
        what = "message" if kind == "unknown" else kind
        log.warning("a %s could not be read: %s", what, error.message)
        if kind == "response":
            self._handle_answer(echo, error)
        elif kind == "request" or (kind == "unknown" and self._answers_garbage):
            self.send_answer(messages.error_response(echo, self.screen(error, None)), ANSWERS)


class Request:
    """A request of the other side. It gets exactly one answer, however its work ends."""

    def __init__(self, peer: Peer, id: Raw, method: str, params: Raw, size: int) -> None:
        """Note a request that was read from a frame of `size` bytes."""
        self.id = id
        self.size = size
        self.key = bytes(id)
        self.method = method
        self.params = params
        self.lane: LaneKey = ANSWERS
        self.error: RpcError | None = None
        """The error that it was answered with, if it was."""
        self._peer = peer
        self._cancel: Callable[[], object] | None = None
        self._cancelled = False
        self._answered = False
        self._afterwards: list[Callable[[], object]] = []

    def answer(self, result: Any) -> None:
        """Answer with a result; None means an empty object."""
        self._finish(messages.response(self.id, self._peer.screen(result, self.lane)))

    def fail(self, error: RpcError) -> None:
        """Answer with an error."""
        self.error = error
        try:
            frame = messages.error_response(self.id, self._peer.screen(error, self.lane))
        except Exception as fault:
            log.exception("the error of %s cannot be sent", self.method)
            frame = messages.error_response(self.id, internal_error(fault))
        self._finish(frame)

    def fail_with(self, error: Exception | asyncio.CancelledError | SystemExit) -> None:
        """Answer with what its handling has raised; what is no answer is logged as a fault of ours."""
        if isinstance(error, RpcError):
            self.fail(error)
        elif isinstance(error, asyncio.CancelledError):
            self.fail(RpcError.because(CANCELLED, "the request was cancelled"))
        else:
            log.error("%s failed", self.method, exc_info=error)
            self.fail(internal_error(error))

    def waive(self) -> None:
        """Count the request as answered: the answer was sent by other means."""
        self._answered = True
        self._peer.forget_incoming(self)

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Answer with what `work` returns or raises; `$/cancel_request` cancels it."""
        task = self._peer.start(self._answer_with(work))
        task.add_done_callback(lambda _: self._finish_unstarted(work))
        self.when_cancelled(task.cancel)

    def when_cancelled(self, cancel: Callable[[], object]) -> None:
        """Have `$/cancel_request` call this, now if it came already; the answer is still owed afterwards."""
        self._cancel = cancel
        if self._cancelled:
            cancel()

    def when_answered(self, callback: Callable[[], object]) -> None:
        """Call this once the answer, whichever it is, is on its way: for what has to follow it."""
        self._afterwards.append(callback)

    def cancel(self) -> None:
        """Cancel the work: the other side no longer needs the answer. A second call does nothing."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._cancel is not None:
            self._cancel()

    async def _answer_with(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.answer(await work)
        except (*_FAULTS, SystemExit) as error:
            self.fail_with(error)

    def _finish_unstarted(self, work: Coroutine[Any, Any, Any]) -> None:
        # A task that is cancelled before its first step never enters its own code.
        if not self._answered:
            work.close()
            self.fail_with(asyncio.CancelledError())

    def _finish(self, frame: bytes) -> None:
        if self._answered:
            log.error("a second answer to %s was dropped", self.method)
            return
        self._answered = True
        self._peer.forget_incoming(self)
        self._peer.send_answer(frame, self.lane)
        for callback in self._afterwards:
            callback()


def internal_error(error: Exception | SystemExit) -> RpcError:
    """The error answer for an unexpected exception."""
    return RpcError.because(INTERNAL_ERROR, exception_text(error))


class _CancelRequest(Struct, rename="camel"):
    request_id: Raw


_cancel_decoder = json.Decoder(_CancelRequest)


def _head(frame: Frame) -> bytes:
    line = frame if isinstance(frame, bytes) else frame.head
    return line[:UNREADABLE_KEPT]


def _answer_in(message: Envelope) -> Response:
    # Peers exist that write `"error": null` beside a result.
    if not message.error or (message.result and bytes(message.error) == b"null"):
        return message.result
    return messages.parse_error(message.error)


def _settle(future: asyncio.Future[Raw], answer: Response) -> None:
    if future.done():
        return
    if isinstance(answer, RpcError):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _show_all(answer: Any, lane: LaneKey) -> Any:
    return answer


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


def _closed_because(error: Exception | None) -> RpcError:
    if isinstance(error, RpcError):
        return error
    detail = f": {error}" if error is not None else ""
    return RpcError.because(CONNECTION_CLOSED, f"the other side closed the connection{detail}")
