"""A client that does exactly what a script says: right or wrong, in any order, byte by byte.

It starts an agent, traces every line of both sides, answers the agent's requests by its services, and never
waits without a limit. Leaving its context ends the agent's whole process group. `BlockingClient` is the same
for code that does not await.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from coupler.client.connection import ProcessLink
from coupler.client.errors import AgentError
from coupler.client_api import link_to
from coupler.conformance.peers import INFO, UNENDED, UNFLUSHED, ClientServices, LinePipe, ScriptError
from coupler.conformance.reading import shown
from coupler.recording.traces import Trace, TraceEntry, TraceUpdate
from coupler.runtime.environment import Environment

TURN_PATIENCE = 6
"""Time limit of a turn, as a multiple of the timeout of any other answer."""

SUSPICION = 2.0
"""Seconds without a first answer after which the reason is looked for."""

T = TypeVar("T")


class RequestAnswer(NamedTuple):
    """The answer to a request: a result or an error."""

    entry: TraceEntry

    @property
    def result(self) -> Any:
        """The result, `{}` for null; None if there is an error instead."""
        if "result" not in self.entry.message:
            return None
        return {} if (result := self.entry.message["result"]) is None else result

    @property
    def error(self) -> Any:
        return self.entry.message.get("error")

    @property
    def code(self) -> Any:
        """The error's code; None if there is a result."""
        return self.error.get("code") if isinstance(self.error, dict) else None


class ScriptedTurn(NamedTuple):
    """A prompt's answer, with the updates of its session that came before."""

    answer: RequestAnswer
    updates: list[TraceUpdate]

    @property
    def stop_reason(self) -> Any:
        result = self.answer.result
        return result.get("stopReason") if isinstance(result, dict) else None

    @property
    def text(self) -> str:
        """The text of the agent's messages."""
        said = [update.body.get("content") for update in self.updates if update.kind == "agent_message_chunk"]
        return "".join(str(block.get("text", "")) for block in said if isinstance(block, dict))


