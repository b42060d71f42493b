"""`agent` steps: any agent, asked once, with all that it says and does told once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from client.stage import is_running
from coupler.client.limits import Limits
from coupler.events import Plan, ToolCall, ToolOutput, ToolUpdate
from coupler.events.events import TurnEnded, plain_text_of
from coupler.schema.v1 import ToolCallLocation
from coupler.workflow.engine.front import Approval, PermissionQuestion, QuestionAnswer
from coupler.workflow.engine.run import Engine
from coupler.workflow.errors import Parked
from coupler.workflow.journal.run_events import (
    AgentEvent,
    ApprovalAsked,
    ApprovalGiven,
    Place,
    RetryPlanned,
)
from coupler.workflow.language.model import Input
from workflow.agent_stage import ECHO, FORGETFUL, LOADING, AgentStage, Script, Talking, stage_of


def test_an_agent_answers_and_its_answer_is_the_steps_text(script: Script, tmp_path: Path) -> None:
    agent = script(ECHO)
    stage = stage_of(
        agent,
        tmp_path,
        """
        inputs: {name: {default: Ann}}
        steps:
          - {id: hello, agent: AGENT, prompt: "I am {{ inputs.name }}; $(rm -rf .) `x`"}
        outputs: {text: "{{ steps.hello.text }}"}
        """,
    )

    finished = stage.run()

    assert finished.outputs == {"text": "I heard: I am Ann; $(rm -rf .) `x`"}
    result = stage.result("hello")
    assert result.session_id == "s1"
    assert result.usage is not None
    assert result.usage.is_estimated
    assert finished.usage == result.usage
    assert stage.said == result.text


def test_all_that_an_agent_does_is_told_once_and_in_order(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            send(
                update("agent_thought_chunk", content={"type": "text", "text": "Hm."}),
                say("First."),
                update("tool_call", toolCallId="c1", title="Look", kind="read", status="pending",
                       rawInput={"path": "a.txt"}, locations=[{"path": "/a.txt"}]),
                update("tool_call_update", toolCallId="c1", status="in_progress",
                       content=[{"type": "content", "content": {"type": "text", "text": "one"}}]),
                update("tool_call_update", toolCallId="c1",
                       content=[{"type": "content", "content": {"type": "text", "text": "one two"}}]),
                update("tool_call_update", toolCallId="c1", status="completed", rawOutput={"lines": 2}),
                update("tool_call_update", toolCallId="c1", status="completed"),
                update("tool_call", toolCallId="c2", title="Forget", status="in_progress"),
                update("plan", entries=[{"content": "Do", "priority": "high", "status": "pending"}]),
                say("Second."),
                end(prompt, usage={"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}),
            )
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: work, agent: AGENT, prompt: go}]")

    stage.run()

    told = [each for each in stage.memory.noted if isinstance(each, AgentEvent)]
    assert [type(each.event).__name__ for each in told] == [
        *("Thought", "Text", "ToolCall", "ToolOutput", "ToolUpdate", "ToolOutput", "ToolUpdate"),
        *("ToolCall", "Plan", "Text", "TurnEnded", "ToolUpdate"),
    ]
    assert {str(each.place) for each in told} == {"work"}
    started, forgotten = stage.told(ToolCall)
    assert (started.id, started.kind, started.locations) == ("c1", "read", (ToolCallLocation("/a.txt"),))
    assert started.raw_input == {"path": "a.txt"}
    assert [plain_text_of(each.item) for each in stage.told(ToolOutput) if each.id == "c1"] == ["one", " two"]
    runs, ended, left = stage.told(ToolUpdate)
    assert (runs.id, runs.status) == ("c1", "in_progress")
    assert (ended.id, ended.status, ended.raw_output) == ("c1", "completed", {"lines": 2})
    assert (left.id, left.status) == (forgotten.id, "failed")
    assert stage.said == stage.result("work").text == "First.\n\nSecond."
    (turn,) = stage.told(TurnEnded)
    assert (turn.stop_reason, turn.usage.input, turn.usage.output, turn.usage.total) == ("end_turn", 3, 4, 7)


def test_two_agents_with_the_same_ids_of_calls_are_told_apart(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            session = prompt["params"]["sessionId"]
            call = {"toolCallId": "1", "title": "Do", "status": "completed"}
            send(update("tool_call", session, **call), say("x", session), end(prompt))
        """
    )
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - parallel:
              - {id: one, agent: AGENT, prompt: go}
              - {id: two, agent: AGENT, prompt: go}
        """,
    )

    stage.run()

    names = [each.id for each in stage.told(ToolCall)]
    assert len(set(names)) == 2
    assert "1" in names
    assert sorted(names) == sorted(each.id for each in stage.told(ToolUpdate) if each.status == "completed")
    assert len(agent.noted("pid")) == 1  # one process for both


def test_instructions_skills_and_context_go_before_the_prompt(script: Script, tmp_path: Path) -> None:
    agent = script(ECHO)
    for name, text in {
        "skill.md": "Be kind.",
        "style.md": "Use {{ no }} tabs.",
        "ask.md": "Fix {{ inputs.it }}",
        "base.md": "Base.",
    }.items():
        (tmp_path / name).write_text(text)
    stage = stage_of(
        agent,
        tmp_path,
        """
        inputs: {it: {default: that}}
        agents:
          base: {agent: AGENT, system: You are base., skills: [base.md], context: [style.md]}
          reviewer: {agent: base, system: You are strict.}
        steps:
          - {id: review, agent: reviewer, prompt_file: ask.md, skills: [skill.md]}
          - {id: again, agent: reviewer, prompt: And now?, continue: review}
        """,
    )

    finished = stage.run()

    assert finished.status == "success", finished.message
    first, second = (each["params"]["prompt"][0]["text"] for each in agent.received_of("session/prompt"))
    assert "You are strict.\n\nBase.\n\nBe kind." in first
    assert "You are base" not in first
    assert first.index("Be kind.") < first.index("Use {{ no }} tabs.") < first.index("Fix that")
    assert "You are strict" not in second  # it has heard that
    assert second.endswith("And now?")


def test_a_profile_that_stands_on_itself_is_an_error_with_the_chain(tmp_path: Path) -> None:
    stage = AgentStage(
        tmp_path,
        """
        agents: {a: {agent: b}, b: {agent: a}}
        steps: [{id: x, agent: a, prompt: hi}]
        """,
    )

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "not_found"
    assert "a → b → a" in finished.error.message


def test_profiles_of_coupler_toml_set_agents_up(script: Script, tmp_path: Path, coupler_home: Path) -> None:
    agent = script(ECHO)
    coupler_home.mkdir(parents=True)
    (coupler_home / "notes.md").write_text("A note.")
    (coupler_home / "coupler.toml").write_text(
        f"""
        [agents.mine]
        command = {json.dumps(agent.command)}
        [agents.strict]
        agent = "mine"
        system = "You are strict."
        context = ["notes.md"]
        """
    )
    stage = AgentStage(tmp_path, "steps: [{id: x, agent: strict, prompt: hi}]")

    finished = stage.run()

    assert finished.status == "success", finished.message
    assert stage.result("x").agent == "strict:acp"
    text = stage.result("x").text or ""
    assert text.index("You are strict.") < text.index("A note.") < text.rindex("hi")


SETTABLE = """
while True:
    frame = read()
    match frame["method"]:
        case "initialize":
            send(result(frame, HELLO))
        case "session/new":
            choices = [{"value": "small", "name": "S"}, {"value": "large", "name": "L"}]
            model = {"id": "model", "name": "Model", "type": "select", "category": "model",
                     "currentValue": "small", "options": choices}
            offered = [{"id": "ask", "name": "A"}, {"id": "auto", "name": "B"}]
            modes = {"currentModeId": "ask", "availableModes": offered}
            send(result(frame, {"sessionId": "s1", "configOptions": [model], "modes": modes}))
        case "session/set_config_option":
            send(result(frame, {"configOptions": []}))
        case "session/set_mode":
            send(result(frame, {}))
        case "session/prompt":
            send(say("ok"), end(frame))
