"""A recording served again as an agent: the same every time, and without a model.

A request is answered as the next recorded one of its method and session was, with everything that the agent
said and asked on the way. What the agent asked is asked again, and the answer waited for, but not obeyed:
the recording knows only how it went on then. Ids of requests are those of this connection; ids of sessions
stay as they were recorded, unless the client comes with one of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from coupler.inspect.replay_script import CANCEL, PROMPT, Script, Step, scripts_of
from coupler.inspect.trace import Entry, Trace, id_key
from coupler.wire.messages import CANCELLED, INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError
from coupler.wire.peer import CANCEL_REQUEST, Answer, Peer, Request
from coupler.wire.transport import Transport

FRAME_LIMIT = 96 * 1024 * 1024
"""Bytes of the longest line that a client may send."""

GRACE = 1.0
"""Seconds to play what needs nothing more from a client that has closed its end."""

LANE = "replay"
"""Everything goes through one lane, so that it arrives in the order in which it is played."""

Say = Callable[[str], None]


class ReplayedAgent:
    """Plays one recording to one client."""

    def __init__(self, trace: Trace, transport: Transport, *, pace: float = 0.0, say: Say) -> None:
        """`pace` is how many times the recorded time everything takes; 0 is as fast as it can."""
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
        """A script was played to its end."""
        if play in self._playing:
            self._playing.remove(play)

    def send(self, entry: Entry) -> None:
        """Say what was recorded, with this connection's ids in it."""
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

    def ask(self, entry: Entry, answered: asyncio.Future[Any]) -> None:
        """Ask the client what the agent had asked."""

        def deliver(answer: Answer) -> None:
            self._compare(entry, answer)
            if not answered.done():
                answered.set_result(None)

        params = self._translated(entry.params if "params" in entry.message else {})
        key = self._peer.ask(entry.method or "", params, deliver, LANE)
        self._asked[id_key(entry.message["id"])] = int(key)

    def result(self, value: Any) -> Any:
        return self._translated(value)

    def _next(self, method: str, session: Any) -> Script | None:
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

    def _compare(self, asked: Entry, answer: Answer) -> None:
        """Tell whoever looks on when the client decides otherwise than it did in the recording."""
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
        """With the client's own ids of sessions in it."""
        own = {recorded: live for live, recorded in self._sessions.items()}
        if isinstance(value, dict) and value.get("sessionId") in own:
            return {**value, "sessionId": own[value["sessionId"]]}
        return value


class _Play:
    """One script, played to whoever sent the request."""

    def __init__(self, agent: ReplayedAgent, script: Script, request: Request | None) -> None:
        self.script = script
        self._agent = agent
        self._request = request
        self._cancelled = asyncio.Event()
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._is_answered = False

    def cancel(self) -> None:
        """The client cancels the turn: at the recorded place it goes on, elsewhere it ends at once."""
        self._cancelled.set()
        if not self.script.is_cancelled and not self._is_answered and self._request is not None:
            self._is_answered = True
            self._request.answer({"stopReason": "cancelled"})

    def cancel_request(self) -> None:
        """The client does not want the answer any more."""
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
        """Whether the client cancelled what was not cancelled in the recording."""
        return self._cancelled.is_set() and not self.script.is_cancelled and self._request is not None

    async def _wait(self, seconds: float) -> None:
        if self._agent.pace > 0 and seconds > 0:
            await asyncio.sleep(seconds * self._agent.pace)
        # Room in the outgoing queue, so that a client that does not read is not filled up.
        await self._agent.peer.drain()

    async def _take(self, step: Step) -> None:
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
