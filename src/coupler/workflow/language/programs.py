"""Files with code that a workflow names: Python agents, and the programs of its MCP servers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from coupler.agent.factory import split
from coupler.workflow.language.definition import Agent, Converse, Workflow, all_steps, lists_of

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def programs_of(workflow: Workflow, directories: Sequence[Path]) -> Iterator[Path]:
    """The files with code that a workflow names, where they are found first."""
    steps = [
        step
        for steps in lists_of(workflow)
        for step in all_steps(steps)
        if isinstance(step, Agent | Converse)
    ]
    profiles = workflow.agents.values()
    for name in dict.fromkeys(each.agent for each in (*steps, *profiles)):
        if (file := python_file(name)) is not None:
            found = [each / file for each in directories if (each / file).is_file()]
            yield from found[:1]
    set_ups = [each.set_up for each in (*steps, *profiles, workflow.defaults)]
    servers = [*workflow.mcp_servers, *(server for each in set_ups for server in each.mcp_servers)]
    for program in dict.fromkeys(server.command[0] for server in servers if server.command):
        if len(Path(program).parts) > 1:
            yield directories[0] / program


def python_file(agent: str) -> str | None:
    """The file of a Python agent, from the directory on that it is looked for in; None for other agents."""
    place, attribute = split(agent.strip())
    if place.endswith(".py"):
        return place
    if attribute and attribute not in ("acp", "native") and _MODULE.fullmatch(place):
        return f"{place.replace('.', '/')}.py"
    return None
