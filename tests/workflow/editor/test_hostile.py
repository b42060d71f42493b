"""Editors, agents and workflows that do what they should not: nothing is let through, and nothing piles up.

The tests with an editor share one `coupler serve`, with a session and a workflow each.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.steps import leave, still_serves
from coupler.client.session import RemoteSession
from coupler.events import Plan, Text, ToolCall
from coupler.workflow.editor.projection import AgentMessages
from coupler.workflow.editor.step_calls import MOST_PLAN_STEPS, StepPlan
from coupler.workflow.engine.front import visible
from coupler.workflow.journal.run_events import Place, StepStarted
from coupler.workflow.language.reader import read_text
from raw_client import RawClient
from tables import table
from workflow.agent_stage import Script, stage_of
from workflow.served_agents import Desk, nested
from workflow.served_project import served

ONE_STEP = "steps: [{id: x, agent: AGENT, prompt: go}]"
HIDING = "Read\x1b[2K \u202eexe.txt"
SPELLED_OUT = "Read\\x1b[2K \\u202eexe.txt"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the served process."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[RawClient]:
    with served(home=place, cwd=place, elicitation={"form": {}}) as client:
        yield client
        leave(client)


@pytest.fixture
def desk(client: RawClient, place: Path, tmp_path: Path) -> Desk:
    still_serves(client)
    client._held.clear()
    return Desk(client, place, tmp_path)


# Editors


def _selected(option: Any) -> dict[str, Any]:
    return {"result": {"outcome": {"outcome": "selected", "optionId": option}}}


@pytest.mark.parametrize(
    "answers",
    [
        [{"result": None}],
        [{"result": {}}],
        [{"result": {"outcome": "selected"}}],
        [{"result": {"outcome": {"outcome": "unheard of"}}}],
        [_selected("ALLOW")],
        [_selected("allow_always")],
        [_selected(7)],
        [{"error": None}],
        [_selected("allow") | {"error": {"code": 1, "message": "both"}}],
        [_selected("deny"), _selected("allow"), _selected("allow")],
    ],
    ids=lambda answers: json.dumps(answers[0])[:60],
)
def test_what_is_no_clear_yes_to_a_dialog_lets_nothing_through(desk: Desk, answers: list[Any]) -> None:
    editor = desk.editor()
    request = editor.begin(desk.workflow("steps: [{approve: Deploy?}, {id: deploy, run: touch deployed}]"))
    frames = editor.until("session/request_permission", '"id"')

    editor.client.send(*({"id": frames[-1]["id"], **answer} for answer in answers))
    shown = editor.finish(request, before=frames)

    assert (shown.reason, shown.meta["error"]["kind"]) == ("end_turn", "denied")
    assert f"{shown.run}/deploy" not in shown.calls


# What is shown


@table(
    ("text", "seen"),
    [
        ("two lines\n\tand a tab", "two lines\n\tand a tab"),
        ("Zoë 你好 👩\u200d💻 می\u200cرود", "Zoë 你好 👩\u200d💻 می\u200cرود"),
        (HIDING, SPELLED_OUT),
        ("over\rwritten", "over\\rwritten"),
        ("\x9b2J and \x07", "\\x9b2J and \\x07"),
        ("in\u200bvisible", "in\\u200bvisible"),
    ],
)
def test_a_text_that_hides_something_is_spelled_out(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_titles_plans_and_questions_hide_nothing_whoever_wrote_them(desk: Desk, script: Script) -> None:
    agent = script(
        f"""
        for prompt in prompts():
            send(update("plan", entries=[{{"content": {HIDING!r}, "priority": "low", "status": "pending"}}]))
            send(permission(1, None, title={HIDING!r}, kind="execute", rawInput={{"command": "rm \\x1b[1A"}}))
            answer_to(1)
            send(end(prompt))
        """
    )
    name = json.dumps(HIDING)
    text = f"steps: [{{description: {name}, approve: {name}}}, {{id: x, agent: AGENT, prompt: go}}]"
    editor = desk.editor()

    shown = editor.prompt(desk.workflow(text, agent), "allow", "deny")

    titles = [call["title"] for call in shown.calls.values()]
    entries = [entry for update in shown.updates for entry in update.get("entries", ())]
    of_workflow, of_agent = (asked["toolCall"] for asked in editor.asked)
    assert SPELLED_OUT in titles
    assert of_workflow["title"] == of_agent["title"] == SPELLED_OUT
    assert "rm \\x1b[1A" in of_agent["content"][0]["content"]["text"]
    assert f"x: {SPELLED_OUT}" in [entry["content"] for entry in entries]
    assert not any(char in text for text in [*titles, json.dumps(entries)] for char in ("\x1b", "\\u001b"))


def test_a_call_of_an_agent_has_no_secret_in_its_id_and_its_paths(desk: Desk, script: Script) -> None:
    agent = script(
        """
        for prompt in prompts():
            word = text_of(prompt)
            where = [{"path": "/" + word}]
            send(update("tool_call", toolCallId=word, title="Look", locations=where, status="completed"))
            send(end(prompt))
        """
    )
    text = "inputs: {key: {secret: true}}\nsteps: [{id: x, agent: AGENT, prompt: '{{ inputs.key }}'}]"

    shown = desk.editor().prompt(f"{desk.workflow(text, agent)} key=correct-horse-battery")

    assert [call["title"] for call in nested(shown)] == ["Look"]
    assert "correct-horse" not in json.dumps([shown.updates, desk.kept(shown.run)])


# Forms


def _form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("message", "schema", "why"),
    [
        ("Log in", _form(password={"type": "string"}), "secret"),
        ("Please enter your API key", _form(value={"type": "string"}), "secret"),
        ("Which?", _form(which={"type": "string", "enum": [f"{n:0>400}" for n in range(800)]}), "too long"),
        ("Which?", {"type": "array", "properties": {}}, None),
    ],
    ids=["secret field", "secret question", "long", "no form"],
)
def test_a_form_that_nobody_should_fill_in_is_shown_to_nobody(
    desk: Desk, script: Script, message: str, schema: dict[str, Any], why: str | None
) -> None:
    agent = script(
        f"""
        for prompt in prompts():
            form = dict(mode="form", sessionId="s1", message={message!r}, requestedSchema={schema!r})
            send(request(1, "elicitation/create", **form))
            note("answer", answer_to(1).get("result"))
            send(end(prompt))
        """
    )
    editor = desk.editor()

    shown = editor.prompt(desk.workflow(ONE_STEP, agent))

    assert editor.asked == []
    assert agent.noted("answer") == [None if why is None else {"action": "decline"}]
    if why is not None:
        assert why in shown.output("x")


# What there is too much of


def test_of_many_steps_the_plan_shows_those_around_the_one_that_is_at_work() -> None:
    steps = "\n".join(
        f"  - {{id: s{number}, description: Step {number}, set: {{v: 1}}}}" for number in range(250)
    )
    plan = StepPlan(read_text(f"steps:\n{steps}", "many.yaml"))
    told = []
    for number in (0, 120, 249):
        plan.learn(
            StepStarted(place=Place(f"s{number}"), id=f"s{number}", kind="set", title=f"Step {number}")
        )
        told.append([entry.content for entry in plan.as_event().entries])

    first, middle, last = told
    assert (len(first), first[0], first[-1]) == (MOST_PLAN_STEPS + 1, "Step 0", "… 150 more")
    assert (middle[0], middle[1], middle[-2:]) == ("… 100 before", "Step 100", ["Step 199", "… 50 more"])
    assert (len(last), last[0], last[-1]) == (MOST_PLAN_STEPS + 1, "… 150 before", "Step 249")


@pytest.mark.parametrize(
    "update",
    [
        'update("tool_call", toolCallId=str(n), title="t", status="pending")',
        'update("tool_call", toolCallId=str(n), title="t", status="completed", rawInput={"a": "x" * 9000})',
        'update("tool_call_update", toolCallId="c", title="t" * (n % 7))',
        'update("plan", entries=[{"content": "x" * n, "priority": "low", "status": "pending"}])',
        'say("x")',
    ],
    ids=["calls", "large calls", "titles", "plans", "pieces"],
)
def test_an_agent_that_does_ever_more_is_stopped(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: str
) -> None:
    monkeypatch.setattr("coupler.workflow.agents.agent_events.MOST_DONE", 20_000)
    agent = script(
        f"""
        for prompt in prompts():
            send(*({update} for n in range(1000)))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
        """
    )
    stage = stage_of(agent, tmp_path, ONE_STEP)

    finished = stage.run()

    assert finished.error is not None
    assert "were too many" in finished.error.message
    assert len(stage.memory.noted) < 500


def test_a_plan_that_stays_the_same_is_told_once(script: Script, tmp_path: Path) -> None:
    agent = script(
        """
        for prompt in prompts():
            same = update("plan", entries=[{"content": "Think", "priority": "low", "status": "pending"}])
            send(same, same, same, end(prompt))
        """
    )
    stage = stage_of(agent, tmp_path, ONE_STEP)

    assert stage.run().status == "success"
    assert len(stage.told(Plan)) == 1


def _sessions() -> int:
    return sum(isinstance(each, RemoteSession) for each in gc.get_objects())


def test_what_an_agent_sent_is_out_of_memory_as_soon_as_the_run_is_over(
    script: Script, tmp_path: Path
) -> None:
    agent = script(
        """
        for prompt in prompts():
            send(update("tool_call", toolCallId="c", title="t", status="completed"), end(prompt))
        """
    )
    stage = stage_of(agent, tmp_path, ONE_STEP)
    # Without the collector: it may come long after the next hundred runs.
    gc.collect()
    before = _sessions()
    gc.disable()
    try:
        assert asyncio.run(stage.finished()).status == "success"
        assert len(stage.told(ToolCall)) == 1
        assert _sessions() == before
    finally:
        gc.enable()


def test_what_an_agent_says_while_another_has_the_word_is_sent_in_few_pieces() -> None:
    sent: list[str] = []
    outlet = SimpleNamespace(new_message_id=lambda: "m", send=lambda event: sent.append(event.text))
    turn = SimpleNamespace(
        session=SimpleNamespace(outlet=outlet), is_alive=True, begin_new_message=lambda: None
    )

    async def main() -> None:
        voices = AgentMessages(turn)  # type: ignore[arg-type]
        voices.say(Text, Place("a"), "I speak.")
        for _ in range(1000):
            voices.say(Text, Place("b"), "ab")
        voices.end()

    asyncio.run(main())

    assert sent == ["I speak.", "ab" * 1000]
