"""Chat's own slash commands, and how they are told from the agent's and from plain text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct


class Own(Struct, frozen=True):
    """A command of chat itself."""

    name: str
    hint: str
    description: str


OWN = (
    Own("mode", "[MODE]", "list the agent's modes, or change the mode"),
    Own("model", "[MODEL]", "list the models, or change the model"),
    Own("option", "[NAME VALUE]", "list the options, or set one"),
    Own("sessions", "", "list the earlier sessions in this directory"),
    Own("new", "", "begin a new session"),
    Own("load", "[N|ID]", "go on with an earlier session"),
    Own("show", "[N|plan]", "show a tool call or thought in full; the last call without a number"),
    Own("help", "", "list the commands and the keys"),
    Own("quit", "", "leave"),
)
OWN_NAMES = frozenset(own.name for own in OWN)

_COMMAND = re.compile(r"/([^\s/]+)(?:\s+(.*))?", re.DOTALL)


class Order(Struct, frozen=True):
    """One of chat's own commands, as it was given."""

    name: str
    argument: str = ""


class Message(Struct, frozen=True):
    """Something for the agent."""

    text: str


class Mistake(Struct, frozen=True):
    """A command that nobody knows."""

    sentence: str


Given: TypeAlias = Order | Message | Mistake


def understood(line: str, agents: Iterable[str]) -> Given:
    """What a line means; `agents` are the names of the agent's commands.

    Chat's own commands go first; with two slashes a command goes to the agent in any case. A path at the
    beginning of a line is no command.
    """
    line = line.strip()
    if line.startswith("//"):
        return Message(line[1:])
    match = _COMMAND.fullmatch(line)
    if match is None:
        return Message(line)
    name, argument = match[1], (match[2] or "").strip()
    if name in OWN_NAMES:
        return Order(name, argument)
    known = [*agents]
    if name in known:
        return Message(line)
    near = difflib.get_close_matches(name, [*OWN_NAMES, *known], n=1)
    meant = f"did you mean /{near[0]}? " if near else "/help lists those there are. "
    return Mistake(f"There is no command /{name}: {meant}//{name} is sent to the agent as it is.")
