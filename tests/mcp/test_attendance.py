"""Who attends a call: the time that a person takes, and servers when nobody is there."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from coupler.mcp.servers import ServerEnvironment, SessionServers, merge_servers
from coupler.mcp.tools import ActiveCall, ElicitationReply
from coupler.schema.v1 import McpServerStdio

CLERK = Path(__file__).parent.parent / "agent" / "servers" / "clerk.py"


class Absent:
    """Attends a call and has nothing to say."""

    async def hear_progress(self, progress, total, message):
        pass

    async def ask(self, message, schema):
        return ElicitationReply("decline")

    ask_url = ask


def test_the_servers_time_stands_still_while_somebody_is_asked_and_then_goes_on():
    async def story() -> None:
        attended = ActiveCall(Absent())
        is_asked = False
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05) as attended.limit:
                with attended.paused():
                    await asyncio.sleep(0.1)
                is_asked = True
                await asyncio.Event().wait()
        assert is_asked

    asyncio.run(story())


def test_a_call_without_a_limit_can_be_paused_too():
    attended = ActiveCall(Absent())
    with attended.paused():
        assert attended.limit is None


@pytest.mark.parametrize(("asks", "told"), [(True, '"decline"'), (False, '"error"')])
def test_a_server_may_ask_only_if_somebody_can_be_asked(asks, told):
    async def story() -> str:
        entry = McpServerStdio("clerk", sys.executable, [str(CLERK)], [])
        servers = SessionServers(merge_servers([entry]), ServerEnvironment("/", os.environ), asks=asks)
        try:
            return (await servers.call("clerk", "order", {}, 20)).text
        finally:
            await servers.close()

    assert told in asyncio.run(story())