"""


def test_model_mode_servers_and_directory_are_those_of_the_session(script: Script, tmp_path: Path) -> None:
    agent = script(SETTABLE)
    (tmp_path / "work").mkdir()
    stage = stage_of(
        agent,
        tmp_path,
        """
        mcp_servers:
          tickets: {command: workflows-own}
          other: {command: ./bin/other, args: ["{{ 1 + 1 }}"], env: {A: b}}
        agents: {big: {agent: AGENT, model: large, mcp_servers: {tickets: {url: "https://profile.example/mcp"}}}}
        steps:
          - {id: x, agent: big, mode: auto, cwd: work, prompt: hi, mcp_servers: {own: {command: own}}}
        """,
    )
    (tmp_path / "coupler.toml").write_text("")

    finished = stage.run()

    assert finished.status == "success", finished.message
    opened = agent.received_of("session/new")[0]["params"]
    assert opened["cwd"] == str(tmp_path / "work")
    servers = {each["name"]: each for each in opened["mcpServers"]}
    assert servers["other"]["command"] == str(tmp_path / "bin" / "other")
    assert servers["other"]["args"] == ["2"]
    assert set(servers) == {"own", "tickets", "other"}
    assert agent.received_of("session/set_config_option")[0]["params"]["value"] == "large"
    assert agent.received_of("session/set_mode")[0]["params"]["modeId"] == "auto"


ASKING = """
for prompt in prompts():
    call = {"title": "git push", "kind": "execute", "rawInput": {"command": "git push"}}
    send(update("tool_call", toolCallId="c1", **call), permission(os.getpid(), None, **call))
    outcome = answer_to(os.getpid())["result"]["outcome"]
    send(say(outcome.get("optionId", "cancelled")), end(prompt))
