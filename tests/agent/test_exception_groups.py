"""Exception groups, which task groups raise: users read what went wrong, and never just how many errors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from coupler.runtime.commands import RunningCommand
from coupler.runtime.exceptions import exception_text
from raw_client import COUPLER, serve

AGENT = """
import asyncio
from coupler import AuthRequiredError, Turn

class Lost(Exception):
    pass

async def fail(error):
    raise error

async def agent(turn: Turn):
    match turn.text:
        case "one":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(Lost("the index is gone")))
        case "several":
            inner = ExceptionGroup("in it", [OSError("no disk")])
            # With messages that somebody has written.
            raise ExceptionGroup("two", [Lost("the index is gone"), inner])
        case "tool":
            async with turn.tool("look"), asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(Lost("the index is gone")))
        case "login":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(AuthRequiredError("log in with `x login`")))
        case "mcp":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(turn.mcp.tools("far"))
"""

CASES = {
    "one": "Lost: the index is gone",
    "several": "two: Lost: the index is gone; in it: OSError: no disk",
    "tool": "Lost: the index is gone",
    "login": "log in with `x login`",
    "mcp": "McpError: the MCP server `far` could not be reached: ",
}


def test_a_served_agent_answers_with_what_its_task_group_has_wrapped(tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text(AGENT)
    far = {"type": "http", "name": "far", "url": "http://127.0.0.1:1/", "headers": []}
    with serve(tmp_path / "groups.py", cwd=tmp_path) as client:
        client.initialize()
        session = client.new_session(str(tmp_path), far)
        answers = {word: client.prompt(session, word) for word in CASES}
    assert b"sub-exception" not in b"".join(client.lines)

    wrong = {
        word: answer["error"]["message"]
        for word, (_, answer) in answers.items()
        if CASES[word] not in answer["error"]["message"]
    }
    assert wrong == {}
    assert answers["login"][1]["error"]["code"] == -32000
    [shown] = [update for update in answers["tool"][0] if update.get("status") == "failed"]
    assert "Lost: the index is gone" in str(shown)


def test_a_step_fails_with_what_its_agents_task_group_has_wrapped(tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text(AGENT)
    (tmp_path / "flow.yaml").write_text(
        f"steps:\n  - {{id: it, agent: '{sys.executable} -m coupler serve groups.py', prompt: several}}\n"
    )
    done = forked.Popen(
        [*COUPLER, "run", "./flow.yaml", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    finished = json.loads(done.communicate()[0].splitlines()[-1])

    assert CASES["several"] in finished["message"]


def test_a_listener_that_fails_raises_its_own_error() -> None:
    async def refuse(chunk: bytes) -> None:
        raise ValueError("too much")

    async def story() -> None:
        job = RunningCommand.start(["echo", "hello"], cwd="/", hears_stderr=True)
        try:
            await job.hear(refuse)
        finally:
            await job.end(0)
            job.close()

    with pytest.raises(ValueError, match="too much"):
        asyncio.run(story())


def test_the_text_of_a_long_group_names_some_and_counts_the_rest() -> None:
    group = ExceptionGroup(
        "unhandled errors in a TaskGroup", [ValueError(str(number)) for number in range(7)]
    )

    assert exception_text(group, is_typed=False) == "0; 1; 2; 3; 4; and 2 more"
    assert exception_text(ExceptionGroup("", [KeyError()])) == "KeyError"
