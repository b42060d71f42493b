"""MCP servers as `coupler.toml` has them: `[mcp.NAME]` with a command, or with an address.

A value that is wrong is never repeated: it may be a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.config.errors import suggestion
from coupler.config.kind import Source, TableKey, WrongValueError, type_words

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer

_OF_COMMANDS = {
    "command": TableKey("a text", "The program: a name on the `PATH`, or a path."),
    "args": TableKey("a list of texts", "Its arguments."),
    "env": TableKey(
        "a table of texts",
        "Its variables. It gets these and a few that every program needs (`PATH`, `HOME`, `LANG` …), "
        "no others.",
    ),
}
_OF_ADDRESSES = {
    "url": TableKey("a text", "In place of a command: the address of a server, `https://…` or `http://…`."),
    "headers": TableKey("a table of texts", "What is sent to it with every request."),
    "type": TableKey(
        '`"http"` or `"sse"`', 'How it is spoken to; `"http"` (streamable HTTP) unless said otherwise.'
    ),
}
KEYS: Mapping[str, TableKey] = {**_OF_COMMANDS, **_OF_ADDRESSES}
"""All that a table may have, in the order of the manual."""

# What a rule such as `mcp:github(create_issue)` can name.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_UNFIT = re.compile("[\x00-\x1f\x7f]")


class ServerTables(msgspec.Struct, frozen=True):
    """A table for each server; of two origins' servers with one name, the stronger one's counts whole."""

    words: str = "a table for each server"

    def read(self, value: object, source: Source) -> tuple[McpServer, ...]:
        if not isinstance(value, dict):
            raise WrongValueError(f"must be {self.words}: write [mcp.NAME], not {type_words(value)}")
        return tuple(_server(name, table, source) for name, table in value.items())

    def join(self, weaker: tuple[McpServer, ...], stronger: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
        return (*{_name(server): server for server in (*weaker, *stronger)}.values(),)


def _name(server: Any) -> str:
    name: str = server.name
    return name


def _server(name: str, table: object, source: Source) -> McpServer:
    # Imported on use: a configuration without servers needs no types of the protocol.
    from coupler.schema import v1

    if not _NAME.fullmatch(name):
        raise WrongValueError("must be called by letters, digits, `_`, `-` and `.`, at most 64 of them", name)
    if not isinstance(table, dict):
        raise WrongValueError(f"must be a table, not {type_words(table)}", name)
    _check_keys(name, table)
    if "command" in table:
        variables = [v1.EnvVariable(*pair) for pair in _texts_by_name(name, "env", table).items()]
        command = _command(_text(name, "command", table), name, source)
        return v1.McpServerStdio(name, command, _texts(name, "args", table), variables)
    headers = [v1.HttpHeader(*pair) for pair in _texts_by_name(name, "headers", table).items()]
    url = _text(name, "url", table)
    if not url.startswith(("https://", "http://")):
        raise WrongValueError("must begin with https:// or http://", name, "url")
    match table.get("type", "http"):
        case "http":
            return v1.McpServerHttp(name, url, headers)
        case "sse":
            return v1.McpServerSse(name, url, headers)
    raise WrongValueError('must be "http" or "sse"', name, "type")


def _check_keys(name: str, table: Mapping[str, object]) -> None:
    for key in table:
        if key not in KEYS:
            raise WrongValueError(f"is unknown; {suggestion(key, (*KEYS,), (*KEYS,))}", name, key)
    if ("command" in table) == ("url" in table):
        raise WrongValueError("must have either `command` or `url`", name)
    way, unfit = ("command", _OF_ADDRESSES) if "command" in table else ("url", _OF_COMMANDS)
    for key in unfit:
        if key in table:
            raise WrongValueError(f"does not go with `{way}`", name, key)


def _text(name: str, key: str, table: Mapping[str, object]) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise WrongValueError(f"must be a text, not {type_words(value)}", name, key)
    if not value.strip() or _UNFIT.search(value):
        raise WrongValueError("must be one line without control characters, and not empty", name, key)
    return value


def _texts(name: str, key: str, table: Mapping[str, object]) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise WrongValueError(f"must be a list of texts, not {type_words(value)}", name, key)
    for number, item in enumerate(value):
        if not isinstance(item, str) or "\0" in item:
            raise WrongValueError(f"must be a text, not {type_words(item)}", name, key, number)
    return (*value,)


def _texts_by_name(name: str, key: str, table: Mapping[str, object]) -> dict[str, str]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise WrongValueError(f"must be a table of texts, not {type_words(value)}", name, key)
    for each, text in value.items():
        if not isinstance(text, str):
            raise WrongValueError(f"must be a text, not {type_words(text)}", name, key, each)
        # A variable may have several lines, as keys in PEM do; a header may not.
        has_unfit = "\0" in text if key == "env" else _UNFIT.search(text) is not None
        if not each or "=" in each or _UNFIT.search(each) or has_unfit:
            raise WrongValueError("must be a name and a text without control characters", name, key, each)
    return value


def _command(command: str, name: str, source: Source) -> str:
    """A program by its name, or a path; relative ones start where the file is, as all paths in it do."""
    if command.startswith("~/"):
        if source.home is None:
            raise WrongValueError("begins with ~, but this user has no home directory", name, "command")
        return os.path.join(source.home, command[2:])
    if os.path.dirname(command) and not os.path.isabs(command) and source.origin.directory is not None:
        return os.path.normpath(os.path.join(source.origin.directory, command))
    return command
