"""The real `coupler run` with stubs of agents: what reaches them, what comes of what they write, and that
nothing of them is left.

Streams are recorded ones. One run has all agents beside each other, since its start is what takes time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from client.stage import gone_within
from providers.model_server import ModelServer, recording, text
from providers.stub import recorded
from workflow.project import Project, Ran

Line = dict[str, Any]

LISTED = {"files": ["app.py"]}
SAID = json.dumps(LISTED)


class Documented(NamedTuple):
    """What an agent is given in a step, and what has to come of its recorded stream."""

    option: str
    word: str
    """On its command line, for the option."""
    resumed: str
    """On its command line when its session goes on."""
    pieces: tuple[str, ...]
    thoughts: tuple[str, ...]
    calls: int
    tokens: int
    cost: float | None
    listing: list[Line]
    """What it says when it is asked for JSON."""


def usage(given: int) -> Line:
    return {"input_tokens": given, "output_tokens": 1}


AGENTS = {
    "claude": Documented(
        "{max_turns: 3}",
        "--max-turns=3",
        "--resume=5b1c-claude",
        ("I look ", "at it.", "\n\nFixed."),
        ("The file ", "comes first."),
        5,
        36687,
        0.0421,
        [
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "result": SAID,
                "session_id": "5b1c-claude",
            }
            | {"usage": usage(9)}
        ],
    ),
    "codex": Documented(
        "{skip_git_repo_check: true}",
        "--skip-git-repo-check",
        "resume 0199-codex",
        ("Two files.",),
        ("**Looking around**",),
        7,
        1090,
        None,
        [
            {"type": "thread.started", "thread_id": "0199-codex"},
            {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": SAID}},
            {"type": "turn.completed", "usage": {"input_tokens": 2000, "output_tokens": 100}},
        ],
    ),
    "gemini": Documented(
        "{skip_trust: true}",
        "--skip-trust",
        "--resume=9e1f-gemini",
        ("I will ", "look.", "\n\nTwo files."),
        (),
        2,
        1300,
        None,
        [
            {"type": "init", "session_id": "9e1f-gemini"},
            {"type": "message", "role": "assistant", "content": SAID},
            {"type": "result", "status": "success", "stats": {**usage(9), "total_tokens": 10}},
        ],
    ),
    "copilot": Documented(
        "{effort: high}",
        "--effort=high",
        "--resume=aa77-copilot",
        ("I look ", "around.", "\n\nTwo files."),
        ("Exploring", "\n\nLook ", "first.", "\n\nAlso from it."),
        4,
        2238,
        None,
        [
            {"type": "assistant.message", "data": {"content": SAID, "messageId": "m9", "outputTokens": 5}},
            {"type": "result", "sessionId": "aa77-copilot", "exitCode": 0},
        ],
    ),
    "opencode": Documented(
        "{variant: high}",
        "--variant=high",
        "--session ses_opencode",
        ("One file.",),
        ("Look first.",),
        2,
        2210,
        0.03,
        [
            {"type": "text", "sessionID": "ses_opencode", "part": {"text": SAID}},
            {
                "type": "step_finish",
                "sessionID": "ses_opencode",
                "part": {"tokens": {"input": 9, "output": 1, "total": 10}, "cost": 0.001},
            },
        ],
    ),
}

BRANCH = """
      - - id: {name}
          agent: "{name}:native"
          prompt: What is here?
          model: big
          system: Be brief.
          options: {option}
          env: {{MINE: "of {name}"}}
        - id: {name}_list
          agent: "{name}:native"
          continue: {name}
          model: big
          prompt: List the files.
          output: {{type: object, required: [files], properties: {{files: {{type: array}}}}}}
"""
WORKFLOW = """
steps:
  - id: all
    cwd: work
    parallel:
      - - {id: plain, agent: claude, prompt: What is here?, system: Be brief.}
        - {id: plain_list, agent: claude, continue: plain, prompt: List the files., output: {type: object}}
      - - id: openai
          agent: openai
          prompt: What is here?
          model: big
          system: Be brief.
          options: {temperature: 0.5}
        - id: openai_list
          agent: openai
          model: big
          continue: openai
          prompt: List the files.
          output: {type: object}
