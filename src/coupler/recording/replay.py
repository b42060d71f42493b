"""Replays a recording, as the agent or as the client, without a model.

`scripts_of` cuts a recording into scripts, one for each request of the client. `ReplayedAgent` answers a
request as the next recorded one of its method and session was, with everything that the agent said and asked
on the way. What the agent asked is asked again, and the answer awaited but not obeyed: the recording knows
only how it went on then. Request ids are those of this connection; session ids stay as recorded, unless the
client comes with its own. `ReplayedClient` plays the client's side against an agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from coupler.client.connection import Link
from coupler.recording.traces import Side, Trace, TraceEntry, TraceExchange, id_key
from coupler.wire.frames import FrameBuffer
from coupler.wire.messages import CANCELLED, INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError
from coupler.wire.peer import CANCEL_REQUEST, Peer, Request, Response
from coupler.wire.transport import TappedTransport, Transport

FRAME_LIMIT = 96 * 1024 * 1024
"""Bytes of the longest line that a client may send."""

GRACE = 1.0
"""Seconds to finish playing after a client has closed its input, as far as nothing more is needed from it."""

LANE = "replay"
"""The lane of all messages, so that they arrive in the order in which they are played."""

PROMPT = "session/prompt"
CANCEL = "session/cancel"

OPENING_METHODS = frozenset({"session/new", "session/fork"})
"""Requests whose answer names a new session."""

SETTLE_SECONDS = 0.5
"""Seconds in which an agent may still send something after an answer."""

SHORT_WAIT = 2.0
"""Seconds to wait for what the recording has before a cancel, or at the very end."""

ShowMessage = Callable[[str], None]

StepAction: TypeAlias = Literal["send", "ask", "answer", "await answer", "await cancel"]


class ReplayStep(NamedTuple):
    """One step of a script: the agent sends, asks or answers, or the client does what was awaited."""

    action: StepAction
    entry: TraceEntry


@dataclass
class ReplayScript:
    """The agent's messages from a request to its answer; without a request, those at the very start.

    An agent's messages belong to the exchange that caused them: to the running turn of their session, else to
    another open request there, else to the last answered one. So each script can be played when its request
    comes, whatever else goes on at the same time, and two recordings of the same conversation can be
    compared.
    """

    exchange: TraceExchange | None = None
    session: Any = None
    steps: list[ReplayStep] = field(default_factory=list)

    @property
    def method(self) -> str:
        return self.exchange.method if self.exchange is not None else ""

    @property
    def is_cancelled(self) -> bool:
        """True if the client cancelled it."""
        return any(step.action == "await cancel" for step in self.steps)

    @property
    def opened_session(self) -> Any:
        """The id of the session that it opened."""
        result = self.exchange.result if self.exchange is not None else None
        return (
            result.get("sessionId") if self.method in OPENING_METHODS and isinstance(result, dict) else None
        )


def scripts_of(trace: Trace) -> list[ReplayScript]:
    """Return the scripts of a recording in the order of their requests; the first has no request."""
    return _Reader(trace).read()


def session_of(entry: TraceEntry) -> Any:
    """Return the session that a request or a notification is about."""
    return entry.params.get("sessionId") if isinstance(entry.params, dict) else None


class _Reader:
    """Reads a trace once and cuts it into scripts."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._scripts = [ReplayScript()]
        self._by_request: dict[int, ReplayScript] = {}
        self._by_answer: dict[int, ReplayScript] = {}
        self._asked: dict[int, ReplayScript] = {}
        self._open: list[ReplayScript] = []
        self._last: dict[Any, ReplayScript] = {}

    def read(self) -> list[ReplayScript]:
        for exchange in self._trace.exchanges():
            script = ReplayScript(exchange, session_of(exchange.request))
            self._scripts.append(script)
            self._by_request[exchange.request.number] = script
            if exchange.answer is not None:
                self._by_answer[exchange.answer.number] = script
        answers = {
            exchange.answer.number: exchange
            for exchange in self._trace.exchanges(sender="agent")
            if exchange.answer is not None
        }
        for entry in self._trace.entries:
            if entry.sender == "agent":
                self._read_agents(entry)
            else:
                self._read_clients(entry, answers.get(entry.number))
        return self._scripts

    def _read_agents(self, entry: TraceEntry) -> None:
        script = self._by_answer.get(entry.number)
        if script is not None:
            script.steps.append(ReplayStep("answer", entry))
            self._open.remove(script)
            for session in {script.session, script.opened_session, None}:
                self._last[session] = script
        elif entry.is_answer:
            return  # an answer to nothing: whoever asks in a replay has asked something else
        elif entry.is_request:
            script = self._cause_of(entry)
            script.steps.append(ReplayStep("ask", entry))
            self._asked[entry.number] = script
        else:
            self._cause_of(entry).steps.append(ReplayStep("send", entry))

    def _read_clients(self, entry: TraceEntry, answered: TraceExchange | None) -> None:
        if entry.number in self._by_request:
            self._open.append(self._by_request[entry.number])
        elif answered is not None:
            self._asked[answered.request.number].steps.append(ReplayStep("await answer", entry))
        elif entry.method in (CANCEL, CANCEL_REQUEST):
            for script in self._cancelled_by(entry):
                script.steps.append(ReplayStep("await cancel", entry))

    def _cause_of(self, entry: TraceEntry) -> ReplayScript:
        session = session_of(entry)
        mine = [script for script in self._open if script.session == session and session is not None]
        turns = [script for script in mine if script.method == PROMPT]
        candidates = turns or mine or [*filter(None, [self._last.get(session)])]
        if not candidates:
            candidates = self._open or [*filter(None, [self._last.get(None)])] or self._scripts[:1]
        return candidates[-1]

    def _cancelled_by(self, entry: TraceEntry) -> Iterator[ReplayScript]:
        for script in self._open:
            assert script.exchange is not None
            if entry.method == CANCEL:
                if script.method == PROMPT and script.session == session_of(entry):
                    yield script
            elif isinstance(entry.params, dict):
                request = script.exchange.request.message["id"]
                if id_key(entry.params.get("requestId")) == id_key(request):
                    yield script