"""


@pytest.mark.parametrize(
    ("keys", "answer", "expected"),
    [
        ("", None, "no"),
        ('tools: {allow: ["execute(git *)"]}', None, "yes"),
        ('tools: {allow: ["*"], deny: ["execute(git push*)"]}', None, "no"),
        ('approve: {tools: ["execute(git *)"]}', True, "yes"),
        ('approve: {tools: ["execute(git *)"]}', False, "no"),
        ('approve: {tools: ["execute(git *)"]}', None, "no"),
    ],
)
def test_rules_decide_about_tools_and_the_user_about_the_rest(
    script: Script, tmp_path: Path, keys: str, answer: bool | None, expected: str
) -> None:
    agent = script(ASKING)
    text = f"steps: [{{id: x, agent: AGENT, prompt: go{', ' + keys if keys else ''}}}]"
    stage = stage_of(agent, tmp_path, text)
    if answer is not None:
        stage.front = Talking(x=answer)

    finished = stage.run()

    assert finished.status == "success", finished.message
    assert stage.result("x").text == expected
    is_asked = "approve" in keys
    assert [each.call for each in stage.all(ApprovalAsked)] == ["c1"] * is_asked
    assert [(each.call, each.approved) for each in stage.all(ApprovalGiven)] == (
        [("c1", expected == "yes")] * is_asked
    )
    assert len([note for note in stage.notes if note.startswith("denied: git push")]) == (expected == "no")


def test_a_denied_tool_can_stop_the_run(script: Script, tmp_path: Path) -> None:
    agent = script(ASKING.replace('["result"]["outcome"]', '.get("result", {}).get("outcome", {})'))
    text = 'steps: [{id: x, agent: AGENT, prompt: go, approve: {tools: ["execute(*)"], on_deny: stop}}]'
    stage = stage_of(agent, tmp_path, text)
    stage.front = Talking(x=False)

    finished = stage.run()

    assert (finished.status, finished.message) == ("cancelled", "x was denied")


def test_a_question_about_a_tool_that_nobody_can_answer_now_parks_the_run(
    script: Script, tmp_path: Path
) -> None:
    class Away(Talking):
        async def approve(
            self, place: Place, question: str, default: bool | None, wish: PermissionQuestion | None = None
        ) -> Approval:
            raise Parked("later")

    agent = script(ASKING.replace('["result"]["outcome"]', '.get("result", {}).get("outcome", {})'))
    stage = stage_of(
        agent, tmp_path, 'steps: [{id: x, agent: AGENT, prompt: go, approve: {tools: ["execute(*)"]}}]'
    )
    stage.front = Away()
    assert stage.run().status == "parked"
    stage.front = Talking(x=True)

    assert stage.resume().status == "success"
    assert stage.result("x").text == "yes"


def test_a_form_of_the_agent_is_filled_in_or_declined(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            schema = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
            id = os.getpid()
            form = {"mode": "form", "sessionId": "s1", "message": "Who?", "requestedSchema": schema}
            send(request(id, "elicitation/create", **form))
            send(say(json.dumps(answer_to(id)["result"])), end(prompt))
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go}]")
    stage.front = Talking(x="Ann")

    stage.run()
    answered = json.loads(stage.result("x").text or "")
    stage.front, stage.memory = Talking(), type(stage.memory)()
    stage.run()

    assert answered == {"action": "accept", "content": {"name": "Ann"}}
    assert json.loads(stage.result("x").text or "") == {"action": "decline"}  # nobody is there


@pytest.mark.parametrize("place", ["inline", "file"])
def test_a_typed_answer_is_repaired_and_becomes_the_output(
    script: Script, tmp_path: Path, place: str
) -> None:
    agent = script(
        """
        for number, prompt in enumerate(prompts()):
            answers = ["No JSON.", '```json\\n{"n": "x"}\\n```', '```json\\n{"n": 3}\\n```']
            send(say(answers[number]), end(prompt))
        """
    )
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    (tmp_path / "n.json").write_text(json.dumps(schema))
    written = json.dumps(schema) if place == "inline" else "n.json"
    stage = stage_of(
        agent,
        tmp_path,
        f"""
        steps: [{{id: x, agent: AGENT, prompt: go, output: {written}}}]
        outputs: {{n: "{{{{ steps.x.output.n + 1 }}}}"}}
        """,
    )

    finished = stage.run()

    assert finished.outputs == {"n": 4}, finished.message
    assert len(agent.received_of("session/prompt")) == 3


def test_an_answer_that_never_fits_fails_with_its_words(script: Script, tmp_path: Path) -> None:
    agent = script('for prompt in prompts(): send(say("I will not."), end(prompt))')
    stage = stage_of(
        agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go, repairs: 3, output: {type: array}}]"
    )

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "invalid_output"
    assert stage.result("x").text == "I will not."
    assert len(agent.received_of("session/prompt")) == 4


USING = """
for prompt in prompts():
    send(say("Done."), end(prompt, usage={"inputTokens": 60, "outputTokens": 40, "totalTokens": 100}))
