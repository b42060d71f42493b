"""What `coupler exec` was asked to do, read from words into values; a mistake ends it with a sentence."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from coupler.cli.exec_codes import WRONG_USAGE

if TYPE_CHECKING:
    from coupler.client.budget import Budget
    from coupler.schema.v1 import McpServer

STDIN = "-"
FORMATS = ("text", "json", "ndjson", "quiet")

BUDGETS = {"tokens": int, "cost": float, "turns": int}
"""What can be limited, and in what kind of number."""


@dataclass(frozen=True)
class ExecOptions:
    """The options as they were given, checked."""

    agent: str
    prompt: str
    format: str = "text"
    schema: dict[str, Any] | None = None
    cwd: str = "."
    model: str | None = None
    mode: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    mcp_servers: Sequence[McpServer] = ()
    permissions: str = "allow-reads"
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    files: Literal["none", "read", "write"] = "read"
    terminals: bool = False
    timeout: float | None = None
    budget: Budget | None = None
    session: str | None = None
    record: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    fail_on_denial: bool = False


def refuse(sentence: str) -> NoReturn:
    """End the program as wrong usage, in the name of the command that was given."""
    from click import get_current_context

    context = get_current_context(silent=True)
    name = "exec" if context is None else context.command.name
    sys.stderr.write(f"coupler {name}: {sentence}\n")
    sys.exit(WRONG_USAGE)


def prompt_of(words: Sequence[str], files: Sequence[str]) -> str:
    """The prompt: the words that were given, what was piped in place of `-`, and files, set apart."""
    if not words and not files:
        if sys.stdin is None or sys.stdin.isatty():
            refuse('say what to ask, as in: coupler exec claude "Summarise README.md"')
        words = (STDIN,)
    if [*words, *files].count(STDIN) > 1:
        refuse("stdin can be read only once: give `-` once")
    parts: list[list[str]] = [[]]
    for word in words:
        if word == STDIN:
            parts += [[_read(STDIN)], []]
        else:
            parts[-1].append(word)
    texts = [" ".join(part) for part in parts] + [_read(file) for file in files]
    prompt = "\n\n".join(text for text in texts if text.strip())
    if not prompt:
        refuse("the prompt is empty: say what to ask, after the agent or on stdin")
    return prompt


def _read(file: str) -> str:
    try:
        if file == STDIN:
            return sys.stdin.buffer.read().decode("utf-8", "replace")
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}")


def budget_of(text: str | None) -> Budget | None:
    """A budget such as tokens=5000,cost=0.5,turns=3."""
    if text is None:
        return None
    from coupler.client.budget import Budget

    limits: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in BUDGETS:
            refuse(f"--budget limits {', '.join(BUDGETS)}, as in --budget tokens=5000,cost=0.5; not {part!r}")
        try:
            limits[name] = BUDGETS[name](value)
        except ValueError:
            refuse(f"--budget {name} must be a number, not {value!r}")
    try:
        return Budget(**limits)
    except ValueError as error:
        refuse(f"--budget: {error}")


def schema_of(file: str | None) -> dict[str, Any] | None:
    """The JSON Schema in a file."""
    if file is None:
        return None
    schema = _json(file, "--schema")
    if not isinstance(schema, dict):
        refuse(f"{file} is no JSON Schema: it must be an object")
    from coupler.client.output import described

    try:
        described(schema)
    except TypeError as error:
        refuse(f"--schema {file}: {str(error).removeprefix('output= is a type or a JSON Schema: ')}")
    return schema


def servers_of(values: Sequence[str]) -> tuple[McpServer, ...]:
    """MCP servers: NAME=COMMAND, NAME=URL, or a JSON file with `mcpServers`."""
    if not values:
        return ()
    from coupler.config.kind import Source, WrongValueError
    from coupler.config.origin import COMMAND_LINE
    from coupler.config.server_tables import ServerTables

    tables: dict[str, Any] = {}
    for value in values:
        tables.update(_server_tables(value))
    source = Source(COMMAND_LINE, home=os.environ.get("HOME"))
    try:
        return ServerTables().read(tables, source)
    except WrongValueError as error:
        refuse(f"--mcp: {'.'.join(map(str, error.below))} {error}")


def _server_tables(value: str) -> dict[str, Any]:
    import shlex

    name, equals, target = value.partition("=")
    if not equals or os.sep in name:
        if not Path(value).is_file():
            refuse(f"--mcp takes NAME=COMMAND, NAME=URL or a JSON file; there is no file {value!r}")
        read = _json(value, "--mcp")
        servers = read.get("mcpServers", read) if isinstance(read, dict) else None
        if not isinstance(servers, dict):
            refuse(f"{value} names no MCP servers: it must be an object with `mcpServers`")
        return servers
    if target.startswith(("http://", "https://")):
        return {name: {"url": target}}
    try:
        words = shlex.split(target)
    except ValueError as error:
        refuse(f"--mcp {name}: the command cannot be split: {error}")
    if not words:
        refuse(f"--mcp {name}: it needs a command or an address after the =")
    return {name: {"command": words[0], "args": words[1:]}}


def _json(file: str, option: str) -> Any:
    text = _read(file)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        refuse(f"{option}: {file} is no JSON: {error}")
