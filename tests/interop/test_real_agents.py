"""Coupler's client drives agents that nobody here wrote: the SDKs' examples, opencode and gemini-cli.

For opencode and gemini-cli some cells of `make interop` are tried, with the code of that command.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from coupler import EndTurn, Policy, connect
from coupler.client.observation import Observation, ToolFinished
from coupler.client.remote import RemoteAgent
from coupler.client.session import RemoteSession
from labs import others, scripted_model

pytestmark = pytest.mark.long

T = TypeVar("T")
Story = Callable[[RemoteSession, Path], Awaitable[T]]

PATIENCE = 30.0
"""Seconds that a turn with the scripted model may take; these agents are heavy, and machines are busy."""

SUBSET_SECONDS = 400.0
"""Seconds that all cells of an agent may take."""


class Stage:
    """A running agent that several tests share, because it takes seconds to start."""

    def __init__(self, runner: asyncio.Runner, agent: RemoteAgent, root: Path) -> None:
        self._runner = runner
        self._agent = agent
        self._root = root

    def play(self, story: Story[T], **options: Any) -> T:
        """Open a session in a new directory, and let the story have it."""

        async def played() -> T:
            directory = self._root / f"session-{time.monotonic_ns()}"
            directory.mkdir()
            session = await self._agent.new(cwd=directory, **options)
            try:
                async with asyncio.timeout(PATIENCE):
                    return await story(session, directory)
            finally:
                await session.close()

        return self._runner.run(played())


@contextmanager
def running(other: others.Other, root: Path, **options: Any) -> Iterator[Stage]:
    """Start an agent, and see to it afterwards that nothing of it is left."""
    mark = {"COUPLER_TEST_RUN": str(root)}
    with asyncio.Runner() as runner:
        env = other.env | mark
        agent = connect(other.command, cwd=root, env=env, startup_timeout=60, **options)
        runner.run(agent.__aenter__())
        try:
            yield Stage(runner, agent, root)
        finally:
            runner.run(agent.close())
    assert not processes_with(mark), "the agent left processes behind"


def processes_with(variables: dict[str, str]) -> list[psutil.Process]:
    """The processes that were started with these variables, by whomever."""
    found = []
    for process in psutil.process_iter():
        try:
            if variables.items() <= process.environ().items() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def made(make: Callable[..., others.Other], *arguments: Any) -> others.Other:
    """The agent. Where it cannot be had the test is skipped; under CI that is an error."""
    try:
        return make(*arguments)
    except others.MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """Where the scripted model listens."""
    server = scripted_model.serve()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def opencode(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("opencode")
    with running(made(others.opencode, root, model), root) as stage:
        yield stage


@pytest.fixture(scope="module")
def gemini(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("gemini")
    # Where it reads through us, it takes the answer that a file is not there for a failure, and makes none.
    with running(made(others.gemini, root, model), root, files="none") as stage:
        yield stage


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("typescript")
    with running(made(others.typescript_sdk), root) as stage:
        yield stage


@pytest.fixture(params=["opencode", "gemini"])
def real(request: pytest.FixtureRequest) -> Stage:
    """Each of the agents with a model."""
    stage: Stage = request.getfixturevalue(request.param)
    return stage


SUBSET = {
    "opencode": ("prompt", "tool", "allow", "deny", "cancel", "tools", "usage"),
    "gemini": ("prompt", "tool", "allow", "deny", "cancel", "load", "tools", "output", "usage"),
    "opencode:native": ("tool", "deny"),
    "gemini:native": ("tool", "deny", "cancel", "load", "tools", "usage"),
}
"""The agents that are installed for other tests as well, and the cells of each that do not take long."""


@pytest.mark.parametrize("name", SUBSET)
def test_no_cell_is_worse_than_in_the_matrix(name: str, tmp_path: Path) -> None:
    made(getattr(others, name.partition(":")[0]), tmp_path, "http://127.0.0.1:9")
    words = [sys.executable, "interop", name, *(f"--only={cell}" for cell in SUBSET[name])]

    ran = subprocess.run(
        words, cwd=others.ROOT, capture_output=True, text=True, timeout=SUBSET_SECONDS, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "left behind" not in ran.stdout


def test_the_rule_that_a_denial_prints_allows_the_call_the_next_time(real: Stage) -> None:
    rules: list[str] = []

    async def denied(session: RemoteSession, _: Path) -> None:
        [decision] = (await session.prompt("Please write a note")).denied
        flags = (decision.remedy or "").partition("(--allow")[2].partition("), or everything")[0]
        rules.extend(word for word in shlex.split(flags) if word != "--allow")

    async def allowed(session: RemoteSession, directory: Path) -> None:
        reply = await session.prompt("Please write a note")
        assert [decision.is_allowed for decision in reply.permissions] == [True], rules
        assert (directory / "note.txt").read_text().strip() == "written"

    real.play(denied)
    assert rules
    real.play(allowed, permissions=Policy.patterns(allow=rules))


def test_a_tool_that_ends_the_turn_has_ended_well_for_the_agent_too(real: Stage) -> None:
    def lookup_price(item: str) -> str:
        """The price of an item."""
        raise EndTurn(item)

    async def story(session: RemoteSession, _: Path) -> None:
        seen: list[Observation] = []
        session.on_event(seen.append)
        with pytest.raises(EndTurn) as caught:
            await session.prompt('Please call lookup_price {"item": "tea"}')
        assert caught.value.payload == "tea"
        assert [each.bridged for each in seen if isinstance(each, ToolFinished)] == [True]
        assert [call.status for call in session.tool_calls.values()] == ["completed"]

    real.play(story, tools=[lookup_price])


@pytest.mark.parametrize("example", ["agent.py", "echo_agent.py"])
def test_the_examples_of_the_python_sdk_repeat_the_prompt(example: str, tmp_path: Path) -> None:
    async def story(session: RemoteSession, _: Path) -> None:
        reply = await session.prompt("Good morning")
        assert "Good morning" in reply.text
        assert reply.stop_reason == "end_turn"

    with running(made(others.python_sdk, example), tmp_path) as stage:
        stage.play(story)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_the_example_of_the_typescript_sdk_asks_and_obeys(typescript: Stage, is_allowed: bool) -> None:
    async def story(session: RemoteSession, _: Path) -> None:
        reply = await session.prompt("Good morning")
        reading, editing = reply.tool_calls
        assert (reading.status, editing.kind) == ("completed", "edit")
        assert [decision.is_allowed for decision in reply.permissions] == [is_allowed]
        assert (editing.status == "completed") is is_allowed

    typescript.play(story, permissions=Policy.allow_all() if is_allowed else Policy.deny_all())


def test_the_example_of_the_typescript_sdk_is_cancelled(typescript: Stage) -> None:
    async def story(session: RemoteSession, _: Path) -> None:
        async with session.prompt("Good morning") as prompt:
            await anext(aiter(prompt))
            await prompt.cancel()
            reply = await prompt
        assert reply.stop_reason == "cancelled"
        assert reply.text

    typescript.play(story)