"""


@pytest.mark.parametrize(
    ("budgets", "failed", "whose"),
    [
        (("tokens: 99", ""), "a", "step"),
        (("", "tokens: 150"), "b", "workflow"),
        (("", "tokens: 100"), "b", "workflow"),
        (("tokens: 100", "tokens: 200"), None, ""),
    ],
)
def test_budgets_of_steps_and_of_the_run_end_it(
    script: Script, tmp_path: Path, budgets: tuple[str, str], failed: str | None, whose: str
) -> None:
    agent = script(USING)
    own, of_run = budgets
    stage = stage_of(
        agent,
        tmp_path,
        f"""
        {"budget: {" + of_run + "}" if of_run else "description: none"}
        steps:
          - {{id: a, agent: AGENT, prompt: go {", budget: {" + own + "}" if own else ""}}}
          - {{id: b, agent: AGENT, prompt: go}}
        """,
    )

    finished = stage.run()

    assert finished.failed_step == failed
    if failed is not None:
        assert finished.error is not None
        assert finished.error.kind == "budget"
        assert f"see `budget` of the {whose}" in finished.error.message
        assert finished.usage is not None
        assert finished.usage.total == 100 * len(agent.received_of("session/prompt"))


def test_a_budget_of_time_ends_the_turn_and_keeps_what_was_said(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            send(say("Slowly"))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go, budget: {time: 300ms}}]")

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "budget"
    assert stage.result("x").text == "Slowly"


def test_what_was_spent_counts_after_a_resume(script: Script, tmp_path: Path) -> None:
    agent = script(USING)
    stage = stage_of(
        agent,
        tmp_path,
        """
        budget: {tokens: 150}
        steps:
          - {id: a, agent: AGENT, prompt: go}
          - {id: wait, ask: Really?}
          - {id: b, agent: AGENT, prompt: go}
          - {id: c, agent: AGENT, prompt: go}
        """,
    )
    assert stage.run().status == "parked"
    stage.front = Talking(wait="yes")

    finished = stage.resume()

    assert finished.failed_step == "b"
    assert finished.usage is not None
    assert finished.usage.total == 200
    assert len(agent.received_of("session/prompt")) == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("error(prompt, -32603, 'HTTP 429: too many requests')", "rate_limit"),
        ("error(prompt, -32000, 'log in first')", "provider"),
        ("error(prompt, -32603, 'the model has failed')", "provider"),
        ("end(prompt, 'refusal')", "provider"),
        ("end(prompt, 'max_tokens')", "provider"),
        ("end(prompt, 'cancelled')", "cancelled"),
    ],
)
def test_failures_have_kinds_and_what_was_said(
    script: Script, tmp_path: Path, answer: str, kind: str
) -> None:
    agent = script(f"for prompt in prompts(): send(say('Half'), {answer})")
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps: [{id: x, agent: AGENT, prompt: go, on_error: continue}]
        outputs: {kind: "{{ steps.x.error.kind }}", text: "{{ steps.x.text }}"}
        """,
    )

    finished = stage.run()

    assert finished.outputs == {"kind": kind, "text": "Half"}
    error = stage.result("x").error
    assert error is not None
    assert ("coupler login" in error.message) == ("log in" in answer)


