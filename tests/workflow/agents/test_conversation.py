"""`converse` steps: nothing that was said is said again, whatever ends the process in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from client.stage import run
from coupler.events import Text
from coupler.store.store import Store
from coupler.workflow.engine.front import UserMessage
from coupler.workflow.engine.run import EngineOptions, resume_run, start_run
from coupler.workflow.journal.run_events import Decided, Place, RunFinished
from coupler.workflow.language.library import build_bundle
from workflow.agent_stage import FORGETFUL, LOADING, Script, Talking, stage_of

ANSWERING = """
for number, prompt in enumerate(prompts(), 1):
    used = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    send(say(f"answer {number}"), end(prompt, usage=used))
"""
TALK = "steps: [{id: talk, converse: AGENT, prompt: Questions?}]\noutputs: {last: '{{ steps.talk.text }}'}"


def prompts_of(agent: object) -> list[str]:
    frames = agent.received_of("session/prompt")  # type: ignore[attr-defined]
    return [frame["params"]["prompt"][0]["text"] for frame in frames]


def test_a_conversation_goes_on_until_the_user_leaves(script: Script, tmp_path: Path) -> None:
    agent = script(ANSWERING)
    stage = stage_of(agent, tmp_path, TALK)
    stage.front = Talking("What now?", None)

    finished = stage.run()

    assert finished.outputs == {"last": "answer 2"}
    assert stage.front.heard == ["answer 1", "answer 2"]
    result = stage.result("talk")
    assert result.output == [
        {"role": "user", "text": "Questions?"},
        {"role": "agent", "text": "answer 1"},
        {"role": "user", "text": "What now?"},
        {"role": "agent", "text": "answer 2"},
    ]
    assert result.usage is not None
    assert result.usage.total == 6
    assert result.session_id == "s1"
    assert [each.text for each in stage.told(Text)] == ["answer 1", "answer 2"]


def test_a_conversation_without_a_prompt_begins_with_the_user_and_has_its_turns(
    script: Script, tmp_path: Path
) -> None:
    agent = script(ANSWERING)
    stage = stage_of(agent, tmp_path, "steps: [{id: talk, converse: AGENT, max_turns: 2}]")
    stage.front = Talking("One", "Two", "Three")

    finished = stage.run()

    assert finished.status == "success"
    assert stage.front.heard == ["", "answer 1"]
    assert prompts_of(agent) == ["One", "Two"]


@pytest.mark.parametrize("body", [LOADING, FORGETFUL], ids=["loads", "forgets"])
def test_a_parked_conversation_goes_on_with_the_next_message(
    script: Script, tmp_path: Path, body: str
) -> None:
    agent = script(body)
    stage = stage_of(agent, tmp_path, TALK)
    stage.front = Talking("Second")
    assert stage.run().status == "parked"
    stage.front = Talking("Third", None)

    finished = stage.resume()

    assert finished.status == "success"
    told = prompts_of(agent)
    assert told[:2] == ["Questions?", "Second"]
    assert len(told) == 3
    if body is LOADING:
        assert told[2] == "Third"
        session = agent.received_of("session/load")[0]["params"]["sessionId"]
        assert stage.result("talk").session_id == session
    else:
        assert told[2].index("User: Second") < told[2].index("end of the transcript") < told[2].index("Third")
    spoken = stage.result("talk").output
    assert isinstance(spoken, list)
    assert [each["text"] for each in spoken if each["role"] == "user"] == ["Questions?", "Second", "Third"]


def test_a_process_that_dies_anywhere_repeats_nothing_that_is_kept(script: Script, tmp_path: Path) -> None:
    agent = script(LOADING)
    stage = stage_of(agent, tmp_path, TALK)
    stage.front = Talking("Second", None)
    stage.run()
    whole = stage.memory.all
    expected = stage.result("talk").output
    assert isinstance(expected, list)

    for cut in range(1, len(whole)):
        before = len(agent.received_of("session/prompt"))
        kept = {each.what for each in whole[:cut] if isinstance(each, Decided)}
        replies = len([what for what in kept if what.startswith("reply-")])
        messages = [None] if "message-2" in kept else ["Second", None]
        stage.memory = type(stage.memory)(whole)
        stage.front = Talking(*([] if "message-3" in kept else messages))
        finished = stage.resume(cut)

        assert finished.status == "success", (cut, finished.message)
        assert len(agent.received_of("session/prompt")) - before == max(2 - replies, 0), cut
        if any(each.__class__.__name__ == "StepFinished" for each in whole[:cut]):
            continue
        said = stage.result("talk").output
        assert isinstance(said, list)
        assert [each["text"] for each in said if each["role"] == "user"] == ["Questions?", "Second"]


def test_an_agent_that_fails_in_a_conversation_fails_the_step_with_what_was_said(
    script: Script, tmp_path: Path
) -> None:
    agent = script(
        """
        for number, prompt in enumerate(prompts(), 1):
            send(say(f"answer {number}"), end(prompt) if number == 1 else error(prompt, -32603, "no more"))
        """
    )
    stage = stage_of(agent, tmp_path, TALK)
    stage.front = Talking("Second")

    finished = stage.run()

    assert finished.error is not None
    assert finished.error.kind == "provider"
    result = stage.result("talk")
    assert result.text == "answer 1"
    assert isinstance(result.output, list)
    assert len(result.output) == 2


def test_a_later_step_goes_on_with_a_conversation(script: Script, tmp_path: Path) -> None:
    agent = script(LOADING)
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: talk, converse: AGENT, prompt: Hello}
          - {id: sum, agent: AGENT, prompt: Sum it up., continue: talk}
        """,
    )
    stage.front = Talking(None)

    finished = stage.run()

    assert finished.status == "success", finished.message
    assert stage.result("sum").session_id == stage.result("talk").session_id


