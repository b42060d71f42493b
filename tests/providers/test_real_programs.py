"""The native way of programs that nobody here wrote, against a scripted model on loopback.

Tools, denials, cancels and resumed sessions are cells of `make interop`: tests/interop/test_real_agents.py.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from coupler import connect
from coupler.client.reply import Reply
from coupler.providers import Gemini, OpenCode
from coupler.providers.command_line import CommandLineAgent
from coupler.schema.v1 import McpServer, McpServerStdio
from labs import others, scripted_model

pytestmark = pytest.mark.long

Make = Callable[[str], CommandLineAgent]

PATIENCE = 180.0
"""Seconds after which a test has failed: these programs take ten to start on a busy machine."""


@pytest.fixture
def model() -> Iterator[str]:
    running = scripted_model.serve()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()


@pytest.fixture(params=[OpenCode, Gemini], ids=["opencode", "gemini"])
def make(request: pytest.FixtureRequest, model: str, tmp_path: Path) -> Make:
    """The agent in a mode, with everything that the program keeps in a directory of its own."""
    kind: type[CommandLineAgent] = request.param
    home = tmp_path / "home"
    home.mkdir()
    try:
        other = getattr(others, str(kind.name))(home, model)
    except others.MissingError as error:
        pytest.skip(str(error))
    program = tmp_path / "program"
    # Without its last word, which makes it speak ACP.
    program.write_text(f'#!/bin/sh\nexec {shlex.join(other.command[:-1])} "$@"\n')
    program.chmod(0o755)
    env = {**other.env, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return lambda mode: kind(program=str(program), mode=mode, env=env)


def replies(
    agent: CommandLineAgent, cwd: Path, *prompts: str, servers: Sequence[McpServer] = ()
) -> list[Reply]:
    async def story() -> list[Reply]:
        async with connect(agent, cwd=cwd) as remote:
            session = await remote.new(mcp_servers=servers)
            return [await session.prompt(prompt) for prompt in prompts]

    return asyncio.run(asyncio.wait_for(story(), PATIENCE))


def test_what_would_be_asked_is_denied(make: Make, project: Path) -> None:
    (reply,) = replies(make("deny_asks"), project, "Please write it")

    assert all(call.status == "failed" for call in reply.tool_calls)
    assert not (project / "note.txt").exists()


SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    with open(sys.argv[1], "a") as file:
        file.write(asked["method"] + "\\n")
    if "id" not in asked:
        continue
    answer = {"tools": []}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "noting", "version": "1"}
        answer = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


def test_an_mcp_server_of_the_client_is_used_in_every_turn_of_one_session(
    make: Make, project: Path, tmp_path: Path
) -> None:
    script, log = tmp_path / "server.py", tmp_path / "asked"
    script.write_text(SERVER)
    server = McpServerStdio("noting", sys.executable, [str(script), str(log)], [])

    both = replies(make("allow_all"), project, "hello", "hello again", servers=[server])

    assert all("Hello from the scripted model." in reply.text for reply in both)
    assert log.read_text().split().count("tools/list") == 2


@pytest.mark.parametrize("make", [Gemini], indirect=True, ids=["gemini"])
@pytest.mark.parametrize("mode", ["read_only", "deny_asks", "allow_edits"])
def test_geminis_model_cannot_approve_its_own_plan_and_then_do_anything(
    make: Make, mode: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(
        [
            scripted_model.Call("enter_plan_mode", {"reason": "To plan"}),
            scripted_model.Call("write_file", {"file_path": "plan.md", "content": "# Plan\nWrite a note.\n"}),
            scripted_model.Call("exit_plan_mode", {"plan_filename": "plan.md"}),
            scripted_model.Call("run_shell_command", {"command": "echo written > note.txt"}),
        ]
    )
    monkeypatch.setattr(scripted_model, "answer", lambda question: iter([next(calls, "Done.")]))

    (reply,) = replies(make(mode), project, "Look around")

    statuses = {call.title: call.status for call in reply.tool_calls}
    assert not (project / "note.txt").exists(), statuses
    assert statuses["exit_plan_mode"] == "failed"
