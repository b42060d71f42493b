"""What is stored of one turn is bounded, and the journal says what is missing."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from coupler import Turn
from coupler.client.remote import RemoteAgent
from coupler.client_api import LocalLink


async def draws(turn: Turn) -> None:
    for number in range(50):
        async with turn.tool(f"Look {number}", kind="read") as call:
            await call.output("".join(chr(33 + each % 90) for each in range(number, number + 5_000)))
    await turn.say("done")


def test_a_turn_of_many_outputs_is_stored_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coupler.agent.history.STORED_TURN_BYTES", 60_000)
    store = tmp_path / "store.db"

    async def story() -> str:
        link = LocalLink(draws, store=str(store))
        async with RemoteAgent(lambda: link, cwd=tmp_path, startup_timeout=30) as agent:
            return (await (await agent.new()).prompt("go")).text

    assert asyncio.run(story()) == "done"
    with closing(sqlite3.connect(store)) as database:
        rows = database.execute("SELECT kind, body FROM entries ORDER BY seq").fetchall()
    assert sum(len(body) for _, body in rows) < 60_000
    [notice] = [bytes(body) for kind, body in rows if kind == "notice"]
    assert b"updates of this turn" in notice and b"it is over 60,000 bytes" in notice
    assert b"done" in [bytes(body) for _, body in rows]
