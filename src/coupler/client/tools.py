"""Offers Python functions to a session's agent as tools, and one tool that takes a typed answer.

A call is validated, run and answered here. Every failure is told to the model, which may try again; only
`EndTurn` reaches whoever prompted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import msgspec
from msgspec import Struct

from coupler.client.errors import EndTurn
from coupler.events import ToolCall
from coupler.fields.json_types import JsonTypeError
from coupler.mcp.functions import DONE, ToolFunction, text_result, tool_functions, tool_result
from coupler.mcp.tools import Tool, ToolResult, printable
from coupler.runtime.exceptions import exception_text
from coupler.schema.v1 import Content

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession

log = logging.getLogger("coupler.client")

STRUCTURED_OUTPUT = "structured_output"
"""The tool that takes a typed answer; no function can have its name."""

MOST_CALLS = 32
"""Calls of one session that run at once; others wait."""

CALLS_CLOSE_LIMIT = 1.0
"""Seconds that cancelled calls have to end, when the session does."""

TOOLS_SETTLE = 0.2
"""Seconds without another request of the agent's after which it has taken over the tools that it was told."""

MOST_IDS, LONGEST_ID = 8, 256
"""Strings in a call's `_meta` that may be its id, and characters of each, at most."""

_ID_KEYS = frozenset({"tooluseid", "toolcallid", "callid"})
_RESERVED = "io.modelcontextprotocol/"


class ToolContext(Struct, frozen=True):
    """Context of a tool call: a parameter of this type is filled in, and hidden from the model.

    `cancelled` is set when the result is no longer needed. An async tool is cancelled then anyhow; one that
    runs in a thread goes on, and may check it.
    """

    session: RemoteSession
    call_id: str
    cancelled: threading.Event


class OutputTool(Protocol):
    """Receives the typed answer."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments."""

    def give(self, arguments: dict[str, Any]) -> ToolResult:
        """Take the model's answer, or tell it what is wrong."""