class ReplayedAgent:
    """Plays the agent's side of one recording to one client."""

    def __init__(self, trace: Trace, transport: Transport, *, pace: float = 0.0, say: ShowMessage) -> None:
        """Prepare to serve a client; `pace` multiplies the recorded times, and 0 is as fast as possible."""
        self._scripts = scripts_of(trace)
        self._unplayed = self._scripts[1:]
        self._recorded_answers = {
            exchange.request.number: exchange.answer for exchange in trace.exchanges(sender="agent")
        }
        self._pace = pace
        self._say = say
        self._peer = Peer(transport, self, frame_limit=FRAME_LIMIT)
        self._playing: list[_Play] = []
        self._asked: dict[str, int] = {}
        self._sessions: dict[Any, Any] = {}
        self._known: set[Any] = set()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until the client leaves."""
        self._peer.open()
        opening = _Play(self, self._scripts[0], None)
        self._peer.start(opening.run())
        await self._ended.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._peer.all_answered()
                await self._peer.drain()
        await self._peer.close()

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def pace(self) -> float:
        return self._pace

    def request_received(self, request: Request) -> None:
        request.lane = LANE
        params = _decoded(request.params)
        session = params.get("sessionId") if isinstance(params, dict) else None
        script = self._next(request.method, session)
        if script is None:
            request.fail(self._unexpected(request.method, session))
            return
        self._unplayed.remove(script)
        self._known.add(script.opened_session)
        if session is not None:
            self._sessions[session] = script.session
        play = _Play(self, script, request)
        self._playing.append(play)
        request.when_cancelled(play.cancel_request)
        self._peer.start(play.run())

    def notification_received(self, method: str, params: Raw) -> None:
        if method != CANCEL:
            return
        value = _decoded(params)
        session = value.get("sessionId") if isinstance(value, dict) else None
        for play in [*self._playing]:
            if play.script.method == PROMPT and play.script.session == self._sessions.get(session, session):
                play.cancel()

    def disconnected(self, error: RpcError) -> None:
        self._ended.set()

    def over(self, play: _Play) -> None:
        """Note that a script was played to its end."""
        if play in self._playing:
            self._playing.remove(play)

    def send(self, entry: TraceEntry) -> None:
        """Send what was recorded, with this connection's ids in it."""
        message = entry.message
        if not message:
            self._peer.send(entry.line + b"\n", LANE)
            return
        params = self._translated(message.get("params"))
        if entry.method == CANCEL_REQUEST and isinstance(params, dict):
            live = self._asked.get(id_key(params.get("requestId")))
            params = {**params, "requestId": live} if live is not None else params
        self._peer.send(
            msgspec.json.encode({**message, "params": params} if "params" in message else message) + b"\n",
            LANE,
        )

    def ask(self, entry: TraceEntry, answered: asyncio.Future[Any]) -> None:
        """Send the client a request that the agent had sent."""

        def deliver(answer: Response) -> None:
            self._compare(entry, answer)
            if not answered.done():
                answered.set_result(None)

        params = self._translated(entry.params if "params" in entry.message else {})
        key = self._peer.ask(entry.method or "", params, deliver, LANE)
        self._asked[id_key(entry.message["id"])] = int(key)

    def result(self, value: Any) -> Any:
        return self._translated(value)

    def _next(self, method: str, session: Any) -> ReplayScript | None:
        mine = [script for script in self._unplayed if script.method == method]
        recorded = self._sessions.get(session, session)
        exact = next((script for script in mine if script.session == recorded), None)
        if exact is not None or session is None or session in self._sessions or session in self._known:
            return exact
        # The client comes with a session of its own: it is the next one that nobody has asked for.
        taken = {None, *self._sessions.values(), *self._known}
        return next((script for script in mine if script.session not in taken), None)

    def _unexpected(self, method: str, session: Any) -> RpcError:
        recorded = [script for script in self._scripts if script.method == method]
        left = [script.method for script in self._unplayed]
        if not recorded:
            message = (
                f"the recording has no {method}; it has {_listed(script.method for script in self._scripts)}"
            )
            return RpcError.because(METHOD_NOT_FOUND, message, expected=left[:10])
        where = "" if session is None else f" in session {session!r}"
        message = (
            f"the recording has no further {method}{where}: it has {len(recorded)} in all; "
            f"it goes on with {left[0] if left else 'nothing, it is over'}"
        )
        return RpcError.because(INTERNAL_ERROR, message, expected=left[:10])

    def _compare(self, asked: TraceEntry, answer: Response) -> None:
        """Report when the client decides differently than in the recording."""
        recorded = self._recorded_answers.get(asked.number)
        if (
            recorded is None
            or answer is self._peer.closed_because
            or asked.method != "session/request_permission"
        ):
            return
        given = {"error": answer.message} if isinstance(answer, RpcError) else _decoded(answer)
        if given != recorded.message.get("result"):
            self._say(
                f"{asked.method} was answered with {_short(given)}, and was recorded with "
                f"{_short(recorded.message.get('result'))}: it goes on as recorded"
            )

    def _translated(self, value: Any) -> Any:
        """Replace recorded session ids with the client's own."""
        own = {recorded: live for live, recorded in self._sessions.items()}
        if isinstance(value, dict) and value.get("sessionId") in own:
            return {**value, "sessionId": own[value["sessionId"]]}
        return value


