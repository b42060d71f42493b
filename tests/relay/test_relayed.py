"""One session here and one there: with the same directories, and deleted together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from client.stage import Scripted
from raw_client import RawClient, texts

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]

KEEPS = """
    CAPABILITIES = {"loadSession": True, "sessionCapabilities": {GIVEN}}
    opened = 0
    while True:
        frame = read()
        method = frame.get("method")
        if method == "initialize":
            send(result(frame, {"protocolVersion": 1, "agentCapabilities": CAPABILITIES}))
        elif method == "session/new":
            opened += 1
            send(result(frame, {"sessionId": f"{os.getpid()}-{opened}"}))
        elif method == "session/delete" and "REFUSES" in "GIVEN":
            send(error(frame, -32603, "not now"))
        elif method == "session/prompt":
            send(say(text_of(frame), frame["params"]["sessionId"]), end(frame))
        elif "id" in frame:
            send(result(frame, {}))
"""


def keeping(script: Script, *capabilities: str, refuses: bool = False) -> Scripted:
    given = ", ".join(f"'{name}': {{}}" for name in capabilities)
    return script(KEEPS.replace("{GIVEN}", f"{{{given}}}").replace('"GIVEN"', f'"{"REFUSES" * refuses}"'))


def test_additional_directories_are_passed_to_an_agent_that_takes_them(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = keeping(script, "additionalDirectories")
    (tmp_path / "more").mkdir()
    with relay(agent) as editor:
        editor.initialize()
        place = {"cwd": str(tmp_path), "additionalDirectories": [str(tmp_path / "more")], "mcpServers": []}
        assert "result" in editor.call("session/new", place)
    [opened] = agent.received_of("session/new")
    assert opened["params"]["additionalDirectories"] == [str(tmp_path / "more")]


def test_an_agent_that_takes_no_additional_directories_is_not_told_and_the_log_says_so(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script("""
        for prompt in prompts():
            send(request(7, "fs/read_text_file", sessionId="s1", path=text_of(prompt)))
            send(say(answer_to(7)["result"]["content"]), end(prompt))
    """)
    (tmp_path / "here").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "notes.txt").write_text("readable all the same")
    with relay(agent) as editor:
        editor.initialize()
        place = {
            "cwd": str(tmp_path / "here"),
            "additionalDirectories": [str(tmp_path / "more")],
            "mcpServers": [],
        }
        session = editor.call("session/new", place)["result"]["sessionId"]
        # What it does through us may concern them, because the user has named them.
        told, _ = editor.prompt(session, str(tmp_path / "more" / "notes.txt"))
        assert texts(told) == "readable all the same"
        editor.close_stdin()
        editor.wait()
        assert b"takes no additional directories" in editor.stderr
    [opened] = agent.received_of("session/new")
    assert "additionalDirectories" not in opened["params"]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_session_that_is_deleted_is_deleted_behind_us_where_the_agent_offers_that(
    script: Script, relay: Serve, is_open: bool
) -> None:
    agent = keeping(script, "delete")
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        editor.prompt(session, "hello")
        if is_open:
            assert editor.call("session/delete", {"sessionId": session})["result"] == {}
    if not is_open:
        with relay(agent) as editor:
            editor.initialize()
            assert editor.call("session/delete", {"sessionId": session})["result"] == {}
            assert editor.call("session/list", {})["result"]["sessions"] == []
    [deleted] = agent.received_of("session/delete")
    [prompted] = agent.received_of("session/prompt")
    assert deleted["params"]["sessionId"] == prompted["params"]["sessionId"]


def test_a_session_is_deleted_here_whatever_the_agent_says(script: Script, relay: Serve) -> None:
    without, refusing = keeping(script), keeping(script, "delete", refuses=True)
    for agent in (without, refusing):
        with relay(agent) as editor:
            editor.initialize()
            session = editor.new_session()
            editor.prompt(session, "hello")
            assert editor.call("session/delete", {"sessionId": session})["result"] == {}
            assert editor.call("session/list", {})["result"]["sessions"] == []
    assert not without.received_of("session/delete")
    assert len(refusing.received_of("session/delete")) == 1


def test_what_is_deleted_with_a_fork_is_the_forks_own_session(script: Script, relay: Serve) -> None:
    agent = keeping(script, "delete")
    with relay(agent, "--drafts", "fork") as editor:
        editor.initialize()
        session = editor.new_session()
        editor.prompt(session, "hello")
        place = {"sessionId": session, "cwd": "/", "mcpServers": []}
        fork = editor.call("session/fork", place)["result"]["sessionId"]
        editor.prompt(fork, "again")
        editor.call("session/delete", {"sessionId": fork})
        assert texts(editor.prompt(session, "still here")[0]) == "still here"
    original, forked, _ = (frame["params"]["sessionId"] for frame in agent.received_of("session/prompt"))
    assert original != forked
    assert [frame["params"]["sessionId"] for frame in agent.received_of("session/delete")] == [forked]
