"""What the agent of a step may do: by rules of the step, the user and the project, whichever way it takes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from coupler.workflow.journal.run_events import ApprovalAsked, ApprovalGiven
from providers.model_server import ModelServer, calls
from providers.model_server import text as said
from providers.stub import Stub, path_with
from workflow.agent_stage import AgentStage, Script, Talking, stage_of

TOUCHING = """
for prompt in prompts():
    here = os.getcwd()
    send(request(1, "fs/read_text_file", sessionId="s1", path=os.path.join(here, "private.txt")))
    read_it = "result" in answer_to(1)
    send(request(2, "fs/write_text_file", sessionId="s1", path=os.path.join(here, "made.txt"), content="x"))
    send(say(f"{read_it} {'result' in answer_to(2)}"), end(prompt))
"""


@pytest.mark.parametrize(
    ("keys", "answer", "done"),
    [
        ("", None, "True True"),
        ('tools: {deny: ["read(private.txt)"]}', None, "False True"),
        ('tools: {deny: ["edit(**)"]}', None, "True False"),
        ('approve: {tools: ["edit(**)"]}', None, "True False"),
        ('approve: {tools: ["edit(**)"]}', True, "True True"),
    ],
)
def test_rules_hold_for_files_that_an_agent_touches_through_us(
    script: Script, tmp_path: Path, keys: str, answer: bool | None, done: str
) -> None:
    (tmp_path / "private.txt").write_text("hush")
    stage = stage_of(
        script(TOUCHING), tmp_path, f"steps: [{{id: x, agent: AGENT, prompt: go, files: write, {keys}}}]"
    )
    stage.front = Talking() if answer is None else Talking(x=answer)

    assert stage.run().status == "success"

    assert stage.result("x").text == done
    assert (tmp_path / "made.txt").exists() is done.endswith("True")
    assert len([note for note in stage.notes if note.startswith("denied: ")]) == done.count("False")


ANSWERING = """
from mcp_client import opened, turns
for number, (prompt, entries) in enumerate(turns(http=True)):
    send(permission(number, title=entries[0]["name"] + "/structured_output", kind="other", rawInput={"n": 4}))
    if answer_to(number)["result"]["outcome"].get("optionId") == "yes":
        opened(entries[0]).call("structured_output", {"n": 4})
    send(say("I cannot."), end(prompt))
