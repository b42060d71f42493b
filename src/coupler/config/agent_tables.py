"""Agents as `coupler.toml` has them: `[agents.NAME]` with a command, or with what differs from the known one.

A value that is wrong is never repeated: it may be a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from coupler.config.errors import suggestion
from coupler.config.kind import Source, TableKey, WrongValueError, address_problem, type_words
from coupler.config.origin import Origin

KEYS: Mapping[str, TableKey] = {
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
    "system": TableKey("a text", "Instructions; in the steps of workflows `{{ }}` is replaced in it."),
    "model": TableKey("a text", "The model that its sessions are set to."),
    "base_url": TableKey("an address", "Of an agent that stands on `coder`: the server that has the model."),
    "mode": TableKey("a text", "The mode that its sessions are set to."),
    "options": TableKey(
        "a table",
        "Options of its sessions by their ids; of native agents those of their command lines.",
    ),
    "tools": TableKey(
        "a table with `allow` and `deny`", "[Permission rules](permissions.md) for its tool calls."
    ),
    "context": TableKey("a list of files", "Their texts go before the prompt."),
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
"""All that a table may have, in the order of the manual."""

HookEvent = Literal["session_start", "before_tool", "after_tool", "turn_end"]
"""When the commands of `hooks` run."""

_FILES = ("none", "read", "write")
_TOOLS = ("allow", "deny")

# What can be told from a command line: one word, without a path in it.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_BASE = re.compile(_NAME.pattern + "(:acp|:native)?")
_UNFIT = re.compile("[\x00-\x1f\x7f]")


class AgentTable(msgspec.Struct, frozen=True):
    """What somebody has set for one agent; what is None is as the catalogue has it."""

    name: str
    origin: Origin
    command: tuple[str, ...] | None = None
    title: str | None = None
    env: Mapping[str, str] = {}
    files: Literal["none", "read", "write"] | None = None
    agent: str | None = None
    """The agent that it stands on: another name."""
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
    mcp: tuple[str, ...] | None = None
    """Names of servers of `[mcp]`; None if nothing is said about them, so that all of them are meant."""
    hooks: Mapping[HookEvent, tuple[str, ...]] = {}
    """Command lines that run when something happens, in their order."""


class AgentTables(msgspec.Struct, frozen=True):
    """A table for each agent; of two origins' agents with one name, the stronger one's counts whole."""

    words: str = "a table for each agent"

    def read(self, value: object, source: Source) -> tuple[AgentTable, ...]:
        if not isinstance(value, dict):
            raise WrongValueError(f"must be {self.words}: write [agents.NAME], not {type_words(value)}")
        return tuple(_agent(name, table, source) for name, table in value.items())

    def join(
        self, weaker: tuple[AgentTable, ...], stronger: tuple[AgentTable, ...]
    ) -> tuple[AgentTable, ...]:
        return (*{table.name: table for table in (*weaker, *stronger)}.values(),)


def _agent(name: str, table: object, source: Source) -> AgentTable:
    if not _NAME.fullmatch(name):
        raise WrongValueError("must be called by letters, digits, `_`, `-` and `.`, at most 64 of them", name)
    if not isinstance(table, dict):
        raise WrongValueError(f"must be a table, not {type_words(table)}", name)
    for key in table:
        if key not in KEYS:
            raise WrongValueError(f"is unknown; {suggestion(key, (*KEYS,), (*KEYS,))}", name, key)
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
        mcp=_servers(name, table["mcp"]) if "mcp" in table else None,
        hooks=_hooks(name, table.get("hooks", {})),
    )


def _command(name: str, value: object, source: Source) -> tuple[str, ...]:
    """A command line, or the list of its words; its program may be a path that starts where the file is."""
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


def _program(program: str, name: str, source: Source) -> str:
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


def _paths(name: str, key: str, value: object, source: Source) -> tuple[str, ...]:
    """Files, from the directory on that the configuration is in."""
    return tuple(_path(path, name, key, source) for path in _texts(name, (key,), value))


def _path(path: str, name: str, key: str, source: Source) -> str:
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


def _servers(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, dict):
        raise WrongValueError("must be a list of names: the servers are tables [mcp.NAME]", name, "mcp")
    return (*dict.fromkeys(_texts(name, ("mcp",), value)),)


def _hooks(name: str, value: object) -> dict[HookEvent, tuple[str, ...]]:
    """For each event a command line, or a list of them."""
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
