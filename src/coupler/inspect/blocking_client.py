"""The scripted client for code that does not await, such as most tests.

The event loop runs only while a call waits. That is enough: what was said meanwhile is read by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from coupler.inspect.desk import Desk
from coupler.inspect.scripted_client import Answer, ScriptedClient, Turn
from coupler.inspect.trace import Entry, Trace, Update

T = TypeVar("T")


class RefusedError(AssertionError):
    """A request that should have worked was answered with an error."""


class BlockingClient:
    """Drives one agent. `prompt` does by itself what has to come before it."""

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
    def desk(self) -> Desk:
        """Answers what the agent asks; `desk.services[method] = function` replaces an answer."""
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

    def prompt(self, text: str, session: str | None = None) -> Turn:
        """Send a prompt and wait for the end of its turn."""
        return self._run(self._client.prompt(session or self.session, text))

    def start_prompt(self, text: str, session: str | None = None) -> int:
        """Send a prompt and go on; returns its id for `answer`."""
        return self._do(self._client.ask_prompt, session or self.session, text)

    def cancel(self, session: str | None = None) -> None:
        """Cancel the running turn."""
        self.notify("session/cancel", {"sessionId": session or self.session})

    def call(self, method: str, params: Any) -> Answer:
        """Send any request and wait for its answer, whichever it is."""
        return self._run(self._client.call(method, params))

    def answer(self, id: Any) -> Answer:
        """Wait for the answer to a request."""
        return self._run(self._client.answer(id))

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._do(self._client.notify, method, params)

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._do(self._client.write, data)

    def update(self, *kinds: str) -> Update:
        """Wait for the first update of one of these kinds in this client's session."""
        return self._run(self._client.update(self.session, *kinds))

    def request_of_agent(self, method: str) -> Entry:
        """Wait for the agent's first request of this kind."""
        return self._run(self._client.request_of_agent(method))

    def close_input(self) -> None:
        """Leave: the agent reads the end of its input."""
        self._do(self._client.close_input)

    def exit(self) -> int | None:
        """Wait until the agent has ended; its process's exit code."""
        return self._run(self._client.exit())

    def _do(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call something that does not wait, but needs the event loop."""

        async def call() -> T:
            return function(*arguments)

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _result(self, method: str, answer: Answer) -> dict[str, Any]:
        if not isinstance(answer.result, dict):
            line = answer.entry.line.decode(errors="replace")
            raise RefusedError(f"{method} was answered with {line[:500]}")
        return answer.result