def test_an_agent_that_dies_fails_its_step_and_is_started_again_for_the_next(
    script: Script, tmp_path: Path
) -> None:
    agent = script(
        """
        for prompt in prompts():
            send(say("Alas"))
            if "die" in text_of(prompt):
                os._exit(7)
            send(end(prompt))
        """
    )
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: first, agent: AGENT, prompt: die, on_error: continue}
          - {id: second, agent: AGENT, prompt: live}
        """,
    )

    finished = stage.run()

    assert finished.status == "success"
    failed = stage.result("first")
    assert failed.error is not None
    assert (failed.error.kind, failed.text) == ("provider", "Alas")
    assert "exit code: 7" in failed.error.message
    assert stage.result("second").text == "Alas"


def test_a_provider_that_wants_to_be_asked_later_is(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for number, prompt in enumerate(prompts()):
            session = prompt["params"]["sessionId"]
            refused = error(prompt, -32603, "rate limit: retry-after: 0.25")
            send(*([refused] if number == 0 else [say("Done.", session), end(prompt)]))
        """
    )
    stage = stage_of(
        agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go, retry: {attempts: 2, delay: 0ms}}]"
    )

    assert stage.run().status == "success"
    assert [each.delay for each in stage.all(RetryPlanned)] == [0.25]
    assert stage.result("x").attempts == 2


def test_a_missing_program_is_not_found(tmp_path: Path) -> None:
    stage = AgentStage(tmp_path, "steps: [{id: x, agent: no-such-program --acp, prompt: go}]")

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "not_found"


def test_a_step_whose_time_is_up_keeps_what_was_said(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            send(say("As far as I came"))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go, timeout: 500ms}]")

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "timeout"
    assert stage.result("x").text == "As far as I came"