"""


@pytest.fixture
def project(tmp_path: Path, unmeasured: None) -> Project:
    return Project(tmp_path)


class Story(NamedTuple):
    """One run of all agents, and what they have heard."""

    ran: Ran
    project: Project
    requests: list[dict[str, Any]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("programs")
        patch.setenv("COUPLER_HOME", str(directory / "home"))
        for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
            patch.delenv(name, raising=False)
        project = Project(directory)
        (project.directory / "work").mkdir()
        for name, documented in AGENTS.items():
            listing = [{"line": line} for line in documented.listing]
            project.native(name).says(recorded(f"{name}-current"), listing)
        project.agent("claude").answers({"when": "List", "says": LISTED}, {"says": "One file."})
        branches = (BRANCH.format(name=name, option=AGENTS[name].option) for name in AGENTS)
        file = project.write("all.yaml", WORKFLOW + "".join(branches))
        with ModelServer(recording("openai-whole"), text(SAID)) as server:
            project.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k-123456789"}
            ran = project.run(file)
            yield Story(ran, project, server.requests)


@pytest.mark.parametrize("name", AGENTS)
def test_a_native_agent_gives_the_documented_result_and_is_told_once(story: Story, name: str) -> None:
    documented, path = AGENTS[name], f"all.{name}"
    result = story.ran.result(path)

    assert result["status"] == "success", story.ran
    assert told(story.ran, "text", path) == documented.pieces
    assert told(story.ran, "thought", path) == documented.thoughts
    assert result["text"] == "".join(documented.pieces)
    assert result["session_id"]
    assert (result["usage"]["total_tokens"], result["usage"].get("cost")) == (
        documented.tokens,
        documented.cost,
    )
    (turn,) = story.ran.of("turn", path)
    assert (turn["usage"]["total"], turn["usage"]["cost"]) == (documented.tokens, documented.cost)
    started = [call["id"] for call in story.ran.of("tool_call", path)]
    assert len(started) == len({*started}) == documented.calls
    updates = story.ran.of("tool_call_update", path)
    ended = [call["id"] for call in updates if call.get("status") in ("completed", "failed")]
    assert sorted(ended) == sorted(started)


@pytest.mark.parametrize("name", AGENTS)
def test_what_a_step_says_reaches_the_program(story: Story, name: str) -> None:
    first, second = story.project.native(name).runs
    words = " ".join(first["argv"]).replace("=", " ")
    heard = first["stdin"] + words + "".join(file["text"] for file in first["files"].values())

    assert first["cwd"] == second["cwd"] == str(story.project.directory / "work")
    assert first["env"]["MINE"] == f"of {name}"
    assert "--model big" in words
    assert AGENTS[name].word in first["argv"]
    assert "Be brief." in heard
    assert "What is here?" in heard


@pytest.mark.parametrize("name", AGENTS)
def test_a_session_goes_on_by_the_programs_own_means_and_gives_a_typed_answer(
    story: Story, name: str
) -> None:
    first, second = (" ".join(ran["argv"]) for ran in story.project.native(name).runs)
    result = story.ran.result(f"all.{name}_list")

    assert AGENTS[name].resumed not in first
    assert AGENTS[name].resumed in second
    assert result["output"] == LISTED
    assert result["session_id"] == story.ran.result(f"all.{name}")["session_id"]
    assert told(story.ran, "text", f"all.{name}_list") == (SAID,)


def test_a_model_behind_an_address_gives_the_documented_result(story: Story) -> None:
    first, second = story.requests

    assert story.ran.result("all.openai")["text"] == "All at once."
    assert told(story.ran, "text", "all.openai") == ("All at once.",)
    assert story.ran.result("all.openai")["usage"]["total_tokens"] == 13
    assert story.ran.result("all.openai_list")["output"] == LISTED
    assert (first["model"], first["temperature"]) == ("big", 0.5)
    assert [each["content"] for each in first["messages"]] == ["Be brief.", "What is here?"]
    assert [each["content"] for each in second["messages"]][1:3] == ["What is here?", "All at once."]


def test_an_agent_that_speaks_acp_gives_the_documented_result(story: Story) -> None:
    claude, result = story.project.agent("claude"), story.ran.result("all.plain")

    assert (result["text"], told(story.ran, "text", "all.plain")) == ("One file.", ("One ", "file."))
    assert result["usage"]["total_tokens"] == 120
    assert story.ran.result("all.plain_list")["output"] == LISTED
    assert claude.sessions == [result["session_id"]] * 2
    assert "Be brief." in claude.prompts[0]
    assert claude.starts[0]["cwd"] == str(story.project.directory / "work")


def told(ran: Ran, kind: str, path: str) -> tuple[str, ...]:
    return tuple(event["text"] for event in ran.of(kind, path))


WHOLE = {
    "claude": ("Hello.", "\n\nThere is one file."),
    "codex": ("Done.",),
    "gemini": ("I look.", "\n\nOne file."),
    "copilot": ("One file.",),
    "opencode": ("Written.",),
}


def test_messages_without_pieces_are_one_chunk_each(project: Project) -> None:
    for name in WHOLE:
        project.native(name).streams(f"{name}-old")
    branches = [{"id": name, "agent": f"{name}:native", "prompt": "hello"} for name in WHOLE]

    ran = project.run(project.write("old.yaml", json.dumps({"steps": [{"id": "all", "parallel": branches}]})))

    assert ran.exit_code == 0, ran
    assert {name: told(ran, "text", f"all.{name}") for name in WHOLE} == WHOLE
    assert told(ran, "thought", "all.claude") == told(ran, "thought", "all.codex") == ("Hm.",)


RESULT: Line = {"line": AGENTS["claude"].listing[0]}
GARBAGE = base64.b64encode(b'warning: \xff\xfe\x00 odd\n\n[]\n{"type":\n').decode()
LINE_END = base64.b64encode(b"\n").decode()

HOSTILE = """
steps:
  - id: all
    wait: settled
    parallel:
      - {id: babbling, agent: "claude:native", prompt: hello}
      - {id: failing, agent: "codex:native", prompt: hello, retry: {attempts: 2, delay: 10ms}}
      - {id: leaving, agent: "gemini:native", prompt: hello}
      - {id: stuck, agent: "opencode:native", prompt: hello, timeout: 4s}
      - {id: dying, agent: "copilot:native", prompt: hello}
      - id: command
        run: |
          printf 'a\\000b'
          echo noise >&2
          head -c 10485760 /dev/zero | tr '\\0' x
          (trap '' TERM; sleep 60) & echo $! > command.left
          exit 9
        ok_codes: [9]
