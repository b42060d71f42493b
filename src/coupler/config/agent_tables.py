"""Agents and MCP servers as `coupler.toml` defines them: `[agents.NAME]` and `[mcp.NAME]`.

A value that is wrong is never repeated: it may be a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import structs

from coupler.config.files import Origin
from coupler.config.value_kinds import (
    ChoiceKind,
    CountKind,
    NumberKind,
    TableKey,
    ValueKind,
    ValueSource,
    WrongValueError,
    address_problem,
    type_words,
)
from coupler.fields.words import suggestion

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer

T = TypeVar("T")

AGENT_KEYS: Mapping[str, TableKey] = {
    "command": TableKey(
        "a text, or a list of its words",
        "Starts the agent. A path starts where the file is, as all paths in it do.",
    ),
    "agent": TableKey(
        "a name",
        "The agent that it stands on, in place of a `command`: one of the catalogue, or another table.",
    ),
    "title": TableKey("a text", "What people are shown."),
    "env": TableKey("a table of texts", "Added to its environment."),
    "files": TableKey(
        "`none`, `read` or `write`",
        "What it is offered of [files](clients.md#files) if nobody says so with `files=` or `--files`.",
    ),
    "system": TableKey("a text", "Instructions, which it is given before the first prompt."),
    "model": TableKey("a text", "The model that its new sessions are set to."),
    "base_url": TableKey("an address", "Of an agent that stands on `coder`: the server that has the model."),
    "max_model_calls": TableKey(
        "a number",
        "Of an agent that stands on `coder`: how often one prompt asks the model at most.",
    ),
    "effort": TableKey(
        "`off`, `on`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`",
        "Of an agent that stands on `coder`: how much the model thinks.",
    ),
    "temperature": TableKey(
        "a number from 0 to 2", "Of an agent that stands on `coder`: the temperature of the model."
    ),
    "max_output_tokens": TableKey(
        "a number", "Of an agent that stands on `coder`: how long an answer of the model may be."
    ),
    "mode": TableKey("a text", "The mode that its new sessions are set to."),
    "options": TableKey(
        "a table",
        "Options of its new sessions by their ids; of native agents those of their command lines.",
    ),
    "tools": TableKey(
        "a table with `allow` and `deny`", "[Permission rules](permissions.md) for its tool calls."
    ),
    "context": TableKey("a list of files", "Their texts go before the first prompt."),
    "skills": TableKey("a list of files", "Their texts are added to the instructions."),
    "mcp": TableKey(
        "a list of names",
        "Of an agent that stands on `coder`: the servers of [`[mcp]`](configuration.md#mcp-servers) that it "
        "uses; without it all of them.",
    ),
    "hooks": TableKey(
        "a table",
        "Of an agent that stands on `coder`: for `session_start`, `before_tool`, `after_tool` or `turn_end` "
        "a command line, or a list of them.",
    ),
}
"""The keys of an agent's table, in the order of the manual."""

HookEvent = Literal["session_start", "before_tool", "after_tool", "turn_end"]
"""Events that the commands of `hooks` run at."""

EFFORTS = ("off", "on", "minimal", "low", "medium", "high", "xhigh", "max")
"""The effort with which models think: none, their own, or one of the levels that providers have."""

EFFORT = ChoiceKind(EFFORTS)
TEMPERATURE = NumberKind(0, 2)
MAX_OUTPUT_TOKENS = CountKind(16, 10_000_000, "tokens")

MOST_MODEL_CALLS = 100_000
"""Largest limit on the model calls of one prompt."""

_FILES = ("none", "read", "write")
_TOOLS = ("allow", "deny")

# What can be told from a command line: one word, without a path in it.
_AGENT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_BASE = re.compile(_AGENT_NAME.pattern + "(:acp|:native)?")
_UNFIT = re.compile("[\x00-\x1f\x7f]")


class AgentTable(msgspec.Struct, frozen=True):
    """The settings of one agent; what is None is as the catalogue has it."""

    name: str
    origin: Origin
    command: tuple[str, ...] | None = None
    title: str | None = None
    env: Mapping[str, str] = {}
    files: Literal["none", "read", "write"] | None = None
    agent: str | None = None
    """The name of the agent that it is based on."""
    system: str | None = None
    model: str | None = None
    mode: str | None = None
    options: Mapping[str, str | int | float | bool] = {}
    allow: tuple[str, ...] = ()
    """Permission rules for its tool calls, as are those in `deny`."""
    deny: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    """Files whose text goes before a prompt, as absolute paths."""
    skills: tuple[str, ...] = ()
    """Files with instructions, as absolute paths."""
    base_url: str | None = None
    max_model_calls: int | None = None
    effort: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    mcp: tuple[str, ...] | None = None
    """Names of servers of `[mcp]`; None if nothing is said about them, so that all of them are meant."""
    hooks: Mapping[HookEvent, tuple[str, ...]] = {}
    """Command lines that run when something happens, in their order."""


