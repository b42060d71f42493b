"""Lists and calls the tools of a session's MCP servers, for the agent's code.

Every use is a tool call that the user sees and that the permission engine decides about, whatever the server
says of its tool.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.agent.content import plain_text
from coupler.agent.errors import NotPermittedError
from coupler.agent.tool_call import Call
from coupler.mcp.servers import SessionServers
from coupler.mcp.tools import ElicitationReply, McpError, Tool, ToolResult, printable, server_label

if TYPE_CHECKING:
    from coupler.agent.elicitation import Answer
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.agent")

CALL_LIMIT = 300.0
"""Seconds that a server has to answer a call, unless another limit is given."""

MOST_PROGRESS = 200
"""Lines of progress that one call shows, at most."""

LONGEST_LINE = 200
LONGEST_QUESTION = 2000
"""Characters of a server's question that the user is shown."""


class SessionMcp:
    """The MCP servers of a session: those of the editor, which come first, and those of the configuration."""

    def __init__(self, servers: SessionServers) -> None:
        self._servers = servers

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers; none of them runs before it is used."""
        return self._servers.names

    @property
    def broken(self) -> Mapping[str, McpError]:
        """The servers whose tools could not be listed the last time, and why."""
        return dict(self._servers.broken)

    async def tools(self, server: str | None = None) -> list[Tool]:
        """The tools that the servers have now, or those of one server.

        A server that fails is left out and found in `broken`; if it was the one asked for, this raises
        `McpError`.
        """
        if server is None:
            return await self._servers.tools()
        return await self._servers.tools_of(server)


class TurnMcp(SessionMcp):
    """The MCP servers of the turn's session, and the use of their tools."""

    def __init__(self, turn: Turn, servers: SessionServers) -> None:
        super().__init__(servers)
        self._turn = turn

    async def tools(self, server: str | None = None) -> list[Tool]:
        self._turn.check_alive()
        return await self._turn.own(super().tools(server))

    async def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = CALL_LIMIT,  # noqa: ASYNC109 - for the server; a user may think for longer
        deadline: float | None = None,
    ) -> ToolResult:
        """Use a tool: announced, decided about by rules or the user, and shown with its result.

        Raises `NotPermittedError` if it may not be used, and `McpError` if the server fails. A tool that
        reports a failure of its own returns a result with `is_error`. The server has `timeout` seconds, the
        user `deadline`. A cancel of the turn tells the server to stop. What the server tells of its progress
        is shown by the call, and what it asks is asked of the user.
        """
        server = self._servers.named(server)
        tool = plain_text(tool, "a tool's name")
        given = _arguments(arguments)
        async with Call(
            self._turn,
            f"{printable(server)}: {printable(tool)}",
            kind="other",
            name=tool,
            path=None,
            line=None,
            input=given,
            id=None,
            server=server,
        ) as call:
            if await call.permitted(deadline=deadline):
                handler = McpCallHandler(self._turn, server, call.output)
                result = await self._turn.own(
                    self._servers.call(server, tool, given, timeout, call.id, handler)
                )
                await _show(result, call)
                return result
        whose = f"`{printable(tool)}` of the MCP server `{printable(server)}`"
        raise NotPermittedError(f"{whose} was not used: {call.refusal}")


def _arguments(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"a tool's arguments are a mapping, not {type(arguments).__name__}")
    # A copy: what is sent is what was asked about, whatever becomes of the original meanwhile.
    given: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(arguments or {})))
    return given


async def _show(result: ToolResult, call: Call) -> None:
    for block in result.content:
        await call.output(block)
    if result.structured is not None:
        await call.result(result.structured)
    if result.is_error:
        call.fail("the tool reports an error")


class McpCallHandler:
    """Handles progress and elicitations of an MCP server while it works on one tool call.

    Servers are not trusted: their questions name them, what no form can hold is declined, and their progress
    is bounded. Made in the call's block, so that questions belong to the call.
    """

    def __init__(self, turn: Turn, server: str, show: Callable[[str], Awaitable[None]]) -> None:
        self._turn = turn
        self._server = server
        self._show = show
        self._context = contextvars.copy_context()
        self._last = ""
        self._lines = 0

    async def hear_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Show a line of progress, unless it repeats the last one or there were too many."""
        line = _line(progress, total, message)
        if line == self._last or self._lines >= MOST_PROGRESS or not self._turn.is_alive:
            return
        self._last = line
        self._lines += 1
        await self._show(f"{line}\n")

    async def ask(self, message: str, schema: dict[str, Any]) -> ElicitationReply:
        """Ask the user to fill in a form."""
        answer = await self._asked(lambda asked: self._turn.ask(asked, schema), message)
        return (
            ElicitationReply(answer.action, answer.value)
            if answer is not None
            else ElicitationReply("decline")
        )

    async def ask_url(self, message: str, url: str) -> ElicitationReply:
        """Ask the user to open a page."""
        answer = await self._asked(lambda asked: self._turn.ask_url(asked, url), message)
        return ElicitationReply(answer.action) if answer is not None else ElicitationReply("decline")

    async def _asked(
        self, ask: Callable[[str], Coroutine[Any, Any, Answer[Any]]], message: str
    ) -> Answer[Any] | None:
        """Ask in the context of the tool call; None if the question is not allowed."""
        asked = f"{server_label(self._server)} asks: {printable(message.strip(), LONGEST_QUESTION)}"
        # The server's question arrives in a task of its connection, which is in no call's block.
        task = asyncio.get_running_loop().create_task(ask(asked), context=self._context)
        try:
            return await task
        except (ValueError, TypeError) as error:
            log.warning("a question of %s was declined: %s", server_label(self._server), error)
            return None
        finally:
            task.cancel()


def _line(progress: float, total: float | None, message: str | None) -> str:
    share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
    return f"{share} {printable(message.strip(), LONGEST_LINE)}" if message else share