def test_a_cancelled_run_leaves_no_agent_behind(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            send(say("I begin"))
            note("begun", True)
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go}]")

    async def cancel_once_begun(engine: object) -> None:
        while not agent.noted("begun"):
            await asyncio.sleep(0.005)
        engine.cancel()  # type: ignore[attr-defined]

    tasks: list[asyncio.Task[None]] = []
    stage.while_it_runs = lambda engine: tasks.append(
        asyncio.get_running_loop().create_task(cancel_once_begun(engine))
    )

    assert stage.run().status == "cancelled"  # the fixture looks for the process


CONTINUING = """
steps:
  - {id: first, agent: AGENT, prompt: Remember 42., system: Be brief.}
  - {id: wait, ask: Go on?}
  - {id: second, agent: AGENT, prompt: What was it?, continue: first}
"""


def test_a_session_goes_on_in_the_same_process(script: Script, tmp_path: Path) -> None:
    agent = script(LOADING)
    stage = stage_of(agent, tmp_path, CONTINUING)
    stage.front = Talking(wait="yes")

    stage.run()

    assert stage.result("second").session_id == stage.result("first").session_id
    assert len(agent.noted("pid")) == 1
    assert not agent.received_of("session/load")


def test_a_session_is_loaded_again_by_a_run_that_is_resumed(script: Script, tmp_path: Path) -> None:
    agent = script(LOADING)
    stage = stage_of(agent, tmp_path, CONTINUING)
    stage.run()
    first = stage.result("first").session_id
    stage.front = Talking(wait="yes")

    finished = stage.resume()

    assert finished.status == "success"
    assert stage.result("second").text == f"in {first}"
    assert stage.said == f"in {first}"  # what is told again belongs to nobody's step
    assert agent.received_of("session/prompt")[1]["params"]["prompt"][0]["text"] == "What was it?"
    assert len(agent.noted("pid")) == 2


def test_an_agent_that_cannot_load_is_told_what_was_said(script: Script, tmp_path: Path) -> None:
    agent = script(FORGETFUL)
    stage = stage_of(agent, tmp_path, CONTINUING)
    stage.run()
    stage.front = Talking(wait="yes")

    finished = stage.resume()

    assert finished.status == "success"
    told = agent.received_of("session/prompt")[-1]["params"]["prompt"][0]["text"]
    assert told.index("Be brief.") < told.index("Remember 42.") < told.index("You: in s")
    assert told.endswith("What was it?")
    assert any("the earlier session cannot go on" in note for note in stage.notes)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("{id: first, agent: AGENT, prompt: x, if: false}", "that step has no session, it is skipped"),
        (
            "{id: first, agent: echo no, prompt: x, on_error: continue}",
            "that step has no session, it is failed",
        ),
    ],
)
def test_there_must_be_a_session_to_go_on_with(
    script: Script, tmp_path: Path, first: str, words: str
) -> None:
    agent = script(ECHO)
    stage = stage_of(
        agent, tmp_path, f"steps: [{first}, {{id: second, agent: AGENT, prompt: y, continue: first}}]"
    )

    finished = stage.run()

    assert finished.failed_step == "second"
    assert words in finished.message