class ScriptedClient:
    """A scripted client of one agent, given as `connect` takes it; an async context manager."""

    def __init__(
        self,
        agent: str | Sequence[str] | Any,
        *,
        directory: str | os.PathLike[str],
        capabilities: Mapping[str, Any] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Environment | Mapping[str, str | None] | None = None,
        timeout: float = 10.0,
        label: str = "",
    ) -> None:
        """`directory` is where sessions work, `cwd` where the process starts, `timeout` is in seconds."""
        self.directory = Path(directory)
        self.capabilities: dict[str, Any] = dict(capabilities or {})
        self.desk = ClientServices(self.directory, self.capabilities)
        self.trace = Trace(label)
        self.timeout = timeout
        self.introduction: dict[str, Any] = {}
        self.info: dict[str, Any] = INFO
        """The name under which it introduces itself."""
        self._link = link_to(agent, cwd=cwd, env=env)
        self._last_id = 0
        self._pipe: LinePipe

    async def __aenter__(self) -> Self:
        try:
            self._transport = self._link.open()
        except AgentError as error:
            raise ScriptError("spawn", str(error)) from None
        self._pipe = LinePipe(self._transport, "client", self.trace, self.timeout)
        self._pipe.when_received = self._serve_desk
        self._pipe.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        await self._link.close(grace=1.0)
        self.trace.exit_code, self.trace.stderr = self._link.exit_details()

    @property
    def pid(self) -> int | None:
        """The agent's process id; None if it runs in this process."""
        return self._link.pid if isinstance(self._link, ProcessLink) else None

    @property
    def stderr(self) -> str:
        return self._link.exit_details().stderr

    @property
    def has_ended(self) -> bool:
        """True if the agent has closed its output."""
        return self._pipe.has_ended

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._pipe.write(data)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; `jsonrpc` is added."""
        self._pipe.send(message)

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._pipe.send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> int:
        """Send a request and go on; returns its id."""
        self._last_id += 1
        self._pipe.send({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    def ask_prompt(self, session: str, text: str) -> int:
        """Send a prompt and go on; returns its id."""
        return self.ask("session/prompt", prompt_params(session, text))

    async def answer(self, id: Any, within: float | None = None) -> RequestAnswer:
        """Wait for the answer to a request."""
        return RequestAnswer(await self._pipe.answer(id, f"the answer to {self._name(id)}", within))

    async def call(self, method: str, params: Any, within: float | None = None) -> RequestAnswer:
        """Send a request and wait for its answer."""
        return await self.answer(self.ask(method, params), within)

    async def initialize(self, version: int = 1, within: float | None = None) -> RequestAnswer:
        """Send `initialize` with this client's capabilities."""
        answer = await self.call("initialize", self._introduction_params(version), within)
        if isinstance(answer.result, dict):
            self.introduction = answer.result
        return answer

    async def introduce(self, again: Callable[[], ScriptedClient], within: float) -> RequestAnswer:
        """Send `initialize`, and find out early why its answer cannot be read.

        Raises ScriptError if lines are broken, or if the agent, as `again` starts it once more, answers only
        when its input is closed: then it does not flush its output.
        """
        answer = asyncio.create_task(self.initialize(within=within))
        doubt = asyncio.create_task(self._reason_for_silence(again, answer))
        try:
            await asyncio.wait((answer, doubt), return_when=asyncio.FIRST_COMPLETED)
            if answer.done() or (reason := await doubt) is None:
                return await answer
            self.trace.unreadable = reason
            raise ScriptError("unreadable", reason)
        finally:
            for task in (answer, doubt):
                task.cancel()
            await asyncio.gather(answer, doubt, return_exceptions=True)

    async def _reason_for_silence(
        self, again: Callable[[], ScriptedClient], answer: asyncio.Task[RequestAnswer]
    ) -> str | None:
        """Return why the first answer cannot be read; None if it came, or if there is no telling."""
        try:
            found = await self._pipe.until(
                lambda: "" if answer.done() else self._pipe.misframed(), "the first line", SUSPICION
            )
            return found or None
        except ScriptError as error:
            if error.kind != "silent":
                return None
        if self._pipe.lacks_line_end():
            return UNENDED
        try:
            async with again() as other:
                other.ask("initialize", self._introduction_params(1))
                other.close_input()
                await other.answer(1)
        except ScriptError:
            return None
        return UNFLUSHED

    def _introduction_params(self, version: int) -> dict[str, Any]:
        return {
            "protocolVersion": version,
            "clientCapabilities": self.capabilities,
            "clientInfo": self.info,
        }

    async def new_session(self, within: float | None = None, **params: Any) -> RequestAnswer:
        """Open a session in this client's directory."""
        return await self.call(
            "session/new", {"cwd": str(self.directory), "mcpServers": [], **params}, within
        )

    async def prompt(self, session: str, text: str) -> ScriptedTurn:
        """Send a prompt and wait for its answer, which may take longer than others."""
        begin = len(self.trace.entries)
        return await self.end_of_turn(session, self.ask_prompt(session, text), begin)

    async def end_of_turn(self, session: str, id: int, begin: int = 0) -> ScriptedTurn:
        """Wait for the end of a turn; its updates are those since the entry with number `begin`."""
        answer = await self.answer(id, TURN_PATIENCE * self.timeout)
        numbers = range(begin, answer.entry.number)
        return ScriptedTurn(
            answer, [each for each in self.trace.updates(session) if each.entry.number in numbers]
        )

    async def update(
        self, session: str, *kinds: str, since: int = 0, within: float | None = None
    ) -> TraceUpdate:
        """Wait for the first update of one of these kinds since the entry with number `since`."""
        return await self._pipe.until(
            lambda: next((u for u in self.trace.updates(session, *kinds) if u.entry.number >= since), None),
            f"an update ({', '.join(kinds) or 'any'})",
            within,
        )

    async def request_of_agent(self, method: str, within: float | None = None) -> TraceEntry:
        """Wait for the agent's first request of this kind."""
        return await self._pipe.until(
            lambda: next((each.request for each in self.trace.exchanges(method, "agent")), None),
            f"a request {method}",
            within,
        )

    async def request_in_turn(self, id: int, *methods: str, within: float | None = None) -> TraceEntry | None:
        """Wait for a request of the agent in the turn of the prompt with this id; None if it ends without."""
        prompt = next(each for each in self.trace.exchanges() if each.request.message["id"] == id)

        def look() -> TraceEntry | None:
            for each in self.trace.exchanges(sender="agent"):
                if each.method in methods and each.request.number > prompt.request.number:
                    return each.request
            return prompt.answer

        found = await self._pipe.until(look, f"a request {' or '.join(methods)}", within)
        return found if found.is_request else None

    def answer_held(self, method: str) -> None:
        """Answer the requests that were left unanswered, with the current services."""
        for exchange in self.trace.exchanges(method, "agent"):
            if exchange.answer is None:
                self._serve_desk(exchange.request)

    async def quiet(self, seconds: float) -> None:
        """Wait that long, for what should not come to be traced; ends early when the agent is gone."""
        await self._pipe.quiet(seconds)

    def close_input(self) -> None:
        """Close the agent's input. What it still says is traced."""
        self._transport.end_output()

    async def exit(self, within: float | None = None) -> int | None:
        """Wait until the agent has ended and return its exit code."""
        limit = self.timeout if within is None else within
        try:
            async with asyncio.timeout(limit):
                await self._link.wait()
        except TimeoutError:
            raise ScriptError("silent", f"the agent's process did not end within {limit:g} s") from None
        return self._link.exit_details().exit_code

    def _serve_desk(self, entry: TraceEntry) -> None:
        if entry.is_request:
            reply = self.desk.answer(entry.message)
            if reply is not None:
                self._pipe.send(reply)

    def _name(self, id: Any) -> str:
        for exchange in reversed(self.trace.exchanges()):
            if exchange.request.message.get("id") == id:
                return exchange.method
        return f"request {shown(id)}"