class AgentTables(msgspec.Struct, frozen=True):
    """A table for each agent; of two with one name, the origin of higher precedence replaces the other."""

    words: str = "a table for each agent"

    def read(self, value: object, source: ValueSource) -> tuple[AgentTable, ...]:
        if not isinstance(value, dict):
            raise WrongValueError(f"must be {self.words}: write [agents.NAME], not {type_words(value)}")
        return tuple(_agent(name, table, source) for name, table in value.items())

    def join(
        self, weaker: tuple[AgentTable, ...], stronger: tuple[AgentTable, ...]
    ) -> tuple[AgentTable, ...]:
        return (*{table.name: table for table in (*weaker, *stronger)}.values(),)


def _agent(name: str, table: object, source: ValueSource) -> AgentTable:
    if not _AGENT_NAME.fullmatch(name):
        raise WrongValueError("must be called by letters, digits, `_`, `-` and `.`, at most 64 of them", name)
    if not isinstance(table, dict):
        raise WrongValueError(f"must be a table, not {type_words(table)}", name)
    for key in table:
        if key not in AGENT_KEYS:
            raise WrongValueError(f"is unknown; {suggestion(key, (*AGENT_KEYS,), (*AGENT_KEYS,))}", name, key)
    if "command" in table and "agent" in table:
        raise WrongValueError(
            "does not go with `command`: an agent stands on another, or is started", name, "agent"
        )
    tools = _tools(name, table.get("tools", {}))
    return AgentTable(
        name,
        source.origin,
        command=_command(name, table["command"], source) if "command" in table else None,
        title=_line(name, "title", table["title"]) if "title" in table else None,
        env=_variables(name, table.get("env", {})),
        files=_files(name, table["files"]) if "files" in table else None,
        agent=_base(name, table["agent"]) if "agent" in table else None,
        system=_text(name, "system", table["system"]) if "system" in table else None,
        model=_line(name, "model", table["model"]) if "model" in table else None,
        mode=_line(name, "mode", table["mode"]) if "mode" in table else None,
        options=_options(name, table.get("options", {})),
        allow=tools["allow"],
        deny=tools["deny"],
        context=_paths(name, "context", table.get("context", []), source),
        skills=_paths(name, "skills", table.get("skills", []), source),
        base_url=_address(name, table["base_url"]) if "base_url" in table else None,
        max_model_calls=_calls(name, table["max_model_calls"]) if "max_model_calls" in table else None,
        effort=_of_kind(EFFORT, name, "effort", table, source),
        temperature=_of_kind(TEMPERATURE, name, "temperature", table, source),
        max_output_tokens=_of_kind(MAX_OUTPUT_TOKENS, name, "max_output_tokens", table, source),
        mcp=_servers(name, table["mcp"]) if "mcp" in table else None,
        hooks=_hooks(name, table.get("hooks", {})),
    )


def _command(name: str, value: object, source: ValueSource) -> tuple[str, ...]:
    """Parse a command line or the list of its words; a path of the program is relative to the file."""
    words = _split(name, value) if isinstance(value, str) else value
    if not isinstance(words, list):
        message = f"must be a command line or the list of its words, not {type_words(value)}"
        raise WrongValueError(message, name, "command")
    for number, word in enumerate(words):
        if not isinstance(word, str) or "\0" in word:
            raise WrongValueError(f"must be a text, not {type_words(word)}", name, "command", number)
    if not words or not words[0].strip():
        raise WrongValueError("must name a program: it is empty", name, "command")
    return (_program(words[0], name, source), *words[1:])


def _split(name: str, value: str) -> list[str]:
    import shlex

    try:
        return shlex.split(_line(name, "command", value))
    except ValueError as error:
        if isinstance(error, WrongValueError):
            raise
        raise WrongValueError("cannot be split into words: a quote is open", name, "command") from None


def _program(program: str, name: str, source: ValueSource) -> str:
    if program.startswith("~/"):
        if source.home is None:
            raise WrongValueError("begins with ~, but this user has no home directory", name, "command")
        return os.path.join(source.home, program[2:])
    if os.path.dirname(program) and not os.path.isabs(program) and source.origin.directory is not None:
        return os.path.normpath(os.path.join(source.origin.directory, program))
    return program


def _base(name: str, value: object) -> str:
    base = _line(name, "agent", value)
    if not _BASE.fullmatch(base):
        raise WrongValueError(
            "must be the name of another agent; a command line goes into `command`", name, "agent"
        )
    if base.partition(":")[0] == name:
        raise WrongValueError("must be another agent than itself", name, "agent")
    return base


