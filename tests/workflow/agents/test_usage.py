"""What agents cost: each turn once, whichever process goes on with its session; what is spent stays spent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from client.stage import run
from coupler.store.store import Store
from coupler.workflow.engine.run import EngineOptions, resume_run, start_run
from coupler.workflow.journal.run_events import RunFinished
from coupler.workflow.language.library import build_bundle
from workflow.agent_stage import Script, Talking, stage_of

PAID = """
import pathlib
HELLO["agentCapabilities"] = {"loadSession": True}
book = pathlib.Path(sys.argv[1] + ".book")
paid = json.loads(book.read_text()) if book.exists() else {}
while True:
    frame = read()
    session = frame.get("params", {}).get("sessionId")
    money = lambda: {"amount": paid[session], "currency": "USD"}
    cost = lambda: update("usage_update", session, used=1, size=9, cost=money())
    match frame["method"]:
        case "initialize":
            send(result(frame, HELLO))
        case "session/new":
            send(result(frame, {"sessionId": f"s{os.getpid()}-{frame['id']}"}))
        case "session/load":
            send(*[cost()][:TELLS], result(frame, {}))
        case "session/prompt":
            paid[session] = paid.get(session, 0) + 0.5
            book.write_text(json.dumps(paid))
            used = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
            fails = "Fail" in text_of(frame)
            send(cost(), error(frame, -32603, "broken") if fails else end(frame, usage=used))
"""
CONTINUED = """
steps:
  - {id: one, agent: AGENT, prompt: One}
  - {id: wait, ask: Go on?}
  - {id: two, agent: AGENT, prompt: Two, continue: one}
outputs: {cost: "{{ steps.two.usage.cost }}"}
"""


class Again:
    """How a run is taken up again: from a step, or where it was left; `answer` is there for `wait`."""

    def __init__(self, from_step: str | None = None, answer: str | None = None) -> None:
        self.from_step = from_step
        self.front = Talking() if answer is None else Talking(wait=answer)


def story_of(agent: object, directory: Path, text: str, *ways: Again) -> list[RunFinished]:
    """A run of the store and how it ends, each time that it is taken up again with agents of its own."""
    workflow = stage_of(agent, directory, text).workflow  # type: ignore[arg-type]
    (directory / "main.yaml").write_text(text)
    bundle = build_bundle(workflow, lambda name, caller: caller)

    async def told(ways: Sequence[Again]) -> list[RunFinished]:
        store = Store.open(str(directory / "runs.db"))
        try:
            async with start_run(
                store, bundle, {}, cwd=str(directory), way=EngineOptions(front=Talking())
            ) as started:
                ends = [await started.engine.run()]
            for each in ways:
                way = EngineOptions(front=each.front)
                async with resume_run(
                    store, started.run.id, bundle, way, from_step=each.from_step
                ) as started_again:
                    ends.append(await started_again.engine.run())
            return ends
        finally:
            store.close()

    return run(told(ways))


def costs_of(ends: Sequence[RunFinished]) -> list[float | None]:
    return [each.usage.cost if each.usage is not None else None for each in ends]


@pytest.mark.parametrize("tells", [0, 1], ids=["silent", "told again"])
def test_a_step_that_goes_on_in_another_process_costs_its_own_turn(
    script: Script, tmp_path: Path, tells: int
) -> None:
    agent = script(PAID.replace("TELLS", str(tells)))

    ends = story_of(agent, tmp_path, CONTINUED, Again(answer="yes"), Again(from_step="two", answer="yes"))

    assert [each.status for each in ends] == ["parked", "success", "success"]
    assert [each.outputs.get("cost") for each in ends] == [None, 0.5, 0.5]
    assert costs_of(ends) == [0.5, 1.0, 1.5]
    assert len(agent.received_of("session/load")) == 2


def test_what_a_failed_step_has_cost_stays_spent_when_it_is_tried_again(
    script: Script, tmp_path: Path
) -> None:
    agent = script(PAID)
    text = "budget: {cost: 0.9}\nsteps: [{id: x, agent: AGENT, prompt: Fail}]"

    ends = story_of(agent, tmp_path, text, Again(), Again())

    assert costs_of(ends) == [0.5, 1.0, 1.0]
    assert [each.error and each.error.kind for each in ends] == ["provider", "provider", "budget"]
    assert len(agent.received_of("session/prompt")) == 2


def test_a_turn_that_fails_is_charged_once(script: Script, tmp_path: Path) -> None:
    agent = script(PAID)
    stage = stage_of(
        agent,
        tmp_path,
        """
        budget: {cost: 1.2}
        steps: [{id: x, agent: AGENT, prompt: Fail, retry: {attempts: 5, delay: 1ms}}]
        """,
    )

    finished = stage.run()

    assert finished.error is not None
    assert (finished.error.kind, costs_of([finished])) == ("budget", [1.5])
    assert len(agent.received_of("session/prompt")) == 3


def test_a_repair_that_fails_is_paid_for_with_the_answer_before_it(script: Script, tmp_path: Path) -> None:
    agent = script(PAID.replace('"Fail" in text_of(frame)', "paid[session] > 0.5"))
    text = "steps: [{id: x, agent: AGENT, prompt: go, output: {type: object}}]"
    stage = stage_of(agent, tmp_path, text)

    finished = stage.run()

    assert len(agent.received_of("session/prompt")) == 2
    assert costs_of([finished]) == [1.0]
