"""A thousand cancelled turns leave no task, descriptor, thread or child behind, and sessions no memory."""

import json

import psutil
import pytest

from agent.sessions.lean_client import serve_lean

pytestmark = pytest.mark.long

CANCELLED_TURNS, WARM_UP = 1000, 50

# One session each for what a turn may be busy with when it is cancelled.
BUSY = """
import asyncio, json, os, threading, time
from pathlib import Path
from coupler import Agent, serve
from coupler.schema.v1 import ReadTextFileRequest

class Async(Agent):
    async def prompt(self, turn):
        match turn.text:
            case "count": await turn.say(json.dumps(await settled()))
            case "work": await working(turn)
            case "tool": await calling(turn)
            case "dialog": await asking(turn)
            case "file": await reading(turn)
            case "terminal": await running(turn, "sleep", "60")
            case "shell": await running(turn, "sh", "-c", "sleep 60 & sleep 61")

class Plain(Agent):
    def prompt(self, turn):
        turn.say("started")
        if turn.text == "terminal":
            turn.terminal.run("sleep", "60")
        with turn.tool("Think") as call:
            if turn.text == "dialog":
                call.permitted()
            while True:
                call.output("x")
                time.sleep(0.005)

async def working(turn):
    await turn.say("started")
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(asyncio.sleep(60))

async def calling(turn):
    async with turn.tool("Outer") as outer, turn.tool("Inner") as inner:
        await inner.output("so far")
        await turn.say("started")
        while True:
            await outer.output("x")
            await asyncio.sleep(0.001)

async def asking(turn):
    async with turn.tool("Delete", kind="delete") as call:
        await turn.say("started")
        await call.permitted()

async def reading(turn):
    await turn.say("started")
    await turn.call_editor(ReadTextFileRequest(turn.session.id, "/never"))

async def running(turn, *command):
    await turn.say("started")
    await turn.terminal.run(*command)

def make(session):
    return Plain() if session.cwd.endswith("plain") else Async()

async def settled():
    '''What there is of everything, once it no longer shrinks.'''
    counts, quiet = count(), 0
    while quiet < 10:
        await asyncio.sleep(0.02)
        now = count()
        quiet = quiet + 1 if now == counts else 0
        counts = now
    return counts

def count():
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": len(children),
    }

serve(factory=make)
"""
ASYNC = ["work", "tool", "dialog", "file", "terminal", "shell"]
PLAIN = ["work", "dialog", "terminal"]


def test_a_thousand_cancelled_turns_leave_nothing_behind(app, tmp_path):
    (tmp_path / "plain").mkdir()
    with serve_lean(app(BUSY)) as client:
        client.initialize(fs={"readTextFile": True})
        asynchronous, plain = client.new_session(tmp_path), client.new_session(tmp_path / "plain")
        busy = [(asynchronous, text) for text in ASYNC] + [(plain, text) for text in PLAIN]
        # The store's thread is there from now on; it is started once, when it is needed.
        client.call("session/delete", {"sessionId": client.new_session(tmp_path)})
        cancel_turns(client, busy, WARM_UP)
        before = counted(client, asynchronous)

        cancel_turns(client, busy, CANCELLED_TURNS - WARM_UP)

        after = counted(client, asynchronous)
        grandchildren = psutil.Process(client.process.pid).children(recursive=True)
        print(f"before {before}, after {after}")
        assert all(after[name] <= before[name] for name in before), (before, after)
        assert before["children"] == 0
        assert grandchildren == []
        client.leave()


def cancel_turns(client, busy, number):
    """Let one kind of turn after the other begin, and cancel it."""
    for turn in range(number):
        session, text = busy[turn % len(busy)]
        prompt = client.prompt(session, text)
        client.until(session.encode(), b'"started"')
        client.notify("session/cancel", {"sessionId": session})
        assert client.answer(prompt)["result"] == {"stopReason": "cancelled"}


def counted(client, session):
    prompt = client.prompt(session, "count")
    line = client.until(session.encode(), b'\\"tasks\\"')
    assert "result" in client.answer(prompt)
    return json.loads(json.loads(line)["params"]["update"]["content"]["text"])


# As an agent would: some text, a tool call, a state, and an end.
TALKER = """
async def agent(turn):
    turn.session.state = {"turns": (turn.session.state or {"turns": 0})["turns"] + 1}
    async with turn.tool("Look") as call:
        await call.output("found it\\n" * 20)
    for _ in range(10):
        await turn.say("some words of an answer ")
"""
SESSIONS, TURNS = 500, 20


@pytest.mark.parametrize("ending", ["closed", "left open"])
def test_sessions_cost_no_memory_when_they_are_closed_and_little_when_they_are_not(app, tmp_path, ending):
    with serve_lean(app(TALKER)) as client:
        client.initialize()
        memory = psutil.Process(client.process.pid).memory_info
        sizes = []
        sessions, turns = (SESSIONS, TURNS) if ending == "closed" else (250, 5)
        for _ in range(sessions):
            session = client.new_session(tmp_path)
            for _ in range(turns):
                assert client.answer(client.prompt(session, "go"))["result"] == {"stopReason": "end_turn"}
            if ending == "closed":
                client.call("session/close", {"sessionId": session})
            sizes.append(memory().rss)

        each = (sizes[-1] - sizes[100]) / (sessions - 100)
        print(f"{ending}: {sizes[100] / 1e6:.1f} MB, then {sizes[-1] / 1e6:.1f} MB: {each / 1e3:.1f} kB each")
        if ending == "closed":
            assert sizes[-1] < 1.1 * sizes[100]
        else:
            assert each < 32 * 1024
        assert len(client.call("session/list", {})["sessions"]) == 50
        client.leave()