def _text(name: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise WrongValueError(f"must be a text that is not empty, not {type_words(value)}", name, key)
    return value


def _options(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValueError(f"must be a table of options, not {type_words(value)}", name, "options")
    for each, item in value.items():
        if not isinstance(item, str | int | float | bool):
            message = f"must be a text, a number, true or false, not {type_words(item)}"
            raise WrongValueError(message, name, "options", each)
    return value


def _tools(name: str, value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        message = f"must be a table with `allow` and `deny`, not {type_words(value)}"
        raise WrongValueError(message, name, "tools")
    for key in value:
        if key not in _TOOLS:
            raise WrongValueError(f"is unknown; {suggestion(key, _TOOLS, _TOOLS)}", name, "tools", key)
    return {key: _texts(name, ("tools", key), value.get(key, [])) for key in _TOOLS}


def _texts(name: str, keys: tuple[str, ...], value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongValueError(f"must be a list of texts, not {type_words(value)}", name, *keys)
    for number, item in enumerate(value):
        if not isinstance(item, str) or not item.strip() or _UNFIT.search(item):
            message = "must be one line without control characters, and not empty"
            raise WrongValueError(message, name, *keys, number)
    return (*value,)


def _paths(name: str, key: str, value: object, source: ValueSource) -> tuple[str, ...]:
    """Parse a list of files, which are relative to the configuration's directory."""
    return tuple(_path(path, name, key, source) for path in _texts(name, (key,), value))


def _path(path: str, name: str, key: str, source: ValueSource) -> str:
    if path.startswith("~/"):
        if source.home is None:
            raise WrongValueError("begins with ~, but this user has no home directory", name, key)
        return os.path.join(source.home, path[2:])
    return os.path.normpath(os.path.join(source.origin.directory or os.getcwd(), path))


def _address(name: str, value: object) -> str:
    address = _line(name, "base_url", value)
    if problem := address_problem(address):
        raise WrongValueError(problem, name, "base_url")
    return address


def _calls(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_MODEL_CALLS:
        message = f"must be a number of model calls from 1 to {MOST_MODEL_CALLS:,}"
        raise WrongValueError(message, name, "max_model_calls")
    return value


def _of_kind(
    kind: ValueKind[T], name: str, key: str, table: Mapping[str, object], source: ValueSource
) -> T | None:
    """Parse a value as a key of the whole configuration has it; None if the table has none."""
    if key not in table:
        return None
    try:
        return kind.read(table[key], source)
    except WrongValueError as error:
        raise WrongValueError(str(error), name, key) from None


def _servers(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, dict):
        raise WrongValueError("must be a list of names: the servers are tables [mcp.NAME]", name, "mcp")
    return (*dict.fromkeys(_texts(name, ("mcp",), value)),)


def _hooks(name: str, value: object) -> dict[HookEvent, tuple[str, ...]]:
    """Parse a command line, or a list of them, for each event."""
    if not isinstance(value, dict):
        message = f"must be a table with a command line for each event, not {type_words(value)}"
        raise WrongValueError(message, name, "hooks")
    events = get_args(HookEvent)
    for event in value:
        if event not in events:
            raise WrongValueError(f"is unknown; {suggestion(event, events, events)}", name, "hooks", event)
        if not isinstance(value[event], str | list):
            message = f"must be a command line or a list of them, not {type_words(value[event])}"
            raise WrongValueError(message, name, "hooks", event)
    listed = {event: [lines] if isinstance(lines, str) else lines for event, lines in value.items()}
    return {event: _texts(name, ("hooks", event), lines) for event, lines in listed.items()}


def _line(name: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongValueError(f"must be a text, not {type_words(value)}", name, key)
    if not value.strip() or _UNFIT.search(value):
        raise WrongValueError("must be one line without control characters, and not empty", name, key)
    return value


def _files(name: str, value: object) -> Any:
    if value not in _FILES:
        raise WrongValueError(f"must be one of {', '.join(map(repr, _FILES))}", name, "files")
    return value


def _variables(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise WrongValueError(f"must be a table of texts, not {type_words(value)}", name, "env")
    for each, text in value.items():
        if not isinstance(text, str):
            raise WrongValueError(f"must be a text, not {type_words(text)}", name, "env", each)
        if not each or "=" in each or _UNFIT.search(each) or "\0" in text:
            raise WrongValueError("must be a name and a text without control characters", name, "env", each)
    return value


def whole_table(name: str, tables: Mapping[str, AgentTable]) -> AgentTable | None:
    """Merge the table of an agent with those that it is based on; None if it has none itself.

    Of texts the nearest counts. Lists are concatenated, those of the base first; tables are merged, and of
    entries with one name the nearest counts.
    """
    chain = [*_chain(name, tables)]
    if not chain:
        return None
    below_first = chain[::-1]
    return structs.replace(
        chain[0],
        title=_first(table.title for table in chain),
        system=_first(table.system for table in chain),
        model=_first(table.model for table in chain),
        base_url=_first(table.base_url for table in chain),
        max_model_calls=_first(table.max_model_calls for table in chain),
        effort=_first(table.effort for table in chain),
        temperature=_first(table.temperature for table in chain),
        max_output_tokens=_first(table.max_output_tokens for table in chain),
        mode=_first(table.mode for table in chain),
        mcp=_first(table.mcp for table in chain),
        allow=_added_up(table.allow for table in below_first),
        deny=_added_up(table.deny for table in below_first),
        context=_added_up(table.context for table in below_first),
        skills=_added_up(table.skills for table in below_first),
        options={option: value for table in below_first for option, value in table.options.items()},
        hooks={event: lines for table in below_first for event, lines in table.hooks.items()},
        env={variable: value for table in below_first for variable, value in table.env.items()},
    )


def _chain(name: str, tables: Mapping[str, AgentTable]) -> Iterator[AgentTable]:
    """Yield the table of this name, the one that it is based on, and so on; a cycle ends."""
    seen: set[str] = set()
    while name in tables and name not in seen:
        seen.add(name)
        yield tables[name]
        name = (tables[name].agent or "").partition(":")[0]


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _added_up(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for some in lists for each in some))


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
SERVER_KEYS: Mapping[str, TableKey] = {**_OF_COMMANDS, **_OF_ADDRESSES}
"""The keys of a server's table, in the order of the manual."""

# What a rule such as `mcp:github(create_issue)` can name.
_SERVER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class ServerTables(msgspec.Struct, frozen=True):
    """A table for each server; of two with one name, the origin of higher precedence replaces the other."""

    words: str = "a table for each server"

    def read(self, value: object, source: ValueSource) -> tuple[McpServer, ...]:
        if not isinstance(value, dict):
            raise WrongValueError(f"must be {self.words}: write [mcp.NAME], not {type_words(value)}")
        return tuple(_server(name, table, source) for name, table in value.items())

    def join(self, weaker: tuple[McpServer, ...], stronger: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
        return (*{_name(server): server for server in (*weaker, *stronger)}.values(),)


def _name(server: Any) -> str:
    name: str = server.name
    return name


def _server(name: str, table: object, source: ValueSource) -> McpServer:
    # Imported on use: a configuration without servers needs no types of the protocol.
    from coupler.schema import v1

    if not _SERVER_NAME.fullmatch(name):
        raise WrongValueError("must be called by letters, digits, `_`, `-` and `.`, at most 64 of them", name)
    if not isinstance(table, dict):
        raise WrongValueError(f"must be a table, not {type_words(table)}", name)
    _check_keys(name, table)
    if "command" in table:
        variables = [v1.EnvVariable(*pair) for pair in _texts_by_name(name, "env", table).items()]
        command = _server_command(_server_text(name, "command", table), name, source)
        return v1.McpServerStdio(name, command, _server_texts(name, "args", table), variables)
    headers = [v1.HttpHeader(*pair) for pair in _texts_by_name(name, "headers", table).items()]
    url = _server_text(name, "url", table)
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
        if key not in SERVER_KEYS:
            raise WrongValueError(
                f"is unknown; {suggestion(key, (*SERVER_KEYS,), (*SERVER_KEYS,))}", name, key
            )
    if ("command" in table) == ("url" in table):
        raise WrongValueError("must have either `command` or `url`", name)
    way, unfit = ("command", _OF_ADDRESSES) if "command" in table else ("url", _OF_COMMANDS)
    for key in unfit:
        if key in table:
            raise WrongValueError(f"does not go with `{way}`", name, key)


def _server_text(name: str, key: str, table: Mapping[str, object]) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise WrongValueError(f"must be a text, not {type_words(value)}", name, key)
    if not value.strip() or _UNFIT.search(value):
        raise WrongValueError("must be one line without control characters, and not empty", name, key)
    return value


def _server_texts(name: str, key: str, table: Mapping[str, object]) -> tuple[str, ...]:
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


def _server_command(command: str, name: str, source: ValueSource) -> str:
    """Parse a program's name or path; relative paths start at the file's directory."""
    if command.startswith("~/"):
        if source.home is None:
            raise WrongValueError("begins with ~, but this user has no home directory", name, "command")
        return os.path.join(source.home, command[2:])
    if os.path.dirname(command) and not os.path.isabs(command) and source.origin.directory is not None:
        return os.path.normpath(os.path.join(source.origin.directory, command))
    return command
