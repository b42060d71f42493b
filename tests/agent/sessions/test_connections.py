"""Several connections in one process: a session is open on one of them."""

import asyncio
import json

import pytest

from coupler.agent.startup.serve import serve_async
from coupler.wire.messages import RpcError
from coupler.wire.peer import Peer
from coupler.wire.transport import MemoryTransport


class Client:
    """A client in this process, on a connection of its own."""

    def __init__(self, agent, store):
        ours, theirs = MemoryTransport.pair()
        self.serving = asyncio.create_task(serve_async(agent, transport=theirs, store=store))
        self.peer = Peer(ours, self)
        self.peer.open()

    def request_received(self, request): ...
    def notification_received(self, method, params): ...
    def disconnected(self, error): ...

    async def call(self, method, params):
        return json.loads(bytes(await self.peer.request(method, params)))

    async def leave(self):
        await self.peer.close()
        await self.serving


async def agent(turn):
    await turn.say("fine")


def test_a_session_that_is_open_on_another_connection_is_refused_until_that_one_leaves(tmp_path):
    async def story():
        first, second = Client(agent, tmp_path / "s.db"), Client(agent, tmp_path / "s.db")
        for client in (first, second):
            await client.call("initialize", {"protocolVersion": 1})
        place = {"cwd": str(tmp_path), "mcpServers": []}
        session = (await first.call("session/new", place))["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
        await first.call("session/prompt", prompt)

        for method, params in (("session/load", place), ("session/delete", {})):
            with pytest.raises(RpcError, match="another connection of this process"):
                await second.call(method, {"sessionId": session, **params})
        assert (await first.call("session/prompt", prompt))["stopReason"] == "end_turn"
        await first.leave()

        await second.call("session/load", {"sessionId": session, **place})
        assert (await second.call("session/prompt", prompt))["stopReason"] == "end_turn"
        await second.leave()

    asyncio.run(story())
