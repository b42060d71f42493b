"""The six native agents in steps: stub programs play recorded streams, and each gives its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coupler.events import ToolCall, ToolUpdate
from coupler.workflow.journal.run_events import StepFinished
from providers.model_server import ModelServer, Prepared, recording, text
from providers.stub import Stub, path_with, recorded
from workflow.agent_stage import AgentStage, Talking

MakeStub = Callable[[str], Stub]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeStub:
    """Make a program of this name, which is found before any other."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", path_with(directory))
    for name in (
        "CLAUDECODE",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "OPENCODE_CONFIG_CONTENT",
    ):
        monkeypatch.delenv(name, raising=False)
    return lambda name: Stub(directory, name)


@pytest.mark.parametrize(
    ("stream", "answer", "tokens", "cost", "calls"),
    [
        ("claude-current", "I look at it.\n\nFixed.", 36687, 0.0421, 5),
        ("claude-old", "Hello.\n\nThere is one file.", 15, 0.001, 1),
        ("codex-current", "Two files.", 1090, None, 7),
        ("codex-old", "Done.", 15, None, 2),
        ("gemini-current", "I will look.\n\nTwo files.", 1300, None, 2),
        ("gemini-old", "I look.\n\nOne file.", 15, None, 1),
        ("copilot-current", "I look around.\n\nTwo files.", 2238, None, 4),
        ("copilot-old", "One file.", 15, None, 1),
        ("opencode-current", "One file.", 2210, 0.03, 2),
        ("opencode-old", "Written.", 15, 0.003, 1),
    ],
)
def test_a_recorded_stream_gives_the_documented_result_and_is_told_once(
    stub: MakeStub, tmp_path: Path, stream: str, answer: str, tokens: int, cost: float | None, calls: int
) -> None:
    name = stream.partition("-")[0]
    program = stub(name).streams(stream)
    work = tmp_path / "work"
    work.mkdir()
    stage = AgentStage(
        tmp_path,
        f"""
        steps:
          - {{id: x, agent: "{name}:native", prompt: "Fix {{{{ 6 * 7 }}}}", cwd: work, env: {{MINE: here}}}}
        """,
    )

    finished = stage.run()

    assert finished.status == "success", finished.message
    result = stage.result("x")
    assert (result.text, stage.said) == (answer, answer)
    assert result.usage is not None
    assert (result.usage.total, result.usage.cost) == (tokens, cost)
    assert not result.usage.is_estimated
    started = [each.id for each in stage.told(ToolCall)]
    assert len(started) == len(set(started)) == calls
    ended = [each.id for each in stage.told(ToolUpdate) if each.status in ("completed", "failed")]
    assert sorted(ended) == sorted(started)
    (ran,) = program.runs
    assert (ran["cwd"], ran["env"]["MINE"]) == (str(work), "here")
    assert "Fix 42" in ran["stdin"] + " ".join(ran["argv"])


@pytest.mark.parametrize(
    ("stream", "session"),
    [
        ("claude-current", "5b1c-claude"),
        ("codex-current", "0199-codex"),
        ("gemini-current", "9e1f-gemini"),
        ("copilot-current", "aa77-copilot"),
        ("opencode-current", "ses_opencode"),
    ],
)
@pytest.mark.parametrize("is_resumed", [False, True], ids=["live", "resumed"])
def test_a_program_goes_on_with_its_own_session(
    stub: MakeStub, tmp_path: Path, stream: str, session: str, is_resumed: bool
) -> None:
    name = stream.partition("-")[0]
    program = stub(name).streams(stream)
    stage = AgentStage(
        tmp_path,
        f"""
        steps:
          - {{id: first, agent: "{name}:native", prompt: One, system: Be brief.}}
          - {{id: wait, ask: Go on?}}
          - {{id: second, agent: "{name}:native", prompt: Two, continue: first}}
        """,
    )
    if is_resumed:
        assert stage.run().status == "parked"
    first = stage.memory.all
    stage.front = Talking(wait="yes")

    finished = stage.resume() if is_resumed else stage.run()

    assert finished.status == "success", finished.message
    one, two = (" ".join(ran["argv"]) for ran in program.runs)
    assert session not in one
    assert session in two
    assert bool(first) == is_resumed
    ends = [
        each.result for each in stage.memory.all if isinstance(each, StepFinished) and each.kind == "agent"
    ]
    costs = [each.usage.cost for each in ends if each.usage is not None]
    assert costs[0] == pytest.approx(costs[1])  # the same stream, and each turn is paid for once
    assert not [note for note in stage.notes if "cannot go on" in note]
    if name == "claude":
        assert "Be brief." in one
        assert "Be brief." in two  # it is told at each start of the program