def test_steps_that_go_on_with_one_session_take_turns(script: Script, tmp_path: Path) -> None:
    agent = script(ECHO)
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: first, agent: AGENT, prompt: a}
          - parallel:
              - {id: left, agent: AGENT, prompt: b, continue: first}
              - {id: right, agent: AGENT, prompt: c, continue: first}
        """,
    )

    finished = stage.run()

    assert finished.status == "success", finished.message
    assert {stage.result(each).session_id for each in ("first", "parallel_2.left", "parallel_2.right")} == {
        "s1"
    }


def test_what_comes_late_belongs_to_no_step(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            send(say("a"), end(prompt), say("late"))
        """
    )
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: first, agent: AGENT, prompt: x}
          - {id: second, agent: AGENT, prompt: y, continue: first}
        """,
    )

    stage.run()

    assert stage.said == "aa"
    assert stage.result("second").text == "a"


def test_agents_that_nobody_uses_are_ended_before_the_run_is(script: Script, tmp_path: Path) -> None:
    agent = script(ECHO)

    class Looking(Talking):
        alive = 0

        async def ask(self, place: Place, question: str, answer: Input) -> QuestionAnswer:
            self.alive = sum(map(is_running, agent.noted("pid")))
            return QuestionAnswer("", "", "user")

    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - for_each: [1, 2, 3, 4, 5, 6, 7]
            steps: [{agent: AGENT, prompt: x, env: {N: "{{ item }}"}}]
          - {id: look, ask: Now?}
        """,
    )
    stage.front = looking = Looking()

    assert stage.run().status == "success"
    assert len(agent.noted("pid")) == 7
    assert 1 <= looking.alive <= 5


def test_a_python_agent_is_served_from_beside_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "async def agent(turn):\n    print('noise')\n    await turn.say(f'Python heard: {turn.text}')\n"
    )
    stage = AgentStage(tmp_path, 'steps: [{id: x, agent: "mine.py:agent", prompt: hi}]')

    finished = stage.run()

    assert finished.status == "success", finished.message
    assert stage.result("x").text == "Python heard: hi"


def test_servers_of_a_step_that_goes_on_reach_the_session(script: Script, tmp_path: Path) -> None:
    agent = script(LOADING)
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: one, agent: AGENT, prompt: One}
          - {id: two, agent: AGENT, prompt: Two, continue: one, mcp_servers: {tickets: {command: tickets}}}
          - {id: three, agent: AGENT, prompt: Three, continue: two}
        """,
    )

    assert stage.run().status == "success"

    assert len({stage.result(id).session_id for id in ("one", "two", "three")}) == 1
    (opened,) = agent.received_of("session/load")
    assert [each["name"] for each in opened["params"]["mcpServers"]] == ["tickets"]
    assert len(agent.noted("pid")) == 1


def test_profiles_have_hooks_templates_and_variables_of_those_they_stand_on(
    script: Script, tmp_path: Path
) -> None:
    agent = script("for prompt in prompts():\n    send(say(os.environ['WHO']), end(prompt))")
    stage = stage_of(
        agent,
        tmp_path,
        """
        inputs: {base: {default: lowest}}
        defaults: {env: {WHO: default}}
        agents:
          lowest: {agent: AGENT, env: {WHO: profile}, hooks: {start: [{id: began, run: "true"}]}}
          top: {agent: "{{ inputs.base }}"}
        steps:
          - {id: one, agent: top, prompt: go}
          - {id: two, agent: top, prompt: go, env: {WHO: step}}
          - id: block
            env: {WHO: block}
            parallel:
              - {id: three, agent: top, prompt: go}
              - {id: four, run: printf "$WHO"}
        """,
    )

    finished = stage.run()

    assert finished.status == "success", finished.message
    assert [stage.result(path).text for path in ("one", "two", "block.three")] == ["profile", "step", "block"]
    assert stage.result("block.four").stdout == "block"
    assert stage.result("one.hooks.start.began").status == "success"


def test_texts_of_coupler_toml_are_no_templates(script: Script, tmp_path: Path, coupler_home: Path) -> None:
    agent = script(ECHO)
    coupler_home.mkdir(parents=True)
    (coupler_home / "coupler.toml").write_text(
        f"[agents.mine]\ncommand = {json.dumps(agent.command)}\nsystem = 'Write {{{{ user.name }}}} {{% raw'"
    )
    stage = AgentStage(tmp_path, "steps: [{id: x, agent: mine, prompt: hi}]")

    assert stage.run().status == "success"

    assert "Write {{ user.name }} {% raw" in (stage.result("x").text or "")


def test_what_an_agent_says_is_text_wherever_it_goes(script: Script, tmp_path: Path) -> None:
    agent = script(ECHO)
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: one, agent: AGENT, prompt: "{{ '{{ 6 * 7 }} {% raw %}' }}"}
          - {id: two, agent: AGENT, prompt: "{{ steps.one.text }}", system: "{{ steps.one.text }}"}
        """,
    )

    assert stage.run().status == "success"

    assert "42" not in (stage.result("two").text or "")
    assert (stage.result("two").text or "").count("{{ 6 * 7 }} {% raw %}") == 2


