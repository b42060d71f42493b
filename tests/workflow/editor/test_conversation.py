"""A conversation of five turns in an editor is one run, and leaves nothing behind in what serves it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import forked
from agent.sessions.steps import reopen
from agent.steps import leave
from providers.stub import path_with
from raw_client import COUPLER, PATIENCE, RawClient
from workflow.acp_stub import AcpStub
from workflow.served_project import Editor, Shown, opened, write_workflow

pytestmark = [
    pytest.mark.usefixtures("unmeasured"),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc"),
]

CHAT = """
steps:
  - {id: talk, converse: opencode}
  - {id: after, run: echo ended}
outputs: {said: "{{ steps.talk.output }}"}
"""
MESSAGES = ["one", "two", "three", "four", "five"]
WHOLE = [
    line
    for message in MESSAGES
    for line in ({"role": "user", "text": message}, {"role": "agent", "text": f"I heard {message}."})
]

WATCHED = """
import asyncio, gc, os, signal, sys

def tell(*_):
    gc.collect()
    with open("tasks.part", "w") as file:
        file.writelines(sorted(f"{task.get_coro().__qualname__}\\n" for task in asyncio.all_tasks()))
    os.replace("tasks.part", "tasks")

signal.signal(signal.SIGUSR1, tell)
sys.argv = ["coupler", "serve"]
from coupler.__main__ import main
main()
"""
"""`coupler serve`, which writes its tasks into a file when it is asked to."""

TURN = "Prompting._run"

MOST_GROWTH = 4_000_000
"""Bytes by which the process may be larger after another conversation, of which only little is kept."""


class Holdings(NamedTuple):
    """What a process has at a moment."""

    tasks: str
    descriptors: list[str]
    threads: int
    children: list[int]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home with the workflow, and a program that stands in for the agent."""
    write_workflow(tmp_path / "workflows", "chat", CHAT)
    (tmp_path / "bin").mkdir()
    AcpStub(tmp_path / "bin", "opencode").answers(
        *({"when": message, "says": f"I heard {message}."} for message in MESSAGES)
    )
    return tmp_path


@contextmanager
def watched(place: Path) -> Iterator[RawClient]:
    env = {"COUPLER_HOME": str(place), "PATH": path_with(place / "bin")}
    with RawClient(sys.executable, "-c", WATCHED, cwd=place, env=env) as client:
        client.initialize()
        yield client
        leave(client)


def test_a_conversation_of_five_turns_is_one_run_and_leaves_nothing(place: Path) -> None:
    with watched(place) as client:
        editor = opened(client, place)
        first = conversed(editor)
        before, size = holdings(client, place), resident(client)
        second = conversed(editor)
        deadline = time.monotonic() + PATIENCE
        # A chore of the store may have the database open once more for a moment, before or now. SQLite keeps
        # the descriptors of a closed connection for the next one, while another of the process has a lock.
        while more := Counter((after := holdings(client, place)).descriptors) - Counter(before.descriptors):
            if all("coupler.db" in name and count < len(MESSAGES) for name, count in more.items()):
                break
            assert time.monotonic() < deadline, f"{after.descriptors}, and before {before.descriptors}"
        grown = resident(client)

    assert first.meta["outputs"] == second.meta["outputs"] == {"said": WHOLE}
    assert after._replace(descriptors=before.descriptors) == before
    assert after.tasks
    assert after.children == []
    assert grown - size < MOST_GROWTH
    assert {run["id"]: run["status"] for run in runs(place)} == {first.run: "success", second.run: "success"}


def test_a_conversation_goes_on_in_another_process_and_is_still_one_run(place: Path) -> None:
    with watched(place) as client:
        editor = opened(client, place)
        editor.prompt("/chat")
        for message in MESSAGES[:2]:
            parked = editor.prompt(message)
        client.call("session/close", {"sessionId": editor.session})
    with watched(place) as client:
        reopen(client, "session/load", editor.session, place)
        editor = Editor(client, editor.session)
        for message in MESSAGES[2:]:
            editor.prompt(message)
        left = editor.prompt("")
        children = holdings(client, place).children

    assert (left.reason, left.run) == ("end_turn", parked.run)
    assert left.meta["outputs"] == {"said": WHOLE}
    assert left.output("after") == "ended\n"
    assert children == []
    assert [(run["id"], run["status"]) for run in runs(place)] == [(parked.run, "success")]
    stub = AcpStub(place / "bin", "opencode")
    assert len({*stub.sessions}) == 1, "each turn was told to the agent in one session of its own"
    assert not [start["pid"] for start in stub.starts if psutil.pid_exists(start["pid"])]


def conversed(editor: Editor) -> Shown:
    """A whole conversation: begun, five messages, and left; while it waits no agent runs."""
    begun = editor.prompt("/chat")
    for message in MESSAGES:
        shown = editor.prompt(message)
        assert (shown.run, shown.meta["status"]) == (begun.run, "parked")
        assert shown.messages[0] == f"I heard {message}."
    left = editor.prompt("")
    assert (left.run, left.reason) == (begun.run, "end_turn")
    return left


def holdings(client: RawClient, place: Path) -> Holdings:
    process = psutil.Process(client.process.pid)
    deadline = time.monotonic() + PATIENCE
    # A prompt is answered a moment before its task is over.
    while TURN in (tasks := tasks_of(process, place)):
        assert time.monotonic() < deadline, "the turn does not end"
    descriptors = [str(entry.readlink()) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
    children = [child.pid for child in process.children(recursive=True)]
    return Holdings(tasks, sorted(map(_kind, descriptors)), process.num_threads(), children)


def tasks_of(process: psutil.Process, place: Path) -> str:
    process.send_signal(signal.SIGUSR1)
    told = place / "tasks"
    deadline = time.monotonic() + PATIENCE
    while not told.exists():
        assert time.monotonic() < deadline, "the process did not tell its tasks"
        time.sleep(0.005)
    tasks = told.read_text()
    told.unlink()
    return tasks


def resident(client: RawClient) -> int:
    return int(psutil.Process(client.process.pid).memory_info().rss)


def runs(place: Path) -> list[dict[str, Any]]:
    done = forked.run(
        [*COUPLER, "runs", "list", "--json"],
        env={**os.environ, "COUPLER_HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _kind(descriptor: str) -> str:
    """What it is: of pipes and the like without their number."""
    return descriptor.partition(":[")[0]