class _Play:
    """Plays one script to whoever sent the request."""

    def __init__(self, agent: ReplayedAgent, script: ReplayScript, request: Request | None) -> None:
        self.script = script
        self._agent = agent
        self._request = request
        self._cancelled = asyncio.Event()
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._is_answered = False

    def cancel(self) -> None:
        """Cancel the turn: where the recording has a cancel it continues, elsewhere it ends at once."""
        self._cancelled.set()
        if not self.script.is_cancelled and not self._is_answered and self._request is not None:
            self._is_answered = True
            self._request.answer({"stopReason": "cancelled"})

    def cancel_request(self) -> None:
        """Cancel the request: the client does not want the answer any more."""
        self._cancelled.set()
        if not self.script.is_cancelled and not self._is_answered and self._request is not None:
            self._is_answered = True
            self._request.fail(RpcError.because(CANCELLED, "the request was cancelled"))

    async def run(self) -> None:
        before = self.script.exchange.request.at if self.script.exchange is not None else 0.0
        for step in self.script.steps:
            if self._is_cut_short:
                break
            if step.action not in ("await answer", "await cancel"):
                await self._wait(step.entry.at - before)
            before = step.entry.at
            await self._take(step)
        if self._request is not None and not self._is_answered:
            self._is_answered = True
            message = f"the recording ends before the answer to {self.script.method}"
            self._request.fail(RpcError.because(INTERNAL_ERROR, message))
        self._agent.over(self)

    @property
    def _is_cut_short(self) -> bool:
        """True if the client cancelled what was not cancelled in the recording."""
        return self._cancelled.is_set() and not self.script.is_cancelled and self._request is not None

    async def _wait(self, seconds: float) -> None:
        if self._agent.pace > 0 and seconds > 0:
            await asyncio.sleep(seconds * self._agent.pace)
        # Room in the outgoing queue, so that a client that does not read is not filled up.
        await self._agent.peer.drain()

    async def _take(self, step: ReplayStep) -> None:
        entry = step.entry
        match step.action:
            case "send" if not self._is_cut_short:
                self._agent.send(entry)
            case "ask" if not self._is_cut_short:
                answered = asyncio.get_running_loop().create_future()
                self._answers[id_key(entry.message["id"])] = answered
                self._agent.ask(entry, answered)
            case "await answer":
                await self._answers[id_key(entry.message.get("id"))]
            case "await cancel":
                await self._cancelled.wait()
            case "answer" if self._request is not None and not self._is_answered:
                self._is_answered = True
                if "error" in entry.message:
                    self._request.fail(_error_of(entry.message["error"]))
                else:
                    self._request.answer(
                        Raw(msgspec.json.encode(self._agent.result(entry.message["result"])))
                    )