def test_a_run_of_the_store_goes_on_where_it_was_parked_and_counts_what_was_spent(
    script: Script, tmp_path: Path
) -> None:
    agent = script(
        LOADING.replace(
            "end(frame)", 'end(frame, usage={"inputTokens": 1, "outputTokens": 2, "totalTokens": 3})'
        )
    )
    workflow = stage_of(agent, tmp_path, TALK).workflow
    (tmp_path / "main.yaml").write_text(TALK)
    bundle = build_bundle(workflow, lambda name, caller: caller)

    async def parked_and_resumed() -> tuple[RunFinished, RunFinished]:
        store = Store.open(str(tmp_path / "runs.db"))
        try:
            way = EngineOptions(front=Talking())
            async with start_run(store, bundle, {}, cwd=str(tmp_path), way=way) as started:
                parked = await started.engine.run()
            way = EngineOptions(front=Talking("Second", None))
            async with resume_run(store, started.run.id, bundle, way) as started:
                return parked, await started.engine.run()
        finally:
            store.close()

    parked, finished = run(parked_and_resumed())

    assert (parked.status, finished.status) == ("parked", "success")
    assert prompts_of(agent) == ["Questions?", "Second"]
    assert len(agent.received_of("session/load")) == 1
    assert finished.usage is not None
    assert finished.usage.total == 6


def test_a_conversation_whose_time_is_up_keeps_what_was_said_and_can_go_on(
    script: Script, tmp_path: Path
) -> None:
    class Thinking(Talking):
        async def message(self, place: Place, reply: str) -> UserMessage | None:
            await asyncio.Event().wait()
            return None

    agent = script(ANSWERING)
    stage = stage_of(
        agent,
        tmp_path,
        """
        steps:
          - {id: talk, converse: AGENT, prompt: Questions?, timeout: 1s, on_error: continue}
          - {id: after, agent: AGENT, prompt: And now?, continue: talk}
        """,
    )
    stage.front = Thinking()

    finished = stage.run()

    assert finished.status == "success", finished.message
    result = stage.result("talk")
    assert result.error is not None
    assert (result.error.kind, result.text) == ("timeout", "answer 1")
    assert [each["text"] for each in result.output] == ["Questions?", "answer 1"]
    assert stage.result("after").session_id == result.session_id
