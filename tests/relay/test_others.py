"""Agents that no one here wrote, and Coupler's own, behind a relay."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.stage import run
from coupler import Policy, connect
from coupler.events import Text
from interop.conftest import sdk_agent  # noqa: F401 - a fixture
from labs import others, scripted_model
from raw_client import COUPLER

pytestmark = pytest.mark.long

REFERENCE = Path(__file__).parent.parent.parent / "examples" / "reference.py"


def relayed(command: list[str]) -> list[str]:
    return [*COUPLER, "serve", "--", *command]


def test_a_flood_arrives_whole_and_in_order(sdk_agent: list[str], tmp_path: Path) -> None:  # noqa: F811
    async def story() -> None:
        async with connect(relayed(sdk_agent)) as agent:
            session = await agent.new(cwd=tmp_path)
            assert (await session.prompt("20000")).text == "".join(f"{i} " for i in range(20_000))

    run(story())


@pytest.mark.parametrize("policy", [Policy.allow_all(), Policy.deny_all()])
def test_a_permission_is_asked_for_as_without_a_relay(
    sdk_agent: list[str],  # noqa: F811
    tmp_path: Path,
    policy: Policy,
) -> None:
    async def asked(command: list[str]) -> tuple[str, list[tuple[str, str]]]:
        async with connect(command) as agent:
            reply = await (await agent.new(cwd=tmp_path, permissions=policy)).prompt("ask")
            return reply.text, [(call.title, call.status) for call in reply.tool_calls]

    async def story() -> None:
        assert await asked(relayed(sdk_agent)) == await asked(sdk_agent)

    run(story())


def test_leaving_a_turn_cancels_it_behind_the_relay(sdk_agent: list[str], tmp_path: Path) -> None:  # noqa: F811
    async def story() -> None:
        async with connect(relayed(sdk_agent)) as agent:
            session = await agent.new(cwd=tmp_path)
            async with session.prompt("slow") as turn:
                async for event in turn:
                    if isinstance(event, Text):
                        break
            assert (await session.prompt("cancels")).text == "1"

    run(story())


def test_the_reference_agent_does_the_same_behind_a_relay(tmp_path: Path) -> None:
    async def done(command: list[str], directory: Path) -> object:
        directory.mkdir()
        async with connect(command, files="write", terminals=True) as agent:
            session = await agent.new(cwd=directory, permissions=Policy.allow_all())
            reply = await session.prompt("hello")
            calls = [(call.title, call.kind, call.status, len(call.content)) for call in reply.tool_calls]
            settings = [getattr(option, "id", None) for option in session.settings.options]
            said = reply.text.replace(str(directory), "HERE"), reply.thoughts, reply.stop_reason
            plan = [(entry.content, entry.status) for entry in reply.plan]
            return said, calls, plan, settings, session.mode, (directory / "notes.txt").read_text()

    async def story() -> None:
        command = [*COUPLER, "serve", str(REFERENCE)]
        assert await done(relayed(command), tmp_path / "a") == await done(command, tmp_path / "b")

    run(story())


@pytest.fixture
def opencode(tmp_path: Path) -> Iterator[others.Other]:
    """OpenCode with a scripted model; the test is skipped where it is missing, and fails there under CI."""
    server = scripted_model.serve()
    try:
        yield others.opencode(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
    except others.MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    finally:
        server.shutdown()
        server.server_close()


def test_opencode_goes_on_with_a_session_after_a_restart(opencode: others.Other, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    asked = "Good morning"

    async def story() -> None:
        settings = {"env": opencode.env, "startup_timeout": 60.0}
        async with connect(relayed(opencode.command), **settings) as agent:
            session = await agent.new(cwd=project)
            first = await session.prompt(asked)
            assert first.text.strip() == "Hello from the scripted model."
        async with connect(relayed(opencode.command), **settings) as agent:
            again = await agent.load(session.id, cwd=project)
            told = "".join(each.event.text for each in again.record if isinstance(each.event, Text))
            assert told.strip() == first.text.strip()
            assert (await again.prompt(asked)).text.strip() == first.text.strip()

    # It takes seconds to start, and is started twice: more than other stories may take.
    asyncio.run(asyncio.wait_for(story(), 90))
