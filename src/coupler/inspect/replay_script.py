"""A recording as scripts: for every request of the client, what the agent did until it was answered.

An agent's frames belong to the exchange that brought them about: to the turn that runs in their session,
else to what else is open there, else to what was answered last. So each script can be played when its
request comes, whatever else goes on at the same time, and two recordings of the same conversation can be
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from coupler.inspect.trace import Entry, Exchange, Trace, id_key
from coupler.wire.peer import CANCEL_REQUEST

PROMPT = "session/prompt"
CANCEL = "session/cancel"

OPENING = frozenset({"session/new", "session/fork"})
"""Requests whose answer names a session that was not there before."""

Action: TypeAlias = Literal["send", "ask", "answer", "await answer", "await cancel"]


class Step(NamedTuple):
    """One thing that happens: the agent sends, asks or answers, or the client does what it waited for."""

    action: Action
    entry: Entry


@dataclass
class Script:
    """What follows a request; without one, what the agent said of its own accord at the very start."""

    exchange: Exchange | None = None
    session: Any = None
    steps: list[Step] = field(default_factory=list)

    @property
    def method(self) -> str:
        return self.exchange.method if self.exchange is not None else ""

    @property
    def is_cancelled(self) -> bool:
        """Whether the client cancelled it."""
        return any(step.action == "await cancel" for step in self.steps)

    @property
    def opened_session(self) -> Any:
        """The id of the session that it opened."""
        result = self.exchange.result if self.exchange is not None else None
        return result.get("sessionId") if self.method in OPENING and isinstance(result, dict) else None


def scripts_of(trace: Trace) -> list[Script]:
    """The scripts of a recording in the order of their requests; the first one has no request."""
    return _Reader(trace).read()


def session_of(entry: Entry) -> Any:
    """The session that a request or a notification is about."""
    return entry.params.get("sessionId") if isinstance(entry.params, dict) else None


class _Reader:
    """Goes through a trace once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._scripts = [Script()]
        self._by_request: dict[int, Script] = {}
        self._by_answer: dict[int, Script] = {}
        self._asked: dict[int, Script] = {}
        self._open: list[Script] = []
        self._last: dict[Any, Script] = {}

    def read(self) -> list[Script]:
        for exchange in self._trace.exchanges():
            script = Script(exchange, session_of(exchange.request))
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

    def _read_agents(self, entry: Entry) -> None:
        script = self._by_answer.get(entry.number)
        if script is not None:
            script.steps.append(Step("answer", entry))
            self._open.remove(script)
            for session in {script.session, script.opened_session, None}:
                self._last[session] = script
        elif entry.is_answer:
            return  # an answer to nothing: whoever asks in a replay has asked something else
        elif entry.is_request:
            script = self._cause_of(entry)
            script.steps.append(Step("ask", entry))
            self._asked[entry.number] = script
        else:
            self._cause_of(entry).steps.append(Step("send", entry))

    def _read_clients(self, entry: Entry, answered: Exchange | None) -> None:
        if entry.number in self._by_request:
            self._open.append(self._by_request[entry.number])
        elif answered is not None:
            self._asked[answered.request.number].steps.append(Step("await answer", entry))
        elif entry.method in (CANCEL, CANCEL_REQUEST):
            for script in self._cancelled_by(entry):
                script.steps.append(Step("await cancel", entry))

    def _cause_of(self, entry: Entry) -> Script:
        session = session_of(entry)
        mine = [script for script in self._open if script.session == session and session is not None]
        turns = [script for script in mine if script.method == PROMPT]
        candidates = turns or mine or [*filter(None, [self._last.get(session)])]
        if not candidates:
            candidates = self._open or [*filter(None, [self._last.get(None)])] or self._scripts[:1]
        return candidates[-1]

    def _cancelled_by(self, entry: Entry) -> Iterator[Script]:
        for script in self._open:
            assert script.exchange is not None
            if entry.method == CANCEL:
                if script.method == PROMPT and script.session == session_of(entry):
                    yield script
            elif isinstance(entry.params, dict):
                request = script.exchange.request.message["id"]
                if id_key(entry.params.get("requestId")) == id_key(request):
                    yield script
