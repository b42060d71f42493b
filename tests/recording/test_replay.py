"""A recording served again as an agent, and played as a client, over real pipes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import forked
from coupler import connect
from coupler.client.policy import Policy
from coupler.conformance.peers import FULL_CAPABILITIES
from coupler.conformance.scripted_client import ScriptedClient
from coupler.recording.traces import Trace

T = TypeVar("T")

ROOT = Path(__file__).parent.parent.parent
COUPLER = [sys.executable, "-m", "coupler"]
REFERENCE = [sys.executable, str(ROOT / "examples" / "reference.py")]
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _unmeasured(unmeasured: None) -> None:
    """What these programs run is measured in other tests."""


def tap(file: Path, *command: str) -> list[str]:
    return [*COUPLER, "record", "-q", "-o", str(file), "--", *command]


def replay(file: Path, *options: str) -> list[str]:
    return [*COUPLER, "replay", *options, str(file)]


def hold(command: list[str], folder: Path, talk: Callable[[ScriptedClient, str], Awaitable[T]]) -> T:
    """A conversation of a full editor in one session."""

    async def main() -> T:
        capabilities = {**FULL_CAPABILITIES, "elicitation": {}}
        async with ScriptedClient(
            command, directory=folder, capabilities=capabilities, timeout=20.0
        ) as client:
            await client.initialize()
            opened = await client.new_session()
            result = await talk(client, opened.result["sessionId"])
            client.close_input()
            await client.exit()
            return result

    return asyncio.run(main())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Where sessions work, the same at each run."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("old\n")
    return folder


@pytest.fixture
def recording(tmp_path: Path, project: Path) -> Path:
    """A turn with everything: tool calls, files, a permission, a terminal."""
    file = tmp_path / "session.ndjson"
    hold(tap(file, *REFERENCE), project, one_turn)
    (project / "notes.txt").write_text("old\n")
    return file


async def one_turn(client: ScriptedClient, session: str) -> Any:
    return await client.prompt(session, "hello")


def made(file: Path, *lines: tuple[str, dict[str, Any]]) -> Path:
    """A recording that is written down, a second for each line."""
    with file.open("w") as out:
        for number, (sender, message) in enumerate(lines):
            entry = {"at": number, "from": sender, "frame": {"jsonrpc": "2.0", **message}}
            out.write(json.dumps(entry) + "\n")
    return file


def update(text: str, session: str = "s1") -> tuple[str, dict[str, Any]]:
    body = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return "agent", {"method": "session/update", "params": {"sessionId": session, "update": body}}


def opening(session: str = "s1", id: Any = 2) -> tuple[tuple[str, dict[str, Any]], ...]:
    params = {"cwd": "/", "mcpServers": []}
    return (
        ("client", {"id": id, "method": "session/new", "params": params}),
        ("agent", {"id": id, "result": {"sessionId": session}}),
    )


HELLO: tuple[tuple[str, dict[str, Any]], ...] = (
    ("client", {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}),
    ("agent", {"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}}),
)


def prompt(text: str, id: Any = 3, session: str = "s1") -> tuple[str, dict[str, Any]]:
    params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
    return "client", {"id": id, "method": "session/prompt", "params": params}


def ended(id: Any = 3, reason: str = "end_turn") -> tuple[str, dict[str, Any]]:
    return "agent", {"id": id, "result": {"stopReason": reason}}


# As an agent


def test_a_recorded_session_is_played_again_with_its_files_and_permissions(
    recording: Path, project: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.ndjson"

    turn = hold(tap(again, *replay(recording)), project, one_turn)

    assert turn.stop_reason == "end_turn"
    assert "This was prompt 1 of the session." in turn.text
    assert (project / "notes.txt").read_text() == "old\n'hello'\n"  # written by the editor, as it was asked
    before, after = Trace.load(recording), Trace.load(again)
    asked = [[each.method for each in trace.exchanges(sender="agent")] for trace in (before, after)]
    assert asked[0] == asked[1]
    assert {"fs/read_text_file", "fs/write_text_file", "session/request_permission"} <= {*asked[0]}
    frames = [[update.body for update in trace.updates()] for trace in (before, after)]
    assert frames[0] == frames[1]


def test_a_replay_passes_the_check_as_the_recording_does(
    recording: Path, project: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.ndjson"
    hold(tap(again, *replay(recording)), project, one_turn)

    for file in (recording, again):
        done = forked.run(
            [*COUPLER, "check", "--trace", str(file)], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stdout


def test_couplers_own_client_talks_to_a_replay(recording: Path, project: Path) -> None:
    async def main() -> tuple[str, str, str]:
        async with connect(replay(recording), cwd=project) as agent:
            session = await agent.new(permissions=Policy.allow_all())
            reply = await session.prompt("anything")
            with pytest.raises(Exception, match="no further session/prompt") as refused:
                await session.prompt("more")
            return reply.text, reply.stop_reason, str(refused.value)

    text, reason, refusal = asyncio.run(main())
    assert "This was prompt 1 of the session." in text
    assert reason == "end_turn"
    assert "it has 1 in all; it goes on with nothing, it is over" in refusal


def test_a_request_that_the_recording_does_not_have_is_refused_with_what_it_has(tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO, *opening(), prompt("a"), ended())

    async def talk(client: ScriptedClient, session: str) -> tuple[Any, Any]:
        unknown = await client.call("session/list", {})
        turn = await client.prompt(session, "x")
        return unknown.error, turn.stop_reason

    error, reason = hold(replay(file), tmp_path, talk)
    assert error["code"] == -32601
    assert error["message"] == (
        "the recording has no session/list; it has initialize, session/new, session/prompt"
    )
    assert error["data"]["expected"] == ["session/prompt"]
    assert reason == "end_turn"


def test_turns_are_matched_by_their_session_whatever_the_order(tmp_path: Path) -> None:
    file = made(
        tmp_path / "t.ndjson",
        *HELLO,
        *opening("s1", 2),
        *opening("s2", 3),
        prompt("x", 4, "s1"),
        prompt("y", 5, "s2"),
        update("two", "s2"),
        update("one", "s1"),
        ended(5),
        ended(4),
    )

    async def talk(client: ScriptedClient, session: str) -> list[str]:
        other = (await client.new_session()).result["sessionId"]
        turns = [await client.prompt(each, "z") for each in (other, session)]
        return [turn.text for turn in turns]

    assert hold(replay(file), tmp_path, talk) == ["two", "one"]


def test_a_client_may_load_a_session_by_an_id_of_its_own(tmp_path: Path) -> None:
    load = {"sessionId": "theirs", "cwd": "/", "mcpServers": []}
    file = made(
        tmp_path / "t.ndjson",
        *HELLO,
        *opening("other"),
        ("client", {"id": 3, "method": "session/load", "params": load}),
        update("history", "theirs"),
        ("agent", {"id": 3, "result": {}}),
        prompt("x", 4, "theirs"),
        update("answer", "theirs"),
        ended(4),
    )

    async def talk(client: ScriptedClient, session: str) -> list[Any]:
        await client.call("session/load", {**load, "sessionId": "mine"})
        await client.prompt("mine", "x")
        return [each.body["content"]["text"] for each in client.trace.updates("mine")]

    assert hold(replay(file), tmp_path, talk) == ["history", "answer"]


def permission(id: Any) -> tuple[str, dict[str, Any]]:
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    call = {"toolCallId": "c", "title": "Do it"}
    params = {"sessionId": "s1", "toolCall": call, "options": options}
    return "agent", {"id": id, "method": "session/request_permission", "params": params}


def test_what_follows_a_permission_waits_for_its_answer(tmp_path: Path) -> None:
    chosen = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    file = made(
        tmp_path / "t.ndjson",
        *HELLO,
        *opening(),
        prompt("x"),
        permission("ask-1"),
        update("meanwhile"),
        ("client", {"id": "ask-1", "result": chosen}),
        update("after"),
        ended(),
    )

    async def talk(client: ScriptedClient, session: str) -> list[Any]:
        held = client.desk.services.pop("session/request_permission")
        client.desk.services["session/request_permission"] = hold_back
        id = client.ask_prompt(session, "x")
        await client.update(session, "agent_message_chunk")
        await client.quiet(0.3)
        before = [each.body["content"]["text"] for each in client.trace.updates(session)]
        client.desk.services["session/request_permission"] = held
        client.answer_held("session/request_permission")
        turn = await client.end_of_turn(session, id)
        return [before, turn.text, turn.stop_reason]

    assert hold(replay(file), tmp_path, talk) == [["meanwhile"], "meanwhileafter", "end_turn"]


def hold_back(params: dict[str, Any]) -> dict[str, Any]:
    from coupler.conformance.peers import Unanswered

    raise Unanswered


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_cancel_ends_the_turn_whether_it_was_recorded_or_not(is_recorded: bool, tmp_path: Path) -> None:
    cancel = ("client", {"method": "session/cancel", "params": {"sessionId": "s1"}})
    chosen = ("client", {"id": 1, "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}})
    recorded = (cancel, ended(3, "cancelled")) if is_recorded else (permission(1), chosen, ended())
    file = made(tmp_path / "t.ndjson", *HELLO, *opening(), prompt("x"), update("tick"), *recorded)

    async def talk(client: ScriptedClient, session: str) -> Any:
        client.desk.services["session/request_permission"] = hold_back
        id = client.ask_prompt(session, "x")
        await client.update(session, "agent_message_chunk")
        client.notify("session/cancel", {"sessionId": session})
        return (await client.end_of_turn(session, id)).stop_reason

    assert hold(replay(file), tmp_path, talk) == "cancelled"


def test_a_recording_that_was_cut_off_says_so_in_its_last_answer(tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO, *opening(), prompt("x"), update("and then"))

    async def talk(client: ScriptedClient, session: str) -> Any:
        return (await client.prompt(session, "x")).answer.error["message"]

    assert hold(replay(file), tmp_path, talk) == "the recording ends before the answer to session/prompt"


def test_timing_is_that_of_the_recording_or_a_part_of_it(tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO, *opening(), prompt("x"), update("a"), update("b"), ended())

    async def talk(client: ScriptedClient, session: str) -> float:
        began = time.monotonic()
        await client.prompt(session, "x")
        return time.monotonic() - began

    assert 0.6 <= hold(replay(file, "--timing", "0.2"), tmp_path, talk) < 3.0


def test_what_needs_no_client_is_played_to_one_that_has_closed_its_input(tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO, *opening(), prompt("x"), update("a"), ended())
    requests = b"".join(
        json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        for sender, message in (*HELLO, *opening(), prompt("x", "mine"))
        if sender == "client"
    )
    done = forked.run(replay(file), input=requests, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout.splitlines()[-1])["id"] == "mine"


def test_a_permission_that_is_answered_otherwise_is_told_and_changes_nothing(tmp_path: Path) -> None:
    chosen = {"outcome": {"outcome": "cancelled"}}
    file = made(
        tmp_path / "t.ndjson",
        *HELLO,
        *opening(),
        prompt("x"),
        permission(1),
        ("client", {"id": 1, "result": chosen}),
        update("after"),
        ended(),
    )

    async def talk(client: ScriptedClient, session: str) -> tuple[str, str]:
        return (await client.prompt(session, "x")).text, client.stderr

    text, told = hold(replay(file), tmp_path, talk)
    assert text == "after"
    assert "session/request_permission was answered with" in told
    assert 'and was recorded with {"outcome":{"outcome":"cancelled"}}: it goes on as recorded' in told


def test_a_recording_with_gaps_is_played_and_says_so(tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO, *opening())
    with file.open("a") as out:
        out.write('{"at": 9, "missing": 3, "because": "the file could not be written"}\n')
    done = forked.run(replay(file), input=b"", capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert b"is not complete: 3 frames are missing, and are not played" in done.stderr


def test_a_replay_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO, *opening(), prompt("x"), permission(1), ended())

    async def talk(client: ScriptedClient, session: str) -> int | None:
        client.desk.services["session/request_permission"] = hold_back
        client.ask_prompt(session, "x")
        await client.request_of_agent("session/request_permission")
        assert client.pid is not None
        os.kill(client.pid, signal.SIGTERM)
        return await client.exit()

    assert hold(replay(file), tmp_path, talk) == 0


# As a client


def against(file: Path, *command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*COUPLER, "replay", "--client", *options, str(file), "--", *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )


def test_the_same_agent_does_what_was_recorded(recording: Path) -> None:
    done = against(recording, *REFERENCE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "= 1. initialize",
        "= 2. session/new",
        '= 3. session/prompt "hello"',
        "the agent does what was recorded",
    ]


def test_what_another_agent_does_otherwise_is_shown_by_exchange(tmp_path: Path) -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "a-1", "title": "Look", "status": "pending"}
    other = {**call, "toolCallId": "b-77", "status": "completed"}
    plan = {"sessionUpdate": "plan", "entries": []}

    def session_update(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "agent", {"method": "session/update", "params": {"sessionId": "s1", "update": body}}

    hello = (*HELLO, *opening(), prompt("x"))
    recorded = made(
        tmp_path / "a.ndjson",
        *hello,
        update("one "),
        update("text"),
        session_update(call),
        session_update(plan),
    )
    with recorded.open("a") as out:
        out.write(made(tmp_path / "end", ended(), prompt("y", 4), update("bye"), ended(4)).read_text())
    played = made(
        tmp_path / "b.ndjson", *hello, update("one text"), session_update(other), ended(3, "refusal")
    )
    with played.open("a") as out:
        out.write(made(tmp_path / "end", prompt("y", 4), update("bye"), update("bye"), ended(4)).read_text())

    done = against(recorded, *replay(played))

    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "= 1. initialize",
        "= 2. session/new",
        '≠ 3. session/prompt "x"',
        '    ~ tool_call status: "pending" → "completed"',
        '    - plan {"entries":[]}',
        '    ~ result stopReason: "end_turn" → "refusal"',
        '≠ 4. session/prompt "y"',
        '    ~ agent_message_chunk content.text: "bye" → "byebye"',
        "the agent differs from the recording",
    ]


def test_where_and_how_often_a_sessions_state_is_told_is_no_difference(tmp_path: Path) -> None:
    def commands(*names: str) -> tuple[str, dict[str, Any]]:
        offered = [{"name": name, "description": name} for name in names]
        body = {"sessionUpdate": "available_commands_update", "availableCommands": offered}
        return "agent", {"method": "session/update", "params": {"sessionId": "s1", "update": body}}

    begun = (*HELLO, *opening(), commands("plan"), prompt("x"))
    once = made(tmp_path / "a.ndjson", *begun, update("a"), ended())
    twice = made(tmp_path / "b.ndjson", *begun, commands("plan"), update("a"), ended())
    others = made(tmp_path / "c.ndjson", *begun, commands("plan", "run"), update("a"), ended())

    assert against(once, *replay(twice)).returncode == 0
    assert against(once, *replay(others)).returncode == 1


def test_a_turn_that_was_cancelled_is_cancelled_again(tmp_path: Path, project: Path) -> None:
    async def talk(client: ScriptedClient, session: str) -> Any:
        id = client.ask_prompt(session, "slow")
        await client.update(session, "agent_message_chunk")
        client.notify("session/cancel", {"sessionId": session})
        return (await client.end_of_turn(session, id)).stop_reason

    file = tmp_path / "t.ndjson"
    assert hold(tap(file, *REFERENCE), project, talk) == "cancelled"

    done = against(file, *REFERENCE)

    # It may have said more or less until then, but it ended in the same way.
    assert "3. session/prompt" in done.stdout
    assert "stopReason" not in done.stdout, done.stdout
    assert "answered" not in done.stdout


def test_an_agent_that_dies_or_is_silent_is_told(tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO)
    dead = against(file, sys.executable, "-c", "import sys; sys.exit('no model')")
    silent = against(file, sys.executable, "-c", "import sys; sys.stdin.read()", options=("--timeout", "0.5"))
    assert (dead.returncode, silent.returncode) == (1, 1)
    assert "≠ the agent ended before initialize was answered\n    no model" in dead.stdout
    assert "≠ 0.5 s passed before initialize was answered" in silent.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--client", "TRACE"], "give the agent's command"),
        (["TRACE", "--", "agent"], "a command is only for --client"),
        (["--client", "--timing", "real", "TRACE", "--", "agent"], "--timing is for the agent's side"),
        (["--timeout", "3", "TRACE"], "--timeout is for --client"),
        (["--timing", "slowly", "TRACE"], "'slowly' is neither real, none nor a factor such as 0.5"),
        (["missing.ndjson"], "missing.ndjson cannot be read: No such file or directory"),
        (["--client", "TRACE", "--", "no-such-agent-4711"], "'no-such-agent-4711' was not found"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    file = made(tmp_path / "t.ndjson", *HELLO)
    words = [str(file) if word == "TRACE" else word for word in arguments]
    done = forked.run(
        [*COUPLER, "replay", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
