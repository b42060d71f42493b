"""What `coupler exec` was asked to do, read from words into values; a mistake ends it with a sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from coupler.cli.given_file import STDIN, json_of, text_of
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.client.reply import Budget
    from coupler.schema.v1 import McpServer

PROGRAM = "coupler exec"
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
    files: Literal["none", "read", "write"] | None = None
    terminals: bool = False
    forms: bool = False
    timeout: float | None = None
    budget: Budget | None = None
    session: str | None = None
    record: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    fail_on_denial: bool = False


def prompt_of(words: Sequence[str], files: Sequence[str]) -> str:
    """The prompt: the words that were given, what was piped in place of `-`, and files, set apart."""
    if not words and not files:
        if sys.stdin is None or sys.stdin.isatty():
            refuse('say what to ask, as in: coupler exec claude "Summarise README.md"', PROGRAM)
        words = (STDIN,)
    if [*words, *files].count(STDIN) > 1:
        refuse("stdin can be read only once: give `-` once", PROGRAM)
    parts: list[list[str]] = [[]]
    for word in words:
        if word == STDIN:
            parts += [[text_of(STDIN, PROGRAM)], []]
        else:
            parts[-1].append(word)
    texts = [" ".join(part) for part in parts] + [text_of(file, PROGRAM) for file in files]
    prompt = "\n\n".join(text for text in texts if text.strip())
    if not prompt:
        refuse("the prompt is empty: say what to ask, after the agent or on stdin", PROGRAM)
    return prompt


def has_company(words: Sequence[str], files: Sequence[str]) -> bool:
    """Whether somebody sits at the terminal who can be asked: stdin is not where the prompt comes from."""
    is_read = STDIN in (*words, *files) or not (words or files)
    streams = (sys.stdin, sys.stderr)
    return not is_read and all(stream is not None and stream.isatty() for stream in streams)


def budget_of(text: str | None) -> Budget | None:
    """A budget such as tokens=5000,cost=0.5,turns=3."""
    if text is None:
        return None
    from coupler.client.reply import Budget

    limits: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in BUDGETS:
            refuse(
                f"--budget limits {', '.join(BUDGETS)}, as in --budget tokens=5000,cost=0.5; not {part!r}",
                PROGRAM,
            )
        try:
            limits[name] = BUDGETS[name](value)
        except ValueError:
            refuse(f"--budget {name} must be a number, not {value!r}", PROGRAM)
    try:
        return Budget(**limits)
    except ValueError as error:
        refuse(f"--budget: {error}", PROGRAM)


def schema_of(file: str | None) -> dict[str, Any] | None:
    """The JSON Schema in a file."""
    if file is None:
        return None
    schema = json_of(file, "--schema", PROGRAM)
    if not isinstance(schema, dict):
        refuse(f"{file} is no JSON Schema: it must be an object", PROGRAM)
    from coupler.client.output import described

    try:
        described(schema)
    except TypeError as error:
        refuse(f"--schema {file}: {str(error).removeprefix('output= is a type or a JSON Schema: ')}", PROGRAM)
    return schema
