"""A scenario: what an agent does to provoke something in a client. Rules then judge how the client took it.

Scenarios stand beside the rules that need them, in the modules of `conformance.client`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from coupler.inspect.conformance.assertion import catalogue
from coupler.inspect.scripted_agent import ScriptedAgent

Play: TypeAlias = Callable[[ScriptedAgent], Awaitable[None]]

PLAIN = "plain-turn"
"""The scenario that every client must be able to go through; it comes first."""


@dataclass(frozen=True)
class Scenario:
    """`look` tells a person at the screen what to do or see.

    `needs_connection`: it changes the handshake or ends the agent, so it cannot be one turn of a chat.
    `needs_person`: only somebody who sees the screen can judge it.
    """

    name: str
    sentence: str
    judged_by: tuple[str, ...]
    play: Play
    look: str = ""
    needs_connection: bool = False
    needs_person: bool = False


_found: dict[str, Scenario] = {}


def scenario(
    name: str,
    sentence: str,
    *judged_by: str,
    look: str = "",
    needs_connection: bool = False,
    needs_person: bool = False,
) -> Callable[[Play], Play]:
    """Make a function a scenario, named for the command line and judged by these assertions."""

    def register(play: Play) -> Play:
        if name in _found:
            raise ValueError(f"there are two scenarios {name}")
        _found[name] = Scenario(name, sentence, judged_by, play, look, needs_connection, needs_person)
        return play

    return register


def scenarios() -> list[Scenario]:
    """All of them, the plain turn first."""
    catalogue("client")
    return sorted(_found.values(), key=lambda each: (each.name != PLAIN, each.name))
