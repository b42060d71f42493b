"""Reads and writes the names by which agents call the tools of MCP servers.

Each vendor has its own form: `mcp__server__tool`, `mcp_server_tool`, `mcp_server.tool`, `server__tool`,
`server.tool`, `server_tool`, and in titles `server/tool` or `tool (server MCP Server)`. Some can be read in
several ways, and some are also the names of other tools. So a name is read with the servers that the session
was given.

The server that has a user's functions has a name of its own in each session, such as `coupler4k2fqa`, because
agents take two servers of one name for the same. Users write `coupler`, in rules and in code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

LONGEST_READ = 300
"""Characters of a name or a title that is read as the name of a server's tool."""

MOST_SPLITS = 12
"""Ways in which `mcp_a_b_c` is taken apart, at most, if no server of the session has such a name."""

OWN_SERVER = "coupler"
"""The name that users write for the MCP server which has their functions."""

OWN_SUFFIX_LENGTH = 6
"""Characters that a session adds to it: 27 bits, and `mcp__server__tool` leaves 44 of 64 for the tool.

Letters and digits alone, because agents replace other characters; a digit first, so that it is no word.
"""

_OWN_FORM = re.compile(rf"{OWN_SERVER}[2-7][a-z2-7]{{{OWN_SUFFIX_LENGTH - 1}}}")
_SEPARATOR = r"(?:__|: |[_./:])"
_DASH = "-"
"""A separator that is also a part of many servers' names."""
_TITLED = re.compile(r"(?P<tool>.+) \((?P<server>.+) MCP Server\)", re.DOTALL)
_SLASHED = re.compile(r"Tool: (?P<server>[^/]+)/(?P<tool>.+)", re.DOTALL)
_QUALIFIED = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.DOTALL)
_TIMED_ID = re.compile(r"(?P<name>.+)-\d{10,}(?:-\d+)?", re.DOTALL)
_REPEATED_ID = re.compile(r"(?P<name>.+)__(?P=name)_\d+(?:_\d+)?", re.DOTALL)
_NAMED_ID = re.compile(r"(?P<name>[A-Za-z_].*)__[A-Za-z0-9][A-Za-z0-9_-]{5,}", re.DOTALL)
_PLAIN_IDS = frozenset({"call", "tool", "toolcall", "tool_call", "tool-call", "toolu", "mcp"})
"""Words that begin an id and name no tool."""


class ToolName(NamedTuple):
    """The name of a tool, and its MCP server if it has one."""

    server: str | None
    tool: str
    is_marked: bool = False
    """True if the form says that it is a server's tool: `server_tool` may be any tool."""


class GivenTools(Struct, frozen=True):
    """The MCP servers and the Python functions that the user gave to a session's agent."""

    servers: tuple[str, ...] = ()
    """The names of the servers, with the one that has the functions."""
    own_server: str | None = None
    """The name of the server that has the functions, as the agent knows it."""
    own_name: str = OWN_SERVER
    """The name by which rules mean that server."""
    functions: Mapping[str, frozenset[str]] = {}
    """The functions' names, each with the names of its parameters."""


NOTHING_GIVEN = GivenTools()


def own_server_name(offered: bytes) -> str:
    """Return a name for our server that depends on nothing but what it offers."""
    from base64 import b32encode  # on use: served agents need only the other direction
    from hashlib import blake2b

    digest = blake2b(offered, digest_size=8).digest()
    letters = b32encode(digest[1:]).decode().lower()
    return f"{OWN_SERVER}{2 + digest[0] % 6}{letters[: OWN_SUFFIX_LENGTH - 1]}"


def written_name(server: str) -> str:
    """Return the name that users write for a server: its own, or `coupler` if Coupler has named it."""
    return OWN_SERVER if _OWN_FORM.fullmatch(server) else server


def qualified_name(server: str | None, tool: str) -> str:
    """Return the name that says both the server and the tool; `names_in` reads it back."""
    return tool if server is None else f"mcp__{server}__{tool}"


def names_in(text: str, servers: Sequence[str], *, is_folded: bool = False) -> list[ToolName]:
    """Return all ways to read a text as the name of a server's tool; none if it is no such name.

    `is_folded` takes capital letters for small ones, for rules that are against a call.
    """
    if len(text) > LONGEST_READ:
        return []
    found = [name for server in servers for name in _of_server(text, server, _SEPARATOR, is_folded)]
    if not found or is_folded:
        found += [name for server in servers for name in _of_server(text, server, _DASH, is_folded)]
    return [*dict.fromkeys(found or _of_any_server(text))]


def name_in_id(id: str) -> str | None:
    """Return the tool's name in the id of a call, if its agent makes ids of it: `name-1731…`, `name__…`."""
    if len(id) > LONGEST_READ:
        return None
    match = _TIMED_ID.fullmatch(id) or _REPEATED_ID.fullmatch(id) or _NAMED_ID.fullmatch(id)
    return match["name"] if match is not None and match["name"].lower() not in _PLAIN_IDS else None


def _of_server(text: str, server: str, separator: str, is_folded: bool) -> Iterator[ToolName]:
    """Read a text with the name of a server, whose signs that fit in no name others replace by `_`."""
    spelled = "".join(re.escape(sign) if sign.isalnum() else rf"(?:{re.escape(sign)}|_)" for sign in server)
    flags = re.DOTALL | (re.IGNORECASE if is_folded else 0)
    forms = (
        (rf"mcp(?P<sign>__|[_./:-]){spelled}(?:(?P=sign)|\.)(?P<tool>.+)", True),
        (rf"Tool: {spelled}/(?P<tool>.+)", True),
        (rf"(?P<tool>.+) \({spelled} MCP Server\)", True),
        (rf"{spelled}{separator}(?P<tool>.+)", False),
    )
    for form, is_marked in forms:
        if (match := re.fullmatch(form, text, flags)) is not None:
            yield ToolName(server, match["tool"], is_marked)
            return


def _of_any_server(text: str) -> Iterator[ToolName]:
    """Read a text that says by its form that it names a server's tool, whatever the server is called."""
    for form in (_TITLED, _SLASHED, _QUALIFIED):
        if (match := form.fullmatch(text)) is not None:
            yield ToolName(match["server"], match["tool"], True)
            return
    if text.startswith("mcp_"):
        rest = text.removeprefix("mcp_")
        splits = [(rest[: sign.start()], rest[sign.end() :]) for sign in re.finditer("[_.]", rest)]
        yield from (ToolName(*split, True) for split in splits[:MOST_SPLITS] if all(split))
