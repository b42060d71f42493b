"""A turn that is shown to an editor which does not read."""

from __future__ import annotations

import asyncio
import tracemalloc
from types import SimpleNamespace
from typing import Any

from client.stage import run
from coupler.agent.tool_call import Ledger
from coupler.client.errors import AgentError
from coupler.events import ToolCall
from coupler.relay.mirror import TurnMirror


def test_calls_with_much_in_them_count_as_much_while_the_editor_does_not_read() -> None:
    # given an editor that never has room
    never = asyncio.Event()
    outlet = SimpleNamespace(has_room=lambda: False, wait_for_room=never.wait)
    turn: Any = SimpleNamespace(is_alive=True, session=SimpleNamespace(outlet=outlet), own=lambda work: work)
    overflows: list[AgentError] = []

    async def story() -> None:
        mirror = TurnMirror(turn, terminal=lambda terminal: None, overflowed=overflows.append)  # type: ignore[arg-type,return-value]
        # when the agent reports calls whose outputs are more than is ever kept
        output = "x" * 1_000_000
        for number in range(70):
            mirror.take(ToolCall(id=str(number), title="t", raw_output=output))
        turn.is_alive = False
        await mirror.finish()

    run(story())
    # then its turn is ended
    assert overflows and overflows[0].kind == "overflow"


def test_of_calls_that_the_client_holds_no_longer_only_the_status_is_kept() -> None:
    # given a turn whose calls are all open, and a client that holds the last ten
    held: dict[str, ToolCall] = {}
    reported: list[str] = []
    ledger = Ledger(lambda update: reported.append(update.id))
    outlet = SimpleNamespace(has_room=lambda: True, ledger=ledger)
    turn: Any = SimpleNamespace(
        is_alive=True, session=SimpleNamespace(outlet=outlet), begin_new_message=lambda: None
    )
    mirror = TurnMirror(
        turn,
        terminal=lambda terminal: None,  # type: ignore[arg-type,return-value]
        overflowed=lambda error: None,
        held_calls=held,
    )
    tracemalloc.start()
    try:
        # when it has many with much in them
        for number in range(300):
            call = held[str(number)] = ToolCall(id=str(number), title=f"{number}" + "x" * 100_000)
            held.pop(str(number - 10), None)
            mirror.take(call)
        del call
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # then little is kept of them, and each can still end
    assert kept < 5_000_000
    mirror.take(ToolCall(id="0", title="", status="completed"))
    assert not ledger.is_open("0") and ledger.is_open("1")