class ClientTools:
    """The tools of one session and their running calls."""

    server: str
    """The name of the MCP server that has the tools, once it is chosen."""

    def __init__(self, functions: Sequence[Any], output_schema: dict[str, Any] | None = None) -> None:
        """Prepare; with `output_schema` there is always a tool for typed answers, first with this schema."""
        self._functions = tool_functions(functions, ToolContext)
        if STRUCTURED_OUTPUT in self._functions:
            raise TypeError(f"`{STRUCTURED_OUTPUT}` is the tool that takes typed answers: rename yours")
        self._usual_output = output_schema
        self._output: OutputTool | None = None
        self._shown_output: dict[str, Any] | None = None
        self._is_listed = False
        self._is_told = False
        self._is_over = False
        self._answered = asyncio.Event()
        self._session: asyncio.Future[RemoteSession] = asyncio.get_running_loop().create_future()
        self._calls: dict[asyncio.Task[ToolResult], threading.Event] = {}
        self._places = asyncio.Semaphore(MOST_CALLS)

    def belong_to(self, session: RemoteSession) -> None:
        """Set the session; calls that came before wait for this."""
        self._session.set_result(session)

    def expect(self, output: OutputTool | None) -> None:
        """Set the receiver of typed answers, or None."""
        self._output = output

    def has_shown(self, output: OutputTool) -> bool:
        """Return whether the agent has listed the tools, and saw this output schema last."""
        return self._shown_output == output.input_schema

    def listed(self) -> Sequence[Tool]:
        """Return the tools as the agent gets them."""
        self._shown_output = self._output_schema
        self._is_listed = True
        return self._tools(self.server)

    def answered(self) -> None:
        """Note that an answer was sent to the agent: after it was told the tools, prompts may use them."""
        self._is_told = self._is_listed
        self._answered.set()

    @property
    def are_told(self) -> bool:
        """True if the agent was told the tools."""
        return self._is_told

    async def told(self, seconds: float) -> bool:
        """Wait until the agent was told the tools, and asks for no more; False if it never asked in time.

        The end of the session ends the wait.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._is_over:
                    self._answered.clear()
                    async with asyncio.timeout(TOOLS_SETTLE if self._is_told else None):
                        await self._answered.wait()
        return self._is_told

    def described(self) -> bytes:
        """Return the tools as text, which is the same for the same tools."""
        tools = [[tool.name, tool.description, tool.input_schema] for tool in self._tools("")]
        return msgspec.json.encode(tools, order="deterministic")

    def parameters(self) -> dict[str, frozenset[str]]:
        """Return the names of the tools, each with the names of its parameters."""
        return {tool.name: frozenset(tool.input_schema.get("properties", {})) for tool in self._tools("")}

    async def call(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        """Run a call of the agent, and tell observers when it is over."""
        try:
            session = await asyncio.shield(self._session)
        except asyncio.CancelledError:
            if not self._session.cancelled():
                raise
            return _failed("the session is over")
        call = _Call(session, name, arguments, meta)
        variables = None if call.span is None else call.span.variables
        running = asyncio.create_task(self._run(call), context=variables)
        self._calls[running] = call.cancelled
        try:
            await asyncio.wait([running])
            result = _failed("the call was cancelled") if running.cancelled() else running.result()
        except asyncio.CancelledError:
            call.cancelled.set()
            running.cancel()
            call.finish(_failed("the agent has withdrawn the call"))
            raise
        finally:
            running.add_done_callback(self._calls.pop)
        call.finish(result)
        return result

    def cancel_calls(self) -> None:
        """Cancel the running calls of a cancelled turn; results of those that run in threads are dropped."""
        for call, cancelled in self._calls.items():
            cancelled.set()
            call.cancel()

    async def close(self) -> None:
        """Cancel what runs: the session is over."""
        self._session.cancel()
        self._is_over = True
        self._answered.set()
        self.cancel_calls()
        if self._calls:
            _, left = await asyncio.wait([*self._calls], timeout=CALLS_CLOSE_LIMIT)
            if left:
                log.warning("calls of tools that did not end when they were cancelled: %d", len(left))

    @property
    def _output_schema(self) -> dict[str, Any] | None:
        return self._usual_output if self._output is None else self._output.input_schema

    def _tools(self, server: str) -> list[Tool]:
        tools = [
            Tool(server, function.name, function.description, function.schema)
            for function in self._functions.values()
        ]
        if self._output_schema is not None:
            description = "Gives the final answer, in the form that was asked for. Call it once, at the end."
            tools.append(Tool(server, STRUCTURED_OUTPUT, description, self._output_schema))
        return tools

    async def _run(self, call: _Call) -> ToolResult:
        if call.session.is_cancelled:
            return _failed("the turn was cancelled")
        if call.name == STRUCTURED_OUTPUT:
            if self._output is None:
                return _failed("no answer of a given form is asked for now: answer in words")
            return self._output.give(call.arguments)
        function = self._functions.get(call.name)
        if function is None:
            known = ", ".join(f"`{name}`" for name in self._functions) or "none"
            return _failed(f"there is no tool `{printable(call.name)}`; there is: {known}")
        try:
            arguments = function.arguments(call.arguments)
        except JsonTypeError as error:
            return _failed(f"the arguments of `{function.name}` do not fit, {error}; call it with others")
        arguments |= dict.fromkeys(function.context, call.context)
        async with self._places:
            return await _answered(function, arguments, call)


class _Call:
    """One tool call: its ids, and what observers are told of it."""

    def __init__(
        self, session: RemoteSession, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]
    ) -> None:
        self.session = session
        self.name = name
        self.arguments = arguments
        self.cancelled = threading.Event()
        self._ids = _strings(meta)
        known = [each for each in self._ids.values() if each in session.tool_calls]
        likely = [each for key, each in self._ids.items() if _is_id_key(key)]
        self._id = (*known, *likely, f"tool-{uuid4().hex}")[0]
        self.context = ToolContext(session, self._id, self.cancelled)
        self.span = None if session.span is None else session.span.bridged(self._id, name)

    def finish(self, result: ToolResult) -> None:
        """Tell observers once that the call is over."""
        if self.span is not None:
            self.span.end(has_failed=result.is_error)
        call = ToolCall(
            id=self._id,
            title=self.name,
            name=self.name,
            status="failed" if result.is_error else "completed",
            content=tuple(Content(block) for block in result.content),
            raw_input=self.arguments,
            raw_output=result.text if result.structured is None else result.structured,
        )
        self.session.bridged_call_finished(call, frozenset(self._ids.values()))


async def _answered(function: ToolFunction, arguments: dict[str, Any], call: _Call) -> ToolResult:
    try:
        return tool_result(await function.call(arguments))
    except EndTurn as end:
        # Not at once: the cancel would overtake the result, which the model is to have.
        call.session.end_turn(end, after_call=call.context.call_id)
        return text_result(DONE)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        log.debug("the tool `%s` failed", function.name, exc_info=error)
        return _failed(f"`{function.name}` failed: {exception_text(error, is_typed=False)}")


def _failed(message: str) -> ToolResult:
    return text_result(message, is_error=True)


def _strings(meta: Mapping[str, Any]) -> dict[str, str]:
    """Find the strings in `_meta` that may be the agent's own id of the call: each vendor has its own key."""
    found = {
        key: value
        for key, value in meta.items()
        if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and not key.startswith(_RESERVED)
    }
    return dict([*found.items()][:MOST_IDS])


def _is_id_key(key: str) -> bool:
    return key.rpartition("/")[2].lower().replace("_", "").replace("-", "") in _ID_KEYS
