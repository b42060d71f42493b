"""Turns of programs that fail, hang, babble or are cancelled: the session survives all of it."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.stage import gone_within, run, until
from coupler import AgentError, connect
from coupler.agent.agent import Agent
from coupler.events import ToolCall
from coupler.providers import ENTRIES, Claude, Codex, Gemini, OpenCode, command_line, provider
from providers.stub import Stub, recorded
from raw_client import serve

MakeStub = Callable[[str], Stub]
Step = dict[str, Any]

CALL: Step = {
    "line": {
        "type": "assistant",
        "message": {
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "x"}}]
        },
        "session_id": "s-1",
    }
}
RESULT: Step = {
    "line": {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "Done.",
        "session_id": "s-1",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
}


def failure(agent: Agent | type[Agent], cwd: Path, prompt: str = "hello") -> AgentError:
    """The error of a turn."""

    async def story() -> AgentError:
        async with connect(agent, cwd=cwd) as remote:
            session = await remote.new()
            with pytest.raises(AgentError) as caught:
                await session.prompt(prompt)
            return caught.value

    return run(story())


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "copilot", "opencode"])
def test_a_missing_program_says_what_to_install(
    name: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    error = failure(provider(name), project)

    assert f"The program {name!r} was not found. {ENTRIES[name].install}" in str(error)


def test_a_program_that_fails_is_quoted_with_its_exit_code(stub: MakeStub, project: Path) -> None:
    stub("codex").says([{"stderr": "no such model\n", "exit": 3}])

    error = failure(Codex(model="gpt-0"), project)

    assert "Codex ended with exit code 3." in error.message
    assert "stderr: no such model" in error.message
    assert error.data == {"reason": "agent_failed", "exitCode": 3}


def test_an_empty_answer_is_an_error_with_stderr(stub: MakeStub, project: Path) -> None:
    stub("gemini").says([{"stderr": "please log in\n", "exit": 0}])

    error = failure(Gemini, project)

    assert "Gemini CLI answered nothing." in error.message
    assert "please log in" in error.message


def test_an_error_in_the_stream_is_the_turns_error(stub: MakeStub, project: Path) -> None:
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": True,
        "result": "Invalid API key",
        "session_id": "s",
    }
    stub("claude").says([{"line": result, "exit": 1}])
    stub("codex").says([*recorded("codex-failed"), {"exit": 1}])
    stub("opencode").says([*recorded("opencode-failed"), {"exit": 1}])

    assert "Claude Code failed: Invalid API key" in failure(Claude, project).message
    assert "Codex failed: You have hit your usage limit" in failure(Codex, project).message
    assert "OpenCode failed: The key is not valid" in failure(OpenCode, project).message


def test_limits_and_refusals_are_stop_reasons_and_no_errors(stub: MakeStub, project: Path) -> None:
    base = {"type": "result", "is_error": False, "session_id": "s", "result": ""}
    text = {"type": "assistant", "message": {"content": [{"type": "text", "text": "Half"}]}}
    stub("claude").says(
        [{"line": text}, {"line": {**base, "subtype": "error_max_turns", "is_error": True}, "exit": 1}],
        [{"line": text}, {"line": {**base, "subtype": "success", "stop_reason": "max_tokens"}}],
        [{"line": text}, {"line": {**base, "subtype": "success", "stop_reason": "refusal"}}],
    )
    stub("gemini").says([*recorded("gemini-old")[:-1], {"exit": 53}])

    async def reasons(agent: type[Agent], count: int) -> list[str]:
        async with connect(agent, cwd=project) as remote:
            session = await remote.new()
            return [(await session.prompt("hello")).stop_reason for _ in range(count)]

    assert run(reasons(Claude, 3)) == ["max_turn_requests", "max_tokens", "refusal"]
    assert run(reasons(Gemini, 1)) == ["max_turn_requests"]


def test_a_cancel_ends_the_program_and_settles_its_calls(stub: MakeStub, project: Path) -> None:
    program = stub("claude").says([CALL, {"leave": "group", "hang": True}], [RESULT])

    async def story() -> None:
        async with connect(Claude, cwd=project) as remote:
            session = await remote.new()
            prompt = session.prompt("hello")
            async for event in prompt:
                if isinstance(event, ToolCall):
                    await until(lambda: (project.parent / "bin" / "left").exists())
                    break
            await session.cancel()
            assert session.tool_calls["toolu_1"].status == "failed"
            for pid in (program.runs[0]["pid"], program.left):
                assert gone_within(5, pid)
            assert (await session.prompt("again")).text == "Done."

    run(story())
    assert "--resume=s-1" in program.argv


def test_garbage_among_the_lines_costs_nothing(stub: MakeStub, project: Path) -> None:
    stub("claude").says(
        [
            {"raw": base64.b64encode(b'warning: \xff\xfe\x00 odd\n\n[]\n{"type":\n').decode()},
            {"repeat": "x" * 1024 * 1024, "times": 11},
            {"raw": base64.b64encode(b"\n").decode()},
            RESULT,
            {"raw": base64.b64encode(b'{"type":"assistant","mess').decode()},
        ]
    )

    async def story() -> str:
        async with connect(Claude, cwd=project) as remote:
            return (await (await remote.new()).prompt("hello")).text

    assert run(story()) == "Done."


@pytest.mark.parametrize("id", ["--dangerously-skip-permissions", "a\0b", "x" * 1000])
def test_a_session_of_its_own_that_is_no_id_is_not_gone_on_with(
    stub: MakeStub, project: Path, id: str
) -> None:
    claude = stub("claude").says([{"line": {**RESULT["line"], "session_id": id}}])

    async def story() -> None:
        async with connect(Claude(), cwd=project) as remote:
            session = await remote.new()
            for _ in range(2):
                assert (await session.prompt("go")).text == "Done."

    run(story())
    assert all(id not in word for ran in claude.runs for word in ran["argv"])


def test_a_program_that_has_said_its_last_word_and_stays_is_ended(
    stub: MakeStub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "EXIT_TIMEOUT", 0.05)
    program = stub("claude").says([RESULT, {"hang": True}])

    async def story() -> str:
        async with connect(Claude, cwd=project) as remote:
            return (await (await remote.new()).prompt("hello")).text

    assert run(story()) == "Done."
    assert gone_within(5, program.runs[0]["pid"])


OPENCODE_ENDS: list[Step] = [
    {"line": {"type": "text", "sessionID": "s-1", "part": {"id": "p", "text": "Done."}}},
    {"line": {"type": "step_finish", "sessionID": "s-1", "part": {"reason": "stop"}}},
]


def test_opencode_that_has_finished_its_last_step_and_stays_is_ended(
    stub: MakeStub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "EXIT_TIMEOUT", 0.05)
    program = stub("opencode").says([*OPENCODE_ENDS, {"hang": True}])

    async def story() -> str:
        async with connect(OpenCode, cwd=project) as remote:
            return (await (await remote.new()).prompt("hello")).text

    assert run(story()) == "Done."
    assert gone_within(5, program.runs[0]["pid"])


def test_a_step_that_starts_after_the_last_one_is_waited_for(
    stub: MakeStub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "EXIT_TIMEOUT", 0.05)
    more = {"line": {"type": "text", "sessionID": "s-1", "part": {"id": "q", "text": "More."}}}
    start = {"line": {"type": "step_start", "sessionID": "s-1", "part": {}}}
    stub("opencode").says([*OPENCODE_ENDS, start, {"pause": 0.2}, more])

    async def story() -> str:
        async with connect(OpenCode, cwd=project) as remote:
            return (await (await remote.new()).prompt("hello")).text

    assert run(story()) == "Done.\n\nMore."


@pytest.mark.parametrize(
    ("agent", "name", "last"),
    [(Claude, "claude", [RESULT]), (OpenCode, "opencode", OPENCODE_ENDS)],
)
def test_an_exit_code_after_the_final_result_is_a_failure(
    agent: type[Agent], name: str, last: list[Step], stub: MakeStub, project: Path
) -> None:
    stub(name).says([*last, {"stderr": "disk full\n", "exit": 7}])

    error = failure(agent, project)

    assert "ended with exit code 7." in error.message and "disk full" in error.message
    assert error.reply is not None and error.reply.text == "Done."


def test_a_process_that_holds_the_pipes_does_not_hold_the_turn(stub: MakeStub, project: Path) -> None:
    program = stub("claude").says([{"leave": "session"}, RESULT])

    async def story() -> str:
        async with connect(Claude, cwd=project) as remote:
            return (await (await remote.new()).prompt("hello")).text

    try:
        assert run(story()) == "Done."
    finally:
        os.kill(program.left, 9)  # it left the group, and so is not ours to end


def test_a_loaded_session_goes_on_after_a_restart(stub: MakeStub, project: Path, tmp_path: Path) -> None:
    program = stub("claude").says([CALL, {"exit": 1}], [RESULT])
    agent = tmp_path / "agent.py"
    agent.write_text("from coupler.providers import Claude\nagent = Claude(mode='read_only')\n")
    with serve(agent) as client:
        client.initialize()
        session = client.new_session(str(project))
        _, answer = client.prompt(session, "one")
        assert "error" in answer  # what failed belongs to the conversation, too

    with serve(agent) as client:
        client.initialize()
        client.call("session/load", {"sessionId": session, "cwd": str(project), "mcpServers": []})
        client.call("session/set_mode", {"sessionId": session, "modeId": "allow_edits"})
        _, answer = client.prompt(session, "two")

    assert answer["result"]["stopReason"] == "end_turn"
    assert "--resume=s-1" not in program.runs[0]["argv"]
    assert "--resume=s-1" in program.argv
    assert program.argv[program.argv.index("--permission-mode") + 1] == "acceptEdits"


def test_the_model_is_an_option_of_the_session(stub: MakeStub, project: Path, tmp_path: Path) -> None:
    program = stub("claude").says([RESULT])
    agent = tmp_path / "agent.py"
    agent.write_text("from coupler.providers import Claude\nagent = Claude(model='claude-x')\n")

    with serve(agent) as client:
        client.initialize()
        opened = client.call("session/new", {"cwd": str(project), "mcpServers": []})["result"]
        (model,) = [option for option in opened["configOptions"] if option["category"] == "model"]
        client.prompt(opened["sessionId"], "one")
        for value in ("haiku", "default"):
            change = {"sessionId": opened["sessionId"], "configId": "model", "value": value}
            client.call("session/set_config_option", change)
            client.prompt(opened["sessionId"], value)

    assert model["currentValue"] == "claude-x"
    offered = [choice["value"] for choice in model["options"]]
    assert offered == ["default", "opus", "sonnet", "haiku", "claude-x"]
    models = [
        argv[argv.index("--model") + 1] if "--model" in argv else None
        for argv in (each["argv"] for each in program.runs)
    ]
    assert models == ["claude-x", "haiku", None]


def test_a_notice_is_a_thought_for_clients_that_show_none(
    stub: MakeStub, project: Path, tmp_path: Path
) -> None:
    stub("gemini").streams("gemini-current")
    agent = tmp_path / "agent.py"
    agent.write_text("from coupler.providers import Gemini\nagent = Gemini\n")

    with serve(agent) as client:
        client.initialize()
        updates, _ = client.prompt(client.new_session(str(project)), "hello")

    kinds = [update["sessionUpdate"] for update in updates]
    assert "notice" not in kinds
    (thought,) = [update for update in updates if update["sessionUpdate"] == "agent_thought_chunk"]
    assert thought["content"]["text"] == "Loop detected, stopping execution"


def test_what_programs_say_is_masked(stub: MakeStub, project: Path) -> None:
    secret = "tok-4f9a8c7be2d1"
    stub("claude").says([{"stderr": f"bad token {secret}\n", "exit": 1}])

    error = failure(Claude(env={"SERVICE_TOKEN": secret}), project)

    assert "bad token" in error.message
    assert secret not in str(error)