def _error_of(error: Any) -> RpcError:
    if not isinstance(error, dict):
        return RpcError(INTERNAL_ERROR.code, str(error))
    code = error.get("code")
    return RpcError(
        code if isinstance(code, int) else INTERNAL_ERROR.code, str(error.get("message")), error.get("data")
    )


def _decoded(params: Raw) -> Any:
    try:
        return msgspec.json.decode(params) if params else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _listed(methods: Any) -> str:
    return ", ".join(dict.fromkeys(filter(None, methods))) or "no requests"


def _short(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:200]


class ReplayedClient:
    """Plays the client's side of one recording to one agent.

    Requests are sent when what they followed in the recording has happened again, and the agent's requests
    are answered as they were then. Everything is noted in a trace, for `replay_difference` to compare.
    """

    def __init__(self, trace: Trace, link: Link, *, timeout: float) -> None:
        """Prepare to drive an agent, which has `timeout` seconds for each answer."""
        self.trace = Trace(trace.label)
        """The trace of the replayed conversation."""
        self.stopped_because = ""
        """The reason why the recording was not played to its end."""
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
        """Play everything and return the new trace. Raises AgentError if the agent does not start."""
        transport = TappedTransport(self._link.open(), self)
        self._peer = Peer(transport, self, frame_limit=FRAME_LIMIT, answers_garbage=False)
        try:
            self._peer.open()
            await self._play()
        finally:
            await self._peer.close()
            await self._link.close(grace=1.0)
            self.trace.exit_code, self.trace.stderr = self._link.exit_details()[:2]
        return self.trace

    async def _play(self) -> None:
        for entry in self._recorded.entries:
            if entry.sender == "client" and not entry.is_answer and not await self._play_entry(entry):
                return
        waiting = [number for number, script in self._scripts.items() if _answer_of(script) is not None]
        if await self._all_answered(waiting):
            await self._until(lambda: self._count() >= self._recorded_count(), SHORT_WAIT)
            await self._calm()

    async def _play_entry(self, entry: TraceEntry) -> bool:
        """Play one entry; returns whether it could be sent."""
        before = [
            number
            for number, script in self._scripts.items()
            if (answer := _answer_of(script)) is not None and answer.number < entry.number
        ]
        if not await self._all_answered(before):
            return False
        await self._until(
            lambda: _after_answer(self.trace) >= _after_answer(self._recorded, entry.number), SETTLE_SECONDS
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

    def _ask(self, entry: TraceEntry) -> None:
        answered = self._answered[entry.number] = asyncio.Event()
        script = self._scripts[entry.number]

        def deliver(answer: Response) -> None:
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

    async def _notify(self, entry: TraceEntry) -> None:
        if not entry.message:
            self._peer.send(entry.line + b"\n", LANE)
            return
        params = self._translated(entry.params)
        if entry.method in (CANCEL, CANCEL_REQUEST):
            await self._until(lambda: self._count() >= self._recorded_count(entry.number), SHORT_WAIT)
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

    async def _answer(self, request: Request, exchange: TraceExchange) -> None:
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
        """Do nothing: the notification is in the trace."""

    def disconnected(self, error: RpcError) -> None:
        self._is_gone = True
        self._news.set()

    def sent(self, data: bytes) -> None:
        self._note("client", data)

    def received(self, data: bytes) -> None:
        self._note("agent", data)

    def output_ended(self) -> None:
        """Do nothing."""

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
        """Wait until no more messages come, so that surplus ones are recorded too."""
        while True:
            count = self._count()
            if not await self._until(lambda count=count: self._count() > count, SETTLE_SECONDS):  # type: ignore[misc]
                return

    async def _until(self, look: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, checked after every message; returns whether it did in time."""
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

    def _sent_event(self, entry: TraceEntry) -> asyncio.Event:
        return self._sent.setdefault(entry.number, asyncio.Event())

    def _translated(self, value: Any) -> Any:
        if isinstance(value, dict) and value.get("sessionId") in self._sessions:
            return {**value, "sessionId": self._sessions[value["sessionId"]]}
        return value


def _after_answer(trace: Trace, end: int | None = None) -> int:
    """Count the messages that the agent has sent since its last answer."""
    count = 0
    for entry in reversed(trace.entries[:end]):
        if entry.sender == "agent":
            if entry.is_answer:
                break
            count += 1
        elif entry.is_request:
            return 0
    return count


def _request_number(script: ReplayScript) -> int:
    assert script.exchange is not None
    return script.exchange.request.number


def _answer_of(script: ReplayScript) -> TraceEntry | None:
    return script.exchange.answer if script.exchange is not None else None
