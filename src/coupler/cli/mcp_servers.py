"""The MCP servers that `--mcp` names, for an agent to be given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coupler.cli.given_file import json_of
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer


def servers_of(values: Sequence[str], program: str) -> tuple[McpServer, ...]:
    """MCP servers: NAME=COMMAND, NAME=URL, or a JSON file with `mcpServers`."""
    if not values:
        return ()
    from coupler.config.agent_tables import ServerTables
    from coupler.config.files import COMMAND_LINE
    from coupler.config.value_kinds import Source, WrongValueError

    tables: dict[str, Any] = {}
    for value in values:
        tables.update(_tables(value, program))
    source = Source(COMMAND_LINE, home=os.environ.get("HOME"))
    try:
        return ServerTables().read(tables, source)
    except WrongValueError as error:
        refuse(f"--mcp: {'.'.join(map(str, error.below))} {error}", program)


def _tables(value: str, program: str) -> dict[str, Any]:
    name, equals, target = value.partition("=")
    if not equals or os.sep in name:
        return _tables_in(value, program)
    if target.startswith(("http://", "https://")):
        return {name: {"url": target}}
    try:
        words = shlex.split(target)
    except ValueError as error:
        refuse(f"--mcp {name}: the command cannot be split: {error}", program)
    if not words:
        refuse(f"--mcp {name}: it needs a command or an address after the =", program)
    return {name: {"command": words[0], "args": words[1:]}}


def _tables_in(file: str, program: str) -> dict[str, Any]:
    if not Path(file).is_file():
        refuse(f"--mcp takes NAME=COMMAND, NAME=URL or a JSON file; there is no file {file!r}", program)
    read = json_of(file, "--mcp", program)
    servers = read.get("mcpServers", read) if isinstance(read, dict) else None
    if not isinstance(servers, dict):
        refuse(f"{file} names no MCP servers: it must be an object with `mcpServers`", program)
    return servers
