"""MCP tools for a program that is not served: connected once, and kept open until the program is done.

    async with load_mcp_tools({"shop": {"command": "shop-mcp"}}) as tools:
        agent = create_agent(model, tools)

`await load_mcp_tools(…)` gives the same tools; their servers then end with the event loop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool

from coupler.agent.session import configuration_of
from coupler.bridges.langchain.mcp.names import Names, Prefix, checked
from coupler.bridges.langchain.mcp.tool import McpTool
from coupler.config import keys
from coupler.config.agent_tables import ServerTables
from coupler.config.files import Origin
from coupler.config.value_kinds import Source, WrongValueError
from coupler.mcp.servers import Servers, Surroundings, merged
from coupler.schema.v1 import McpServer

log = logging.getLogger("coupler.bridges")

_HERE = Origin("command line")

_TRANSPORTS = {
    "stdio": None,
    "http": "http",
    "streamable_http": "http",
    "streamable-http": "http",
    "sse": "sse",
}
"""What langchain-mcp-adapters calls the ways to a server, and what `coupler.toml` does."""


def load_mcp_tools(
    servers: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    prefix: Prefix = "collision",
    cwd: str | os.PathLike[str] = ".",
    configured: bool = True,
) -> LoadedTools:
    """The tools of these MCP servers, and of those that `coupler.toml` has for the directory.

    Each is a mapping as in `coupler.toml`: `command`, `args` and `env`, or `url`, `headers` and `type`.
    One that is named here counts in place of one of the same name that is configured; `configured=False`
    leaves those out. A server that fails is logged, and costs only its own tools.
    """
    directory = str(Path(cwd).absolute())
    given = _read(servers or {})
    settings = configuration_of(directory, os.environ)[keys.MCP] if configured else ()
    entries = merged(settings, given)
    return LoadedTools(Servers(entries, Surroundings(directory, os.environ)), checked(prefix))


class LoadedTools:
    """Tools to be: awaited, or entered and left."""

    def __init__(self, servers: Servers, prefix: Prefix) -> None:
        self._servers = servers
        self._prefix = prefix

    def __await__(self) -> Generator[Any, None, list[BaseTool]]:
        return self._load().__await__()

    async def __aenter__(self) -> list[BaseTool]:
        try:
            return await self._load()
        except BaseException:
            await self._servers.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._servers.close()

    async def _load(self) -> list[BaseTool]:
        named = Names(self._prefix).of(await self._servers.tools())
        return [McpTool(name, tool, self._servers) for name, tool in named.items()]


def _read(servers: Mapping[str, Mapping[str, Any]]) -> tuple[McpServer, ...]:
    tables = {name: _table(name, server) for name, server in servers.items()}
    try:
        return ServerTables().read(tables, Source(_HERE, home=str(Path.home())))
    except WrongValueError as error:
        place = ".".join(f"`{part}`" if isinstance(part, str) else str(part) for part in error.below)
        raise ValueError(f"the MCP server {place} {error}") from None


def _table(name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(server, Mapping):
        raise TypeError(f"the MCP server {name!r} is a mapping with `command` or `url`, not {server!r}")
    table = dict(server)
    transport = table.pop("transport", None)
    if transport is not None:
        if transport not in _TRANSPORTS:
            raise ValueError(f"the MCP server {name!r}: `transport` is one of {', '.join(_TRANSPORTS)}")
        if _TRANSPORTS[transport] is not None:
            table.setdefault("type", _TRANSPORTS[transport])
    if "args" in table:
        table["args"] = [*table["args"]] if isinstance(table["args"], tuple) else table["args"]
    return table