def test_a_model_server_answers_and_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    with ModelServer(recording("openai-whole"), text("It was ", "tea.")) as server:
        stage = AgentStage(
            tmp_path,
            f"""
            defaults: {{env: {{OPENAI_BASE_URL: "{server.url}", OPENAI_API_KEY: k}}}}
            steps:
              - id: first
                agent: openai
                model: small
                system: Be brief.
                prompt: One
                options: {{temperature: 0.5}}
              - {{id: wait, ask: Go on?}}
              - {{id: second, agent: openai, prompt: Two, continue: first}}
            """,
        )
        assert stage.run().status == "parked"
        first = stage.result("first").text
        stage.front = Talking(wait="yes")

        finished = stage.resume()

    assert finished.status == "success", finished.message
    assert stage.result("second").text == stage.said == "It was tea."
    one, two = server.requests
    assert (one["model"], one["temperature"]) == ("small", 0.5)
    assert [message["content"] for message in one["messages"]] == ["Be brief.", "One"]
    assert [message["content"] for message in two["messages"]] == ["Be brief.", "One", first, "Two"]
    assert two["model"] == "small"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([*recorded("codex-failed"), {"exit": 1}], "rate_limit"),
        ([{"stderr": "no such model\n", "exit": 3}], "provider"),
    ],
)
def test_a_program_that_fails_fails_its_step(
    stub: MakeStub, tmp_path: Path, script: list[dict[str, object]], kind: str
) -> None:
    stub("codex").says(script)
    stage = AgentStage(tmp_path, 'steps: [{id: x, agent: "codex:native", prompt: go}]')

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == kind


def test_a_program_that_is_not_there_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    stage = AgentStage(tmp_path, 'steps: [{id: x, agent: "gemini:native", prompt: go}]')

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "not_found"
    assert "npm install -g @google/gemini-cli" in finished.error.message


def test_rules_that_a_program_would_not_ask_about_are_refused(stub: MakeStub, tmp_path: Path) -> None:
    program = stub("claude").streams("claude-old")
    stage = AgentStage(
        tmp_path, 'steps: [{id: x, agent: "claude:native", prompt: go, tools: {deny: ["execute(*)"]}}]'
    )

    finished = stage.run()

    assert finished.error is not None
    assert "claude:acp" in finished.error.message
    assert not program.runs


def test_an_unknown_option_of_a_program_is_an_error_with_those_it_has(stub: MakeStub, tmp_path: Path) -> None:
    stub("claude").streams("claude-old")
    stage = AgentStage(
        tmp_path, 'steps: [{id: x, agent: "claude:native", prompt: go, options: {efort: high}}]'
    )

    finished = stage.run()

    assert finished.error is not None
    assert "did you mean 'effort'" in finished.error.message


def test_a_model_server_that_has_had_too_much_says_when_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Prepared([{"error": {"message": "slow down"}}], 429, {"Retry-After": "45"}, streamed=False)
    with ModelServer(busy) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        stage = AgentStage(tmp_path, "steps: [{id: x, agent: openai, model: small, prompt: go}]")

        finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "rate_limit"
    assert "It wants to be asked again in 45 s." in finished.error.message
