"""`serve_async`: the same agent inside a running loop, over any transport."""

import asyncio
import contextlib
import json
import sys

import pytest

from agent.desk import Desk
from coupler import serve_async
from coupler.wire.messages import RpcError
from coupler.wire.transport import MemoryTransport
from raw_client import RawClient, texts
from wire.stage import run, until


class Client:
    """The other end of a pair: keeps frames, sends lines."""

    def __init__(self, transport):
        self.transport = transport
        self.frames = []
        self.ended = False
        transport.open(self)

    def data_received(self, data):
        self.frames += map(json.loads, data.splitlines())

    def input_ended(self, error):
        self.ended = True

    def output_ready(self): ...

    async def call(self, id, method, params):
        line = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"
        await until(lambda: self.transport.write(line))
        await until(lambda: any(frame.get("id") == id for frame in self.frames))
        return next(frame for frame in self.frames if frame.get("id") == id)


async def echo(turn):
    await turn.say(turn.text)


def test_it_serves_over_a_transport_until_the_client_leaves():
    async def scenario():
        ours, theirs = MemoryTransport.pair()
        serving = asyncio.create_task(serve_async(echo, name="inner", transport=theirs))
        client = Client(ours)
        hello = await client.call(1, "initialize", {"protocolVersion": 1})
        assert hello["result"]["agentInfo"]["name"] == "inner"
        new = await client.call(2, "session/new", {"cwd": "/", "mcpServers": []})
        session = new["result"]["sessionId"]
        block = {"type": "text", "text": "hello"}
        await client.call(3, "session/prompt", {"sessionId": session, "prompt": [block]})
        assert client.frames[-2]["params"]["update"]["content"] == block
        ours.close()
        await serving

    run(scenario())


def test_a_line_over_the_limit_is_refused_and_the_next_is_served(app):
    script = app("""
        from coupler import serve
        async def agent(turn): ...
        serve(agent, frame_limit=1000)
    """)
    with RawClient(sys.executable, str(script)) as client:
        client.write(b"x" * 2000 + b"\n")
        assert client.read()["error"]["data"] == {"reason": "frame_too_long", "limit": 1000}
        assert client.initialize()["result"]


def test_it_ends_when_it_is_cancelled():
    async def scenario():
        ours, theirs = MemoryTransport.pair()
        serving = asyncio.create_task(serve_async(echo, transport=theirs))
        client = Client(ours)
        await client.call(1, "initialize", {"protocolVersion": 1})
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await until(lambda: client.ended)

    run(scenario())


def test_a_factory_and_a_target_are_not_both_taken():
    with pytest.raises(TypeError, match="not both"):
        run(serve_async(echo, factory=lambda session: echo))


def test_a_script_can_serve_from_its_own_loop(app):
    script = app("""
        import asyncio
        from coupler import serve_async
        async def agent(turn):
            print("noise")
            await turn.say(turn.text)
        async def main():
            await serve_async(agent, title="Inner")
        asyncio.run(main())
    """)
    with RawClient(sys.executable, str(script)) as client:
        assert client.initialize()["result"]["agentInfo"]["title"] == "Inner"
        assert texts(client.prompt(client.new_session(), "hi")[0]) == "hi"
        client.close_stdin()
        assert client.wait() == 0
        assert client.stderr == b"noise\n"


class TestConnection:
    """Where every tick counts."""

    def test_a_turn_that_is_cancelled_in_its_last_tick_is_still_answered_once(self):
        for ticks in range(8):

            async def scenario(ticks=ticks):
                desk = await Desk.open(echo)
                session = await desk.new_session()
                prompt = desk.prompt(session, "x")
                for _ in range(ticks):
                    await asyncio.sleep(0)
                desk.notify("session/cancel", {"sessionId": session})
                await desk.answer(prompt)
                await asyncio.sleep(0)
                answer, _, after = desk.around(prompt)
                assert answer["result"]["stopReason"] in ("cancelled", "end_turn")
                assert after == []
                again = await desk.answer(desk.prompt(session))
                assert again["result"]["stopReason"] == "end_turn"
                await desk.close()

            run(scenario())

    def test_requests_that_outlast_the_patience_are_given_up(self):
        async def scenario():
            async def stubborn(turn):
                while not released.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await released.wait()

            released = asyncio.Event()
            desk = await Desk.open(stubborn)
            desk.prompt(await desk.new_session())
            await asyncio.sleep(0)
            desk.tape.room = 0
            assert desk.connection.is_busy()
            await desk.connection.finish(0.05)
            assert desk.tape.closed
            released.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        run(scenario())

    def test_an_error_of_the_codes_own_choice_goes_through(self):
        async def scenario():
            async def picky(turn):
                raise RpcError(-32042, "not today", {"reason": "picky"})

            desk = await Desk.open(picky)
            answer = await desk.answer(desk.prompt(await desk.new_session()))
            assert answer["error"] == {"code": -32042, "message": "not today", "data": {"reason": "picky"}}
            await desk.close()

        run(scenario())