"""


def test_programs_that_misbehave_harm_nobody_else_and_leave_nothing(project: Project) -> None:
    noise = [{"raw": GARBAGE}, {"repeat": "x" * 1024 * 1024, "times": 11}, {"raw": LINE_END}]
    project.native("claude").says([{"stderr": "noise\n"}, *noise, RESULT])
    listing = [{"line": line} for line in AGENTS["codex"].listing]
    project.native("codex").says([{"stderr": "not now\n", "exit": 3}], listing)
    project.native("gemini").says(
        [{"leave": "group"}, *({"line": each} for each in AGENTS["gemini"].listing)]
    )
    project.native("opencode").says(
        [{"line": AGENTS["opencode"].listing[0]}, {"traps": "bye"}, {"hang": True}]
    )
    project.native("copilot").says([{"stderr": "boom \x1b[31m\n", "exit": 7}])

    ran = project.run(project.write("hostile.yaml", HOSTILE))

    assert ran.exit_code == 0, ran
    assert ran.statuses == {
        "all": "success",
        "all.babbling": "success",
        "all.failing": "success",
        "all.leaving": "success",
        "all.stuck": "failed",
        "all.dying": "failed",
        "all.command": "success",
    }
    assert ran.result("all.babbling")["text"] == SAID
    assert (ran.result("all.failing")["attempts"], ran.result("all.failing")["text"]) == (2, SAID)
    assert ran.result("all.stuck")["error"]["kind"] == "timeout"
    assert ran.result("all.stuck")["text"] == SAID
    assert "exit code 7" in ran.result("all.dying")["error"]["message"]
    command = ran.result("all.command")
    assert command["stdout"].startswith("a\0bxxx")
    assert (len(command["stderr"]), command["exit_code"]) == (6, 9)
    assert project.read("trapped") == "bye"
    left = [project.native("gemini").left, int(project.read("command.left"))]
    for pid in (*left, project.native("opencode").runs[0]["pid"]):
        assert gone_within(5, pid)