def test_an_agent_that_goes_on_and_on_is_stopped(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coupler.client.remote.Limits", lambda: Limits(characters=10_000))
    agent = script(
        """
        for prompt in prompts():
            for _ in range(100):
                send(say("x" * 1000))
            send(end(prompt))
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go}]")

    finished = stage.run()

    assert finished.error is not None
    assert (finished.error.kind, "was stopped" in finished.error.message) == ("provider", True)
    assert len(stage.said) == len(stage.result("x").text or "") == 10_000


def test_what_an_agent_names_is_told_in_bounds(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            big = "y" * 100_000
            call = {"title": big, "kind": "other", "name": big, "locations": [{"path": "/" + big}]}
            send(
                update("tool_call", toolCallId=big, status="pending", **call),
                update("tool_call_update", toolCallId=big, title="z" + big, status="in_progress"),
                update("tool_call_update", toolCallId=big, status="completed"),
                update("plan", entries=[{"content": big, "priority": "high", "status": "pending"}] * 200),
                say("ok"),
                end(prompt),
            )
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go}]")

    assert stage.run().status == "success"

    told = [*stage.told(ToolCall), *stage.told(ToolUpdate), *stage.told(Plan)]
    assert len(told) == 4
    assert len({each.id for each in told[:3]}) == 1  # type: ignore[union-attr]
    assert sum(len(str(each)) for each in told) < 200_000


def test_processes_that_only_wait_for_later_steps_do_not_add_up(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coupler.workflow.agents.agents.MOST_WAITING", 1)
    monkeypatch.setattr("coupler.workflow.agents.agents.MOST_IDLE", 0)
    agent = script(LOADING)
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: a, agent: AGENT, prompt: A, env: {PLACE: a}}
          - {id: b, agent: AGENT, prompt: B, env: {PLACE: b}}
          - {id: c, agent: AGENT, prompt: C, env: {PLACE: c}}
          - id: alive
            run: |
              for pid in $(sed -n 's/.*"pid": \\([0-9]*\\).*/\\1/p' agent1.log); do
                if kill -0 $pid; then echo $pid; fi
              done
          - {id: a2, agent: AGENT, prompt: A, env: {PLACE: a}, continue: a}
          - {id: b2, agent: AGENT, prompt: B, env: {PLACE: b}, continue: b}
          - {id: c2, agent: AGENT, prompt: C, env: {PLACE: c}, continue: c}
        """,
    )

    finished = stage.run()

    assert finished.status == "success", finished.message
    assert len((stage.result("alive").stdout or "").split()) == 1
    assert [stage.result(f"{id}2").text for id in "abc"] == [
        f"in {stage.result(id).session_id}" for id in "abc"
    ]
    assert not stage.notes


def test_an_agent_that_does_not_listen_is_killed_by_a_second_cancel(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for prompt in prompts():
            note("prompted", True)
            time.sleep(60)
        """
    )
    stage = stage_of(agent, tmp_path, "steps: [{id: x, agent: AGENT, prompt: go}]")

    async def cancel_twice(engine: Engine) -> None:
        while not agent.noted("prompted"):
            await asyncio.sleep(0.01)
        engine.cancel()
        await asyncio.sleep(0.01)
        engine.cancel()

    tasks: list[asyncio.Task[None]] = []
    stage.while_it_runs = lambda engine: tasks.append(asyncio.ensure_future(cancel_twice(engine)))

    finished = stage.run()

    assert finished.status == "cancelled"
    assert finished.duration < 8  # an agent has ten seconds to answer a cancel, and five to end
