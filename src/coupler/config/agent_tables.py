"""Agents as `coupler.toml` has them: `[agents.NAME]` with a command, or with what differs from the known one.

A value that is wrong is never repeated: it may be a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import msgspec

from coupler.config.errors import suggestion
from coupler.config.kind import Source, WrongValueError, type_words
from coupler.config.origin import Origin

_KEYS = ("command", "title", "env")

# What can be told from a command line: one word, without a path in it.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_UNFIT = re.compile("[\x00-\x1f\x7f]")


class AgentTable(msgspec.Struct, frozen=True):
    """What somebody has set for one agent; what is None is as the catalogue has it."""

    name: str
    origin: Origin
    command: tuple[str, ...] | None = None
    title: str | None = None
    env: Mapping[str, str] = {}


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
        if key not in _KEYS:
            raise WrongValueError(f"is unknown; {suggestion(key, _KEYS, _KEYS)}", name, key)
    command = _command(name, table["command"], source) if "command" in table else None
    title = _line(name, "title", table["title"]) if "title" in table else None
    return AgentTable(name, source.origin, command, title, _variables(name, table.get("env", {})))


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


def _line(name: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongValueError(f"must be a text, not {type_words(value)}", name, key)
    if not value.strip() or _UNFIT.search(value):
        raise WrongValueError("must be one line without control characters, and not empty", name, key)
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
