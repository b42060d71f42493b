"""Slash commands: what an agent offers, and how a prompt invokes it.

A command is plain text at the beginning of a prompt: "/plan the release" invokes `plan` with "the release".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import UNSET

from coupler.agent.declaration import declared_list, declared_or_none, declared_text
from coupler.agent.prompt_text import prompt_text
from coupler.schema import v1


class Command:
    """A command that users can type. The hint says what to write behind its name."""

    def __init__(self, name: str, description: str, *, hint: str | None = None) -> None:
        self.name: Final = _command_name(name)
        self.description: Final = declared_text(description, f"the description of /{self.name}")
        self.hint: Final = declared_or_none(hint, f"the hint of /{self.name}")

    def __repr__(self) -> str:
        return f"Command({self.name!r})"

    def as_available(self) -> v1.AvailableCommand:
        """The command as clients are told of it."""
        expected = UNSET if self.hint is None else v1.UnstructuredCommandInput(self.hint)
        return v1.AvailableCommand(self.name, self.description, expected)


class Invocation(NamedTuple):
    """A command that was typed, and the text behind its name."""

    name: str
    arguments: str


def declared_commands(commands: Iterable[Command]) -> tuple[Command, ...]:
    """An agent's commands if they can be told apart."""
    return declared_list(commands, (Command,), lambda command: command.name, "commands")


def invoked(commands: Iterable[Command], blocks: Iterable[v1.ContentBlock]) -> Invocation | None:
    """The command that a prompt invokes, None if its text does not begin with one of them.

    What follows the name is the arguments: the rest of the text, and the blocks behind it as text.
    """
    following = iter(blocks)
    typed = _first_text(following).lstrip()
    if not typed.startswith("/"):
        return None
    word = typed.split(maxsplit=1)[0]
    name = word[1:]
    if name not in {command.name for command in commands}:
        return None
    rest = _without_separator(typed[len(word) :])
    own = (v1.TextContent(rest),) if rest else ()
    return Invocation(name, prompt_text((*own, *following)))


def _command_name(name: object) -> str:
    text = declared_text(name, "a command's name")
    if text.startswith("/"):
        raise ValueError(f"a command's name has no slash before it: write {text.lstrip('/')!r:.100}")
    if len(text.split()) != 1 or text != text.strip():
        raise ValueError(f"a command's name is one word; use '-' in place of the blanks in {text!r:.100}")
    return text


def _first_text(blocks: Iterable[v1.ContentBlock]) -> str:
    """The first text that is not blank. Editors put links to files before what was typed."""
    for block in blocks:
        if isinstance(block, v1.TextContent) and block.text.strip():
            return block.text
    return ""


def _without_separator(rest: str) -> str:
    return rest[2:] if rest.startswith("\r\n") else rest[1:]
