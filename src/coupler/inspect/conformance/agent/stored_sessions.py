"""Sessions that outlive their process: how to get one, to open it again, and to find it in the list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from coupler.inspect.conformance.assertion import Skip
from coupler.inspect.conformance.candidate import Candidate, advertises, describe, need
from coupler.inspect.conformance.reading import part
from coupler.inspect.line_pipe import ScriptError
from coupler.inspect.scripted_client import Answer, ScriptedClient

REOPENING = {"session/load": "loadSession", "session/resume": "sessionCapabilities.resume"}
"""The methods that open a session again, and the capability of each."""

LIST = "sessionCapabilities.list"

MOST_PAGES = 100
"""Pages of a list after which nobody believes in its end."""

LEAVING = 5.0
"""Seconds that an agent has to store its sessions and end; whether it ends at all is another's question."""


class Stored(NamedTuple):
    """A session with one turn, whose process is gone."""

    session: str
    agent_text: str


async def store_session(agent: Candidate, capability: str) -> Stored:
    """Have one turn in a process, then let it end, so that the session is as stored as it will ever be."""
    async with agent.ready() as client:
        need(client, capability)
        session = await agent.open_session(client)
        turn = await agent.take_turn(client, session)
        if turn.answer.result is None:
            raise Skip(f"the first turn got {describe(turn.answer)}; pass a --prompt that works")
        await leave(client)
        return Stored(session, turn.text)


async def leave(client: ScriptedClient) -> None:
    """Close the agent's input and let it end by itself."""
    client.close_input()
    with suppress(ScriptError):
        await client.exit(within=LEAVING)


def ways_to_reopen(client: ScriptedClient) -> list[str]:
    """The methods by which this agent opens a session again."""
    return [method for method, capability in REOPENING.items() if advertises(client, capability)]


def need_way_to_reopen(client: ScriptedClient) -> list[str]:
    """The same; skips if there is none."""
    methods = ways_to_reopen(client)
    if not methods:
        raise Skip(f"the agent advertises neither {' nor '.join(REOPENING.values())}")
    return methods


async def reopen(client: ScriptedClient, method: str, session: str) -> Answer:
    """Load or resume a session where it was."""
    return await client.call(method, {"sessionId": session, "cwd": str(client.directory), "mcpServers": []})


async def pages_of(client: ScriptedClient, directory: Path) -> AsyncIterator[Answer]:
    """The list of a directory's sessions, page by page: all of it, or as much as anyone would read."""
    params: dict[str, Any] = {"cwd": str(directory)}
    for _ in range(MOST_PAGES):
        page = await client.call("session/list", params)
        yield page
        cursor = part(page.result, "nextCursor")
        if cursor is None:
            return
        params = {**params, "cursor": cursor}
