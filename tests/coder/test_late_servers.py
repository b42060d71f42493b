"""MCP servers that are late, fail or die: the model is asked without them, and gets their tools later."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

import agent.servers
from coder.script import Answer, Asked, use
from coder.served_coder import Coder, clerk
from raw_client import Frame

LATE = Path(*agent.servers.__path__) / "late.py"

USUAL = "[coder]\nmcp_wait_seconds = 1\n"
"""The wait of users, where other tests have a longer one."""

SOON = 8.0
"""Seconds of a first prompt on a busy machine; a server that hangs was waited for ten seconds more."""


def late(name: str, when: str, file: Path, tool: str) -> Frame:
    words = [str(LATE), when, str(file), tool]
    return {"name": name, "command": sys.executable, "args": words, "env": []}


def look_around(asked: Asked) -> Answer:
    """Use a tool that needs nobody, and each time with another argument: the same call again ends a turn."""
    return use("find_files", pattern=f"*.{len(asked.results)}")


def joins(tool: str, let_go: Callable[[], None]) -> Callable[[Asked], Answer]:
    """A model that is asked without a tool, lets it come, and looks at a file until it can use it."""

    def answer(asked: Asked) -> Answer:
        if not asked.results:
            assert tool not in asked.tools
            let_go()
        if f"{tool} is done" in asked.text:
            return "All is done."
        return use(tool) if tool in asked.tools else look_around(asked)

    return answer


@pytest.mark.parametrize("when", ["hello", "tools"])
def test_a_server_that_hangs_delays_nothing_and_its_tool_joins_the_running_turn(
    coder: Coder, project: Path, tmp_path: Path, when: str
) -> None:
    there = tmp_path / "there"
    (project / "README.md").write_text("Read me.\n")
    editor = coder(project, [], late("slow", when, there, "join"), config=USUAL)
    coder.model.improvises(joins("join", there.touch))

    begun = monotonic()
    turn = editor.prompt("Go", "allow_once")

    assert monotonic() - begun < SOON
    waiting = "Waiting for the MCP server `slow`"
    assert turn.text.count(waiting) == 1
    assert turn.text.index(waiting) < turn.text.index("All is done.")
    assert "slow: join" in str(editor.asked[-1]), "its use is asked about as that of every MCP tool"


def test_of_ten_servers_the_one_that_hangs_costs_only_its_own_tools(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    never = tmp_path / "never"
    servers = [late(f"server{number}", "at once", never, f"tool{number}") for number in range(9)]
    wanted = {f"tool{number}" for number in range(9)}
    (project / "README.md").write_text("Read me.\n")
    editor = coder(project, [], late("mute", "hello", never, "nothing"), *servers, config=USUAL)
    coder.model.improvises(lambda asked: "All nine." if wanted <= asked.tools else look_around(asked))

    begun = monotonic()
    turn = editor.prompt("Go")

    assert monotonic() - begun < SOON
    assert "Waiting for" in turn.text
    assert "`mute`" in turn.text
    assert "All nine." in turn.text
    again = editor.prompt("Go on")
    assert "Waiting for" not in again.text, "that was told before"


def test_servers_that_cannot_be_reached_are_told_and_cost_only_their_own_tools(
    coder: Coder, project: Path
) -> None:
    (project / "README.md").write_text("Read me.\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        editor = coder(
            project,
            [],
            {"name": "nowhere", "command": str(project / "no-such-program"), "args": [], "env": []},
            {"name": "ends", "command": sys.executable, "args": ["-c", "raise SystemExit(4)"], "env": []},
            {"name": "silent", "type": "http", "url": address, "headers": []},
            clerk(),
            config=USUAL,
        )
        coder.model.improvises(lambda asked: "Here." if "read_memo" in asked.tools else look_around(asked))

        begun = monotonic()
        turn = editor.prompt("Go")
        took = monotonic() - begun
        more = editor.prompt("Go on")

    assert took < SOON
    assert "Here." in turn.text
    told = f"{turn.text}\n{more.text}"
    assert told.count("The tools of the MCP server `nowhere` are missing") == 1
    assert told.count("The tools of the MCP server `ends` are missing") == 1
    assert "Waiting for" in told
    assert "`silent`" in told


def test_a_server_that_dies_in_a_call_is_an_error_for_the_model_and_the_turn_goes_on(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    (project / "README.md").write_text("Read me.\n")
    editor = coder(project, [], late("frail", "dies", tmp_path / "unused", "break_it"), config=USUAL)

    def answer(asked: Asked) -> Answer:
        if "exit code 3" in asked.text or "did not run" in asked.text:
            return "It broke."
        return use("break_it") if "break_it" in asked.tools else look_around(asked)

    coder.model.improvises(answer)

    turn = editor.prompt("Go", "allow_once")

    assert "It broke." in turn.text
    assert turn.use["status"] == "failed"
