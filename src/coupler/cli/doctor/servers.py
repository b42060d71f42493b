"""The MCP servers that are set: each is started or reached, and asked for its tools, all at the same time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from coupler.cli.sessions.wording import count, one_line

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section
    from coupler.mcp.servers import Servers
    from coupler.schema.v1 import McpServer


def examine(section: Section, circumstances: Circumstances) -> None:
    """Only those that count here: what an untrusted project names is not started."""
    from coupler.config import keys
    from coupler.mcp.package import is_installed
    from coupler.mcp.servers import merged, variables_of

    servers = circumstances.config[keys.MCP]
    circumstances.keep_secret((*variables_of(servers), *_in_words(servers)))
    entries = merged(servers)
    section.facts["servers"] = {name: {"is_reached": None} for name in entries}
    is_all = not _tell_withheld(section, circumstances)
    if not entries:
        if is_all:
            section.ok("servers", "none is set")
    elif circumstances.is_offline:
        section.ok("servers", f"{', '.join(entries)}: not tried out, because of --offline")
    elif not is_installed():
        from coupler.cli.doctor.installation import install_command

        sentence = f"{', '.join(entries)} cannot be used: the packages for that are not installed"
        section.problem("packages", sentence, f"run `{install_command('mcp')}`")
    else:
        asyncio.run(_try_all(section, entries, circumstances))


def _in_words(servers: Iterable[McpServer]) -> Iterator[dict[str, str]]:
    """What may be secret in arguments and addresses, which a server or a library may quote."""
    from urllib.parse import parse_qsl, urlsplit

    from coupler.redaction.sources import SHORTEST, looks_secret
    from coupler.schema.v1 import McpServerHttp, McpServerSse, McpServerStdio

    for server in servers:
        match server:
            case McpServerStdio(args=words):
                for before, word in pairwise(["", *words]):
                    name, equals, value = word.partition("=")
                    if equals and looks_secret(name):
                        yield {name.lstrip("-"): value}
                    elif before.startswith("-") and looks_secret(before):
                        yield {before.lstrip("-"): word}
            case McpServerHttp(url=url) | McpServerSse(url=url):
                parts = urlsplit(url)
                pairs = [*parse_qsl(parts.query), ("password", parts.password or "")]
                yield {name: value for name, value in pairs if len(value) >= SHORTEST}


def _tell_withheld(section: Section, circumstances: Circumstances) -> bool:
    """Say which servers do not count, or why that is not known; whether there was something to say."""
    if circumstances.config_error is not None:
        section.note("servers", "a coupler.toml is wrong, so it cannot be told which servers it names")
        return True
    names = [
        one_line(server.name)
        for setting in circumstances.config.untrusted
        if setting.key.name == "mcp"
        for server in setting.value
    ]
    if not names:
        return False
    section.note(
        "not trusted",
        f"before the project is trusted, the servers that it names are not started: {', '.join(names)}",
        "read the project's coupler.toml, then run `coupler trust`",
    )
    return True


async def _try_all(section: Section, entries: dict[str, McpServer], circumstances: Circumstances) -> None:
    from coupler.mcp.package import load_connections
    from coupler.mcp.servers import Servers, Surroundings

    await load_connections()  # so that no server is blamed for the time that it takes
    servers = Servers(entries, Surroundings(circumstances.directory or os.sep, os.environ))
    patience = circumstances.patience
    try:
        async with asyncio.TaskGroup() as tasks:
            for name, entry in entries.items():
                tasks.create_task(_try(section, name, entry, servers, patience))
    finally:
        section.close()
        await servers.close()


async def _try(section: Section, name: str, entry: McpServer, servers: Servers, patience: float) -> None:
    from coupler.mcp.tools import McpError

    began = time.monotonic()
    fact = section.facts["servers"][name]
    try:
        async with asyncio.timeout(patience):
            tools = await servers.tools_of(name)
    except TimeoutError:
        fact["is_reached"] = False
        section.problem(name, f"it did not answer within {patience:.0f} seconds", _remedy(entry))
    except McpError as error:
        fact["is_reached"] = False
        section.problem(name, error.message, _remedy(entry))
    else:
        seconds = time.monotonic() - began
        fact |= {"is_reached": True, "tools": [tool.name for tool in tools], "seconds": round(seconds, 3)}
        section.ok(name, f"{count(len(tools), 'tool')}, after {seconds:.1f} s ({_way(entry)})")


def _remedy(entry: McpServer) -> str:
    from coupler.schema.v1 import McpServerStdio

    if isinstance(entry, McpServerStdio):
        return f"start {entry.command} in a terminal to see what it says, and correct [mcp.{entry.name}]"
    return f"see whether {_way(entry)} can be reached from here, and correct [mcp.{_name(entry)}]"


def _way(entry: McpServer) -> str:
    """The program or the host; arguments and the rest of an address may hold tokens."""
    from urllib.parse import urlsplit

    from coupler.mcp.servers import server_name
    from coupler.schema.v1 import McpServerHttp, McpServerSse, McpServerStdio

    match entry:
        case McpServerStdio(command=command):
            return one_line(command)
        case McpServerHttp(url=url) | McpServerSse(url=url):
            parts = urlsplit(url)
            return one_line(
                f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
            )
    return server_name(entry)


def _name(entry: McpServer) -> str:
    from coupler.mcp.servers import server_name

    return server_name(entry)
