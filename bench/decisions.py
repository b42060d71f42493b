"""Measures permission requests that rules decide: about a short command, and about a long line."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from coupler import Policy, connect
from figures import DECISION, LONG_DECISION, Figure
from measures import Effort, Values
from peers import COUPLER, HERE, Peer

RULES = {"allow": ["execute(git *)", "execute(rm *)"], "ask": ["edit(docs/**)"], "deny": ["read(**/.env)"]}
SHORT = "rm x.txt"
LONG = " && ".join(f"git add src/module_{number}/file_{number}.py" for number in range(60))
"""A line of 2.4 KB with 60 commands."""


def measure_decisions(peer: Peer, home: Path, effort: Effort) -> Values:
    """An agent that asks, answered by a policy of rules: from the first request to the last answer."""
    if peer.name != COUPLER:
        return
    yield from taken(DECISION, SHORT, effort.decisions)
    yield from taken(LONG_DECISION, LONG, effort.decisions // 10)


def taken(figure: Figure, command: str, requests: int) -> Values:
    agent = [sys.executable, "-I", "-S", str(HERE / "agents" / "asking_agent.py"), command]
    with tempfile.TemporaryDirectory() as project:
        yield figure, asyncio.run(answered(agent, project, requests)) / requests


async def answered(command: list[str], project: str, requests: int) -> float:
    """Seconds for so many requests; the first prompt loads what deciding needs."""
    async with connect(command) as agent:
        session = await agent.new(cwd=project, permissions=Policy.patterns(**RULES))
        await session.prompt("1")
        began = time.perf_counter()
        reply = await session.prompt(str(requests))
        assert len(reply.permissions) == requests
        return time.perf_counter() - began