"""


@pytest.mark.parametrize(
    ("keys", "status"),
    [
        ("", "success"),
        ('tools: {deny: ["edit", "execute"]}', "success"),
        ('tools: {deny: ["mcp:coupler"]}', "failed"),
    ],
)
def test_the_tool_for_the_answer_of_a_step_needs_no_permission(
    script: Script, tmp_path: Path, keys: str, status: str
) -> None:
    form = "{type: object, properties: {n: {type: integer}}, required: [n]}"
    stage = stage_of(
        script(ANSWERING), tmp_path, f"steps: [{{id: x, agent: AGENT, prompt: go, output: {form}, {keys}}}]"
    )

    finished = stage.run()

    assert finished.status == status, finished.message
    if status == "success":
        assert stage.result("x").output == {"n": 4}


PLAIN = Path(__file__).parents[2] / "agent" / "servers" / "plain.py"


@pytest.mark.parametrize("intercept", ["true", "false"])
@pytest.mark.parametrize(
    ("keys", "answer", "is_used"),
    [
        ("", None, False),
        ('tools: {allow: ["mcp:tickets"]}', None, True),
        ('tools: {allow: ["mcp:tickets(echo)"]}', None, True),
        ('tools: {allow: ["mcp:tickets(look)"]}', None, False),
        ('tools: {allow: ["tool:echo", "other"]}', None, False),
        ('tools: {allow: ["*"], deny: ["mcp:tickets"]}', None, False),
        ('tools: {allow: ["*"], deny: ["mcp:tickets(echo)"]}', None, False),
        ('tools: {allow: ["*"], deny: ["mcp:tickets(look)"]}', None, True),
        ('tools: {deny: ["mcp:tickets"]}', True, False),
        ('approve: {tools: ["mcp:tickets"]}', True, True),
        ('approve: {tools: ["mcp:tickets"]}', False, False),
    ],
)
def test_rules_about_mcp_servers_hold_for_models_behind_a_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: str,
    answer: bool | None,
    is_used: bool,
    intercept: str,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    server = json.dumps({"command": sys.executable, "args": [str(PLAIN), "fine"]})
    with ModelServer(calls(("c1", "tickets__echo", '{"text": "hi"}')), said("Done.")) as model:
        stage = AgentStage(
            tmp_path,
            f"""
            defaults: {{env: {{OPENAI_BASE_URL: "{model.url}", OPENAI_API_KEY: k}}}}
            mcp_servers: {{tickets: {server}}}
            steps: [{{id: x, agent: openai, model: small, prompt: go, intercept: {intercept}, {keys}}}]
            """,
        )
        stage.front = Talking() if answer is None else Talking(x=answer)
        finished = stage.run()

    assert finished.status == "success", finished.message
    told = model.requests[1]["messages"][-1]["content"]
    assert (told == '{"text": "hi"}') is is_used, told
    is_asked = answer is not None and not keys.startswith("tools")
    assert len(stage.all(ApprovalAsked)) == is_asked  # once, also where both the agent and the bridge ask


def test_what_was_allowed_in_a_turn_is_not_asked_again_when_it_is_done(
    script: Script, tmp_path: Path
) -> None:
    agent = script(
        """
        for prompt in prompts():
            path = os.path.join(os.getcwd(), "made.txt")
            send(permission(1, None, title="Write", kind="edit", locations=[{"path": path}]))
            answer_to(1)
            send(request(2, "fs/write_text_file", sessionId="s1", path=path, content="x"))
            answer_to(2)
            send(say("done"), end(prompt))
        """
    )
    stage = stage_of(
        agent,
        tmp_path,
        'steps: [{id: x, agent: AGENT, prompt: go, files: write, approve: {tools: ["edit(**)"]}}]',
    )
    stage.front = Talking(x=True)

    stage.run()

    assert len(stage.front.asked) == 1
    assert (tmp_path / "made.txt").read_text() == "x"


LYING = """
for prompt in prompts():
    call = {"title": "List files", "kind": "execute", "rawInput": {"command": "rm -rf build"}}
    send(permission(1, None, **call))
    send(say(answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
"""


def test_a_question_shows_what_the_call_is_about_and_not_only_its_title(
    script: Script, tmp_path: Path
) -> None:
    stage = stage_of(
        script(LYING),
        tmp_path,
        'steps: [{id: x, agent: AGENT, prompt: go, approve: {tools: ["execute(*)"]}}]',
    )

    stage.run()

    assert stage.front.asked == ["May the agent do this? List files\nrm -rf build"]


def test_a_workflow_cannot_answer_what_the_user_wants_to_be_asked(
    script: Script, tmp_path: Path, coupler_home: Path
) -> None:
    coupler_home.mkdir(parents=True)
    (coupler_home / "coupler.toml").write_text('[permissions]\nask = ["execute(rm *)"]\n')
    stage = stage_of(
        script(LYING),
        tmp_path,
        'steps: [{id: x, agent: AGENT, prompt: go, approve: {tools: ["execute(*)"], default: allow}}]',
    )

    stage.run()

    assert stage.result("x").text == "no"
    assert [(each.approved, each.by) for each in stage.all(ApprovalGiven)] == [(False, "nobody")]


def test_a_projects_rules_mean_its_own_directories_wherever_a_step_works(
    script: Script, tmp_path: Path
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["edit(packages/locked/**)"]\n')
    agent = script(
        """
        for prompt in prompts():
            path = os.path.join(prompt_cwd, "locked", "x.txt") if (prompt_cwd := os.getcwd()) else ""
            send(permission(1, None, title="Edit", kind="edit", locations=[{"path": path}]))
            send(say(answer_to(1)["result"]["outcome"]["optionId"]), end(prompt))
        """
    )
    stage = stage_of(
        agent,
        tmp_path,
        'steps: [{id: x, agent: AGENT, prompt: go, cwd: packages, tools: {allow: ["edit(**)"]}}]',
    )

    stage.run()

    assert stage.result("x").text == "no"


@pytest.mark.parametrize(
    ("denied", "keys", "refusal"),
    [
        ("execute(git push *)", "", "coupler.toml"),
        ("execute(git push *)", "mode: allow_edits", "coupler.toml"),
        ("execute(git push *)", "mode: read_only", None),
        ("read(private/**)", "mode: read_only", "coupler.toml"),
        (None, "files: read", "`files`"),
        (None, "", None),
    ],
)
def test_a_program_that_asks_nobody_is_not_run_where_rules_could_not_hold(
    tmp_path: Path,
    coupler_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    denied: str | None,
    keys: str,
    refusal: str | None,
) -> None:
    monkeypatch.setenv("PATH", path_with(tmp_path))
    program = Stub(tmp_path, "claude").streams("claude-old")
    if denied is not None:
        coupler_home.mkdir(parents=True)
        (coupler_home / "coupler.toml").write_text(f'[permissions]\ndeny = ["{denied}"]\n')
    stage = AgentStage(tmp_path, f'steps: [{{id: x, agent: "claude:native", prompt: go, {keys}}}]')

    finished = stage.run()

    assert len(program.runs) == (refusal is None)
    if refusal is None:
        assert finished.status == "success", finished.message
    else:
        assert finished.error is not None
        assert refusal in finished.error.message
        assert "claude:acp" in finished.error.message


def test_what_an_agent_asks_between_steps_is_denied(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for number, prompt in enumerate(prompts()):
            send(say("ok"), end(prompt))
            if number == 0:
                send(permission(1, None, title="Push", kind="execute", rawInput={"command": "git push"}))
                note("outcome", answer_to(1)["result"]["outcome"]["optionId"])
        """
    )
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: one, agent: AGENT, prompt: One, tools: {allow: ["*"]}}
          - {id: gap, run: "until grep -q outcome agent1.log; do sleep 0.01; done", timeout: 20s}
          - {id: two, agent: AGENT, prompt: Two, continue: one}
        """,
    )

    assert stage.run().status == "success"

    assert agent.noted("outcome") == ["no"]
