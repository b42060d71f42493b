"""What the tests of the client share: scripted agents in processes, and a loop that hides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import textwrap
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil
from hypothesis import HealthCheck, settings

from coupler import connect
from coupler.client.remote import RemoteAgent
from schema.conformance import check_frame

T = TypeVar("T")
Frame = dict[str, Any]

PATIENCE = 30.0
"""Seconds after which a test that waits has failed."""

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests on a machine that is busy with other tests."""

DRAFTS = frozenset({"session/fork"})
OF_BEFORE = frozenset({"session/set_model"})
"""Methods that the client calls where agents offer them, and that the protocol has not yet, or no more."""

BARE = Path(__file__).parent / "agents"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's story; nothing that it left behind may have failed unseen, or still be running."""

    async def guarded() -> T:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        async with asyncio.timeout(PATIENCE):
            result = await work
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left running: {left}"
        gc.collect()
        assert not problems, f"failed unseen: {problems}"
        return result

    return asyncio.run(guarded())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop work until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


class Scripted:
    """An agent in a file: a few lines of bare Python, run without Coupler and without site packages."""

    def __init__(self, directory: Path, number: int, body: str) -> None:
        self.file = directory / f"agent{number}.py"
        self.log = directory / f"agent{number}.log"
        self.file.write_text(
            f"import sys\nsys.path.insert(0, {str(BARE)!r})\nfrom bare import *\n{textwrap.dedent(body)}",
            encoding="utf-8",
        )
        self.log.touch()

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-B", str(self.file), str(self.log)]

    def connect(self, **options: Any) -> RemoteAgent:
        """The agent, not started yet."""
        return connect(self.command, **options)

    @property
    def received(self) -> list[Frame]:
        """Every frame that the client sent and the agent read."""
        return self.noted("got")

    def received_of(self, method: str) -> list[Frame]:
        """The calls of one method."""
        return [frame for frame in self.received if frame.get("method") == method]

    def answers_to(self, id: Any) -> list[Frame]:
        """The client's answers to one of the agent's requests."""
        return [frame for frame in self.received if "method" not in frame and frame["id"] == id]

    def noted(self, kind: str) -> list[Any]:
        """What the script wrote down under this word."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [note[kind] for line in lines if kind in (note := json.loads(line))]

    def wait_for(self, kind: str) -> None:
        """Wait until the script has written something down under this word."""
        deadline = time.monotonic() + PATIENCE
        while not self.noted(kind):
            assert time.monotonic() < deadline, f"no {kind} within {PATIENCE} s"
            time.sleep(0.005)

    def check(self) -> None:
        """The client sent nothing but valid frames, answered nothing twice, and left no process."""
        asked = {
            frame["id"]: frame["method"] for frame in self.noted("asked") if not isinstance(frame["id"], list)
        }
        answered: set[Any] = set()
        for frame in self.received:
            if frame.get("method") in OF_BEFORE:
                continue
            check_frame(frame, sent_by="client", method_of=asked, unstable=frame.get("method") in DRAFTS)
            if "method" not in frame:
                assert frame["id"] not in answered, f"a second answer: {frame}"
                answered.add(frame["id"])
        for pid in self.noted("pid"):
            assert not is_running(pid), f"the agent's process {pid} is still there"


def flooding(kind: str, directory: Path, count: int = 0) -> list[str]:
    """The command of an agent that floods its client: with so many, or without end, deaf to every cancel."""
    return [sys.executable, "-I", "-S", "-B", str(BARE / "flooding.py"), kind, str(count), str(directory)]


def wait_until_prompted(directory: Path) -> None:
    """Wait until such an agent was prompted."""
    deadline = time.monotonic() + PATIENCE
    while not (directory / "prompted").exists():
        assert time.monotonic() < deadline, f"not prompted within {PATIENCE} s"
        time.sleep(0.005)


def memory_until(is_over: Callable[[], bool], pid: int, seconds: float = PATIENCE) -> int:
    """The most memory, in bytes, that a process takes until something is the case, or the time is up."""
    most, process, deadline = 0, psutil.Process(pid), time.monotonic() + seconds
    with contextlib.suppress(psutil.NoSuchProcess):
        while not is_over() and time.monotonic() < deadline:
            most = max(most, process.memory_info().rss)
            time.sleep(0.01)
    return most


def is_running(pid: int) -> bool:
    """Whether a process lives; one that is dead and not yet reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone_within(seconds: float, pid: int) -> bool:
    """Whether a process that is no child of ours ends in time."""
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
