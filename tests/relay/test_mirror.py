"""A turn that is shown to an editor which does not read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from client.stage import run
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
