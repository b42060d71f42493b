"""The agent that a command was given: a name of the catalogue or a command line, as what can be started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from coupler.catalogue import Entry

FAILED = 1


class Startable(NamedTuple):
    """An agent's command, and what the catalogue knows about it."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    entry: Entry | None = None


def startable_agent(agent: str, program: str) -> Startable:
    """The agent's ACP form; if there is none here, the program ends with a sentence."""
    from coupler.catalogue import choose, chosen_for
    from coupler.client.errors import AgentError
    from coupler.coupling import startable
    from coupler.process.command import split_command
    from coupler.process.errors import SpawnError

    try:
        chosen = chosen_for(agent, ".")
        if chosen is not None and chosen.entry.command is None:
            end(f"{chosen.entry.title} is driven without ACP. {chosen.entry.install}", program)
        if chosen is not None and chosen.form == "native":
            chosen = choose(chosen.entry, "acp")
        if chosen is not None:
            return Startable(agent, chosen.command, chosen.entry.env, chosen.entry)
        return Startable(agent, (*split_command(startable(agent)),), {})
    except (AgentError, SpawnError) as error:
        end(str(error), program)


def end(sentence: str, program: str) -> NoReturn:
    """End the program, which could not do what it was asked for."""
    sys.stderr.write(f"{program}: {sentence}\n")
    sys.exit(FAILED)
