"""The MCP servers of a session. None is started before it is used, and all end with the session."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from coupler.mcp.package import load_client
from coupler.mcp.tool_names import written_name
from coupler.mcp.tools import CallHandler, McpError, Tool, ToolResult, printable, server_label
from coupler.runtime.extras import MissingExtraError
from coupler.schema.v1 import McpServer, McpServerHttp, McpServerSse, McpServerStdio

if TYPE_CHECKING:
    from coupler.mcp.connection import ServerConnection

log = logging.getLogger("coupler.mcp")

_INHERITED_ON_WINDOWS = (
    "APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE "
    "SYSTEMROOT TEMP TMP USERNAME USERPROFILE "
)
_INHERITED = (
    _INHERITED_ON_WINDOWS
    if sys.platform == "win32"
    else "HOME LANG LC_ALL LOGNAME PATH SHELL TERM TMPDIR USER"
).split()


class ServerEnvironment(NamedTuple):
    """The directory and the variables that a session gives its servers.

    They may change until a server starts.
    """

    cwd: str
    variables: Mapping[str, str]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of a server: those it was given, and those that no program does without.

        Keys and tokens of others are none of its business.
        """
        inherited = {name: self.variables[name] for name in _INHERITED if name in self.variables}
        return {**inherited, **given}


class ServerState(NamedTuple):
    """The state of one server, as it was when its tools were listed last."""

    status: Literal["not started", "connecting", "connected", "failed"]
    tools: tuple[Tool, ...] = ()
    error: Exception | None = None


NOT_STARTED, CONNECTING = ServerState("not started"), ServerState("connecting")


class SessionServers:
    """The servers of one session, by name. Its state has one owner: this object, on the event loop."""

    def __init__(
        self, entries: Mapping[str, McpServer], environment: ServerEnvironment, *, asks: bool = False
    ) -> None:
        self._entries = dict(entries)
        self._environment = environment
        self._asks = asks
        """True if there is a user whom servers can ask something in the middle of a call."""
        self._connections: dict[str, ServerConnection] = {}
        self._is_closed = False
        self._states: dict[str, ServerState] = {}
        self.broken: dict[str, McpError] = {}
        """Those that failed when the tools of all were listed last, with the reason."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers."""
        return (*self._entries,)

    @property
    def entries(self) -> Mapping[str, McpServer]:
        """The servers by name."""
        return dict(self._entries)

    async def tools(self) -> list[Tool]:
        """The tools of all servers; those of one that fails are missing, and `broken` says why."""
        if not self._entries:
            return []
        await load_client()
        names = self.names
        found = await asyncio.gather(*(self.tools_of(name) for name in names), return_exceptions=True)
        self.broken, tools = {}, []
        for name, result in zip(names, found, strict=True):
            if isinstance(result, McpError):
                log.warning("%s", result)
                self.broken[name] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                tools += result
        return tools

    async def tools_of(self, name: str) -> list[Tool]:
        """The tools of one server; raises McpError."""
        name = self.named(name)
        server = self._entries[name]
        self._states.setdefault(name, CONNECTING)
        try:
            tools = await (await self._connection(name)).tools()
        except (McpError, MissingExtraError) as error:
            self._set_state(name, server, ServerState("failed", error=error))
            raise
        self._set_state(name, server, ServerState("connected", (*tools,)))
        return tools

    @property
    def states(self) -> Mapping[str, ServerState]:
        """The state of each server, by name; nobody is asked."""
        return {name: self._states.get(name, NOT_STARTED) for name in self._entries}

    def _set_state(self, name: str, server: McpServer, state: ServerState) -> None:
        if self._entries.get(name) == server:
            self._states[name] = state

    async def call(
        self,
        name: str,
        tool: str,
        arguments: dict[str, Any],
        limit: float | None,
        call_id: str | None = None,
        handler: CallHandler | None = None,
    ) -> ToolResult:
        """Call a tool of a server, with `limit` seconds for the answer; raises McpError."""
        return await (await self._connection(name)).call(tool, arguments, limit, call_id, handler)

    def named(self, name: str) -> str:
        """Return the server's name in this session; `coupler` is the one that Coupler has named.

        Raises McpError if there is no such server.
        """
        if name in self._entries:
            return name
        for each in self._entries:
            if written_name(each) == name:
                return each  # the first: what a client offers itself stands before what it passes on
        known = ", ".join(f"`{printable(each)}`" for each in self.names) or "none"
        raise McpError(
            "unknown_server", name, f"{server_label(name)} is unknown to this session; there is: {known}"
        )

    async def replace(self, entries: Mapping[str, McpServer]) -> None:
        """Have these servers from now on; those that stay as they were stay connected."""
        gone = [
            self._connections.pop(name)
            for name in [*self._connections]
            if entries.get(name) != self._entries.get(name)
        ]
        same = {name for name in entries if entries.get(name) == self._entries.get(name)}
        self._states = {name: state for name, state in self._states.items() if name in same}
        self._entries = dict(entries)
        await asyncio.gather(*(connection.close() for connection in gone))

    async def close(self) -> None:
        """Close all connections, and end what was started."""
        self._is_closed = True
        connections, self._connections = [*self._connections.values()], {}
        for connection in connections:
            connection.begin_closing()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _connection(self, name: str) -> ServerConnection:
        self.named(name)
        module = await load_client()
        name = self.named(name)
        if self._is_closed:
            raise McpError("lost", name, f"{server_label(name)} is not used any more: the session was left")
        connection: ServerConnection | None = self._connections.get(name)
        if connection is None:
            connection = module.ServerConnection(
                name, self._entries[name], self._environment, asks=self._asks
            )
            self._connections[name] = connection
        return connection


def merge_servers(*sources: Iterable[McpServer]) -> dict[str, McpServer]:
    """Merge servers by their names. The weakest source comes first: one with the same name replaces it."""
    return {server_name(server): server for source in sources for server in source}


def server_name(server: McpServer) -> str:
    """The name of the server; every kind has one."""
    name: str = server.name  # type: ignore[attr-defined]  # the mixin class of the schema declares none
    return name


def named_values(servers: Iterable[McpServer]) -> Iterator[dict[str, str]]:
    """The variables and headers of servers, by name: some of them may be secret by their names."""
    for server in servers:
        match server:
            case McpServerStdio(env=variables):
                yield {variable.name: variable.value for variable in variables}
            case McpServerHttp(headers=headers) | McpServerSse(headers=headers):
                yield {header.name: header.value for header in headers}
                # Behind the scheme, as in `Bearer`, comes the token itself.
                yield {header.name: header.value.rpartition(" ")[2] for header in headers}
