"""The agent that a command was given: a name of the catalogue or a command line, as what can be started."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from coupler.cli.exec_codes import AUTH_REQUIRED

if TYPE_CHECKING:
    from coupler.catalogue import Entry
    from coupler.client.errors import AgentError

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


def advice(error: AgentError, agent: str) -> str | None:
    """What to do about an agent that failed, if it is not in the error; `agent` is as it was given."""
    if error.code == AUTH_REQUIRED:
        return f"It wants a login: run `coupler login {shlex.quote(agent)}`"
    if error.kind in ("died", "initialize") and "initialize" in error.message:
        return f"`coupler agents doctor {shlex.quote(agent)}` tells what is wrong with it"
    is_name = len(agent.split()) == 1 and os.sep not in agent
    if error.kind == "spawn" and is_name and "was not found" in error.message:
        return "If an agent of the catalogue is meant: `coupler agents` lists them"
    return None


def end(sentence: str, program: str) -> NoReturn:
    """End the program, which could not do what it was asked for."""
    sys.stderr.write(f"{program}: {sentence}\n")
    sys.exit(FAILED)
