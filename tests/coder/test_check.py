"""The served coder passes the whole conformance kit with a busy model and without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import forked
from coder.script import Answer, Asked, ScriptedModel, use
from coder.served_coder import surroundings, write
from coupler.conformance.assertion import catalogue
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine
from labs.langchain.model_server import says
from raw_client import COUPLER

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick_starts", "unmeasured")]

TIMEOUT = 30.0
"""Seconds for an answer: nothing here is about how soon it comes."""

TODOS = [{"content": "Look", "status": "completed"}, {"content": "Count", "status": "in_progress"}]

OPENING = ("A01", "A03", "A20", "A26", "A32", "S01")
"""Assertions about what a client does before its first prompt."""

DOES_NOT_APPLY = {
    "A18",  # the coder wants no login from the editor
}


def everything(asked: Asked) -> Answer:
    """Use all that there is to use, then say that it is done; go on for ever if the prompt says slow."""
    if asked.messages[-1]["role"] != "user":
        return "That is done."
    if "slow" in asked.prompts[-1]:
        return says("and so on, ", "and on.", holds=True)
    return (
        "I look. ",
        use("write_todos", todos=TODOS),
        use("read_file", path="README.md"),
        use("write_file", path="made.txt", content="x\n"),
        use("run_command", command="pwd"),
        use("ask_user", question="Which color?", options=["red", "blue"]),
    )


def test_the_served_coder_keeps_to_every_sentence_that_applies_to_it(
    tmp_path: Path, project: Path, scripted_model: ScriptedModel, langchain_loaded: forked.Loaded
) -> None:
    write(project, {"README.md": "Read me.\n"})
    scripted_model.improvises(everything)
    served = Candidate(
        [*COUPLER, "serve"],
        project,
        env=surroundings(tmp_path / "home", scripted_model.server.url),
        timeout=TIMEOUT,
        startup_timeout=TIMEOUT,
        prompt="use everything",
        slow_prompt="be slow",
    )

    with langchain_loaded.used():
        report = asyncio.run(examine(served, catalogue("agent")))
    scripted_model.server.release()

    outcomes = {
        outcome: {each.assertion.id: each.message for each in report.results if each.outcome == outcome}
        for outcome in ("failed", "warned", "skipped")
    }
    assert outcomes["failed"] == outcomes["warned"] == {}
    assert outcomes["skipped"].keys() == DOES_NOT_APPLY, outcomes["skipped"]


def test_without_a_model_the_served_coder_keeps_to_all_that_can_be_judged(
    tmp_path: Path, project: Path, langchain_loaded: forked.Loaded
) -> None:
    served = Candidate(
        [*COUPLER, "serve"],
        project,
        env={**surroundings(tmp_path / "home", None), "COUPLER_API_KEY": ""},
        timeout=TIMEOUT,
        startup_timeout=TIMEOUT,
    )

    with langchain_loaded.used():
        report = asyncio.run(examine(served, catalogue("agent")))

    outcomes = {each.assertion.id: each.outcome for each in report.results}
    assert not {"failed", "warned"} & {*outcomes.values()}, report.results
    assert [outcomes[each] for each in OPENING] == ["passed"] * len(OPENING)
    told = " ".join(each.message or "" for each in report.results if each.outcome == "skipped")
    assert "No model is set: run `coupler login coder`" in told