def prompt_params(session: str, text: str) -> dict[str, Any]:
    """Return the params of a prompt that is one text."""
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


class RefusedError(AssertionError):
    """A request that should have worked was answered with an error."""


class BlockingClient:
    """A scripted client for code that does not await, such as most tests.

    `prompt` does by itself what has to come before it. The event loop runs only while a call waits, which is
    enough: what was said meanwhile is read by the next call.
    """

    def __init__(self, client: ScriptedClient) -> None:
        self._client = client
        self._runner = asyncio.Runner()
        self._session: str | None = None

    def open(self) -> None:
        """Start the agent."""
        self._run(self._client.__aenter__())

    def close(self) -> None:
        """End the agent and everything it started."""
        try:
            self._run(self._client.__aexit__(None, None, None))
        finally:
            self._runner.close()

    @property
    def trace(self) -> Trace:
        """Everything that was said, by both sides."""
        return self._client.trace

    @property
    def desk(self) -> ClientServices:
        """The services that answer the agent; `desk.services[method] = function` replaces an answer."""
        return self._client.desk

    @property
    def stderr(self) -> str:
        return self._client.stderr

    @property
    def introduction(self) -> dict[str, Any]:
        """The result of `initialize`, which is sent if it was not yet."""
        if not self._client.introduction:
            self._result("initialize", self._run(self._client.initialize()))
        return self._client.introduction

    @property
    def session(self) -> str:
        """The id of this client's own session, opened when it is first needed."""
        if self._session is None:
            self._session = self.new_session()
        return self._session

    def new_session(self, **params: Any) -> str:
        """Open one more session and return its id."""
        assert self.introduction
        return str(self._result("session/new", self._run(self._client.new_session(**params)))["sessionId"])

    def prompt(self, text: str, session: str | None = None) -> ScriptedTurn:
        """Send a prompt and wait for the end of its turn."""
        return self._run(self._client.prompt(session or self.session, text))

    def start_prompt(self, text: str, session: str | None = None) -> int:
        """Send a prompt and go on; returns its id for `answer`."""
        return self._do(self._client.ask_prompt, session or self.session, text)

    def cancel(self, session: str | None = None) -> None:
        """Cancel the running turn."""
        self.notify("session/cancel", {"sessionId": session or self.session})

    def call(self, method: str, params: Any) -> RequestAnswer:
        """Send any request and wait for its answer, whichever it is."""
        return self._run(self._client.call(method, params))

    def answer(self, id: Any) -> RequestAnswer:
        """Wait for the answer to a request."""
        return self._run(self._client.answer(id))

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._do(self._client.notify, method, params)

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._do(self._client.write, data)

    def update(self, *kinds: str) -> TraceUpdate:
        """Wait for the first update of one of these kinds in this client's session."""
        return self._run(self._client.update(self.session, *kinds))

    def request_of_agent(self, method: str) -> TraceEntry:
        """Wait for the agent's first request of this kind."""
        return self._run(self._client.request_of_agent(method))

    def close_input(self) -> None:
        """Close the agent's input."""
        self._do(self._client.close_input)

    def exit(self) -> int | None:
        """Wait until the agent has ended and return its exit code."""
        return self._run(self._client.exit())

    def _do(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call something that does not wait, but needs the event loop."""

        async def call() -> T:
            return function(*arguments)

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _result(self, method: str, answer: RequestAnswer) -> dict[str, Any]:
        if not isinstance(answer.result, dict):
            line = answer.entry.line.decode(errors="replace")
            raise RefusedError(f"{method} was answered with {line[:500]}")
        return answer.result
