"""The client's side of a recording, played against an agent.

Requests are sent when what they followed in the recording has happened again, and what the agent asks is
answered as it was then. Everything that is said is noted in a trace, for `replay_difference` to compare.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from coupler.client.connection import Link
from coupler.inspect.replay_script import CANCEL, Script, scripts_of, session_of
from coupler.inspect.trace import Entry, Exchange, Side, Trace, id_key
from coupler.wire.frames import FrameBuffer
from coupler.wire.messages import METHOD_NOT_FOUND, RpcError
from coupler.wire.peer import CANCEL_REQUEST, Answer, Peer, Request
from coupler.wire.transport import TappedTransport

FRAME_LIMIT = 96 * 1024 * 1024
"""Bytes of the longest line that an agent may send."""

CALM = 0.5
"""Seconds in which an agent says what it still has to say after an answer."""

SOON = 2.0
"""Seconds to wait for what was there in the recording before a cancel, or at the very end."""

LANE = "replay"


class ReplayedClient:
    """Plays one recording to one agent."""

    def __init__(self, trace: Trace, link: Link, *, timeout: float) -> None:
        """`timeout` is how many seconds the agent may take for an answer."""
        self.trace = Trace(trace.label)
        """What is said this time."""
        self.stopped_because = ""
        """Why the recording was not played to its end."""
        self._recorded = trace
        self._link = link
        self._timeout = timeout
        self._scripts = {_request_number(script): script for script in scripts_of(trace)[1:]}
        self._unasked = trace.exchanges(sender="agent")
        self._answered: dict[int, asyncio.Event] = {}
        self._sent: dict[int, asyncio.Event] = {}
        self._ids: dict[str, int] = {}
        self._sessions: dict[Any, Any] = {}
        self._news = asyncio.Event()
        self._is_gone = False
        self._began = time.monotonic()
        self._frames: dict[Side, FrameBuffer] = {
            "client": FrameBuffer(FRAME_LIMIT),
            "agent": FrameBuffer(FRAME_LIMIT),
        }
        self._peer: Peer

    async def run(self) -> Trace:
        """Play everything; the trace of it. Raises AgentError if the agent does not start."""
        transport = TappedTransport(self._link.open(), self)
        self._peer = Peer(transport, self, frame_limit=FRAME_LIMIT, answers_garbage=False)
        try:
            self._peer.open()
            await self._play()
        finally:
            await self._peer.close()
            await self._link.close(grace=1.0)
            self.trace.exit_code, self.trace.stderr = self._link.last_words()[:2]
        return self.trace

    async def _play(self) -> None:
        for entry in self._recorded.entries:
            if entry.sender == "client" and not entry.is_answer and not await self._play_entry(entry):
                return
        waiting = [number for number, script in self._scripts.items() if _answer_of(script) is not None]
        if await self._all_answered(waiting):
            await self._until(lambda: self._count() >= self._recorded_count(), SOON)
            await self._calm()

    async def _play_entry(self, entry: Entry) -> bool:
        """Whether it could be sent."""
        before = [
            number
            for number, script in self._scripts.items()
            if (answer := _answer_of(script)) is not None and answer.number < entry.number
        ]
        if not await self._all_answered(before):
            return False
        await self._until(
            lambda: _after_answer(self.trace) >= _after_answer(self._recorded, entry.number), CALM
        )
        if entry.is_request:
            self._ask(entry)
        else:
            await self._notify(entry)
        self._sent_event(entry).set()
        return True

    async def _all_answered(self, numbers: list[int]) -> bool:
        def open_ones() -> list[int]:
            return [number for number in numbers if not self._answered[number].is_set()]

        if await self._until(lambda: not open_ones(), self._timeout):
            return True
        method = self._recorded.entries[open_ones()[0]].method
        ending = "the agent ended" if self._is_gone else f"{self._timeout:g} s passed"
        self.stopped_because = f"{ending} before {method} was answered"
        return False

    def _ask(self, entry: Entry) -> None:
        answered = self._answered[entry.number] = asyncio.Event()
        script = self._scripts[entry.number]

        def deliver(answer: Answer) -> None:
            if isinstance(answer, Raw) and script.opened_session is not None:
                result = msgspec.json.decode(answer)
                if isinstance(result, dict):
                    self._sessions[script.opened_session] = result.get("sessionId")
            if not self._is_gone:
                answered.set()
            self._news.set()

        params = self._translated(entry.params if "params" in entry.message else {})
        key = self._peer.ask(entry.method or "", params, deliver, LANE)
        self._ids[id_key(entry.message["id"])] = int(key)

    async def _notify(self, entry: Entry) -> None:
        if not entry.message:
            self._peer.send(entry.line + b"\n", LANE)
            return
        params = self._translated(entry.params)
        if entry.method in (CANCEL, CANCEL_REQUEST):
            await self._until(lambda: self._count() >= self._recorded_count(entry.number), SOON)
        if entry.method == CANCEL_REQUEST and isinstance(params, dict):
            live = self._ids.get(id_key(params.get("requestId")))
            params = {**params, "requestId": live}
        self._peer.notify(entry.method or "", params, LANE)

    def request_received(self, request: Request) -> None:
        request.lane = LANE
        params = msgspec.json.decode(request.params) if request.params else None
        session = params.get("sessionId") if isinstance(params, dict) else None
        for exchange in self._unasked:
            asked = session_of(exchange.request)
            if exchange.method == request.method and self._sessions.get(asked, asked) == session:
                self._unasked.remove(exchange)
                self._peer.start(self._answer(request, exchange))
                return
        message = f"the recorded client was not asked for {request.method} here"
        raise RpcError.because(METHOD_NOT_FOUND, message)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        answer = exchange.answer
        if answer is None:
            return  # nor was it in the recording
        between = self._recorded.entries[exchange.request.number : answer.number]
        for entry in between:
            if entry.sender == "client" and entry.method == CANCEL:
                await self._sent_event(entry).wait()
        error = answer.message.get("error")
        if isinstance(error, dict):
            request.fail(RpcError(error.get("code", 0), str(error.get("message")), error.get("data")))
        else:
            request.answer(Raw(msgspec.json.encode(answer.message.get("result"))))

    def notification_received(self, method: str, params: Raw) -> None:
        """It is in the trace."""

    def disconnected(self, error: RpcError) -> None:
        self._is_gone = True
        self._news.set()

    def sent(self, data: bytes) -> None:
        self._note("client", data)

    def received(self, data: bytes) -> None:
        self._note("agent", data)

    def output_ended(self) -> None:
        """Nothing to note."""

    def input_ended(self) -> None:
        self._is_gone = True
        self._news.set()

    def _note(self, side: Side, data: bytes) -> None:
        for frame in self._frames[side].feed(data):
            if isinstance(frame, bytes):
                self.trace.append(time.monotonic() - self._began, side, frame)
        self._news.set()

    def _count(self) -> int:
        return sum(entry.sender == "agent" for entry in self.trace.entries)

    def _recorded_count(self, before: int | None = None) -> int:
        return sum(entry.sender == "agent" for entry in self._recorded.entries[:before])

    async def _calm(self) -> None:
        """Let what comes too much come, so that it is seen."""
        while True:
            count = self._count()
            if not await self._until(lambda count=count: self._count() > count, CALM):  # type: ignore[misc]
                return

    async def _until(self, look: Callable[[], bool], seconds: float) -> bool:
        """Whether it comes to be in that time; asked again whenever something was said."""
        try:
            async with asyncio.timeout(seconds):
                while not look():
                    if self._is_gone:
                        return False
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _sent_event(self, entry: Entry) -> asyncio.Event:
        return self._sent.setdefault(entry.number, asyncio.Event())

    def _translated(self, value: Any) -> Any:
        if isinstance(value, dict) and value.get("sessionId") in self._sessions:
            return {**value, "sessionId": self._sessions[value["sessionId"]]}
        return value


def _after_answer(trace: Trace, end: int | None = None) -> int:
    """How many frames the agent has sent since it answered something last."""
    count = 0
    for entry in reversed(trace.entries[:end]):
        if entry.sender == "agent":
            if entry.is_answer:
                break
            count += 1
        elif entry.is_request:
            return 0
    return count


def _request_number(script: Script) -> int:
    assert script.exchange is not None
    return script.exchange.request.number


def _answer_of(script: Script) -> Entry | None:
    return script.exchange.answer if script.exchange is not None else None
