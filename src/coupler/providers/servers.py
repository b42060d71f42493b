"""MCP servers in the words that most programs' configuration files share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from coupler.providers.errors import ProviderError
from coupler.schema.v1 import McpServer, McpServerHttp, McpServerSse, McpServerStdio

Described: TypeAlias = dict[str, Any]


def described(server: McpServer) -> Described:
    """A server as Claude's and Copilot's files have it; the others differ in a few names."""
    match server:
        case McpServerStdio(_, command, args, env):
            variables = {variable.name: variable.value for variable in env}
            return {"type": "stdio", "command": command, "args": list(args), "env": variables}
        case McpServerHttp(_, url, headers):
            return {"type": "http", "url": url, "headers": {header.name: header.value for header in headers}}
        case McpServerSse(_, url, headers):
            return {"type": "sse", "url": url, "headers": {header.name: header.value for header in headers}}
        case _:
            raise ProviderError(f"An MCP server of the kind {type(server).__name__} cannot be handed on.")


def named(servers: Iterable[McpServer]) -> dict[str, Described]:
    """The servers by name; of two with one name the last is used."""
    return {name_of(server): described(server) for server in servers}


def name_of(server: McpServer) -> str:
    """What the client calls the server."""
    return str(getattr(server, "name", "") or "server")
