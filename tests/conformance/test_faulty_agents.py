"""The kit on trial: it finds nothing wrong with a right agent, and names the fault of each wrong one.

The agents are plain Python and know nothing of Coupler; see `agents/`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from coupler.conformance.assertion import catalogue
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine
from coupler.conformance.report import AssertionResult, ConformanceReport

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured")]

AGENTS = Path(__file__).parent / "agents"
MODEL = [sys.executable, str(AGENTS / "model.py")]
FAULTY = [sys.executable, str(AGENTS / "faulty.py")]
UNUSUAL = [sys.executable, str(AGENTS / "unusual.py")]

LOGIN = {"A16", "A17", "A18", "A19"}
"""What is about logging in, and so needs an agent that wants it."""
WANTS_NONE = {"logs-out-unadvertised"}
"""Faults of an agent that can be used without."""


MUTE = {
    "breaks-its-lines",
    "does-one-thing-at-a-time",
    "ignores-cancels",
    "keeps-terminals",
    "keeps-the-terminals-of-cancelled-turns",
    "never-answers-a-cancelled-prompt",
    "queues-settings-behind-the-turn",
    "rounds-large-ids-late",
    "turns-ids-into-strings",
    "waits-for-another-answer",
    "writes-latin1",
}
"""Faults for which the kit has to wait in vain, and which are not given long."""


class Fault(NamedTuple):
    assertion: str
    name: str
    sentence: str


@cache
def faults() -> list[Fault]:
    """All faulty agents, as their own list says."""
    return [Fault(*columns) for columns in listed_by(FAULTY)]


def unusual_agents() -> dict[str, list[str]]:
    """All agents that are right in an unusual way, with the assertions that might misjudge them."""
    return {name: assertions.split(",") for name, assertions, _ in listed_by(UNUSUAL)}


def listed_by(command: list[str]) -> list[list[str]]:
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split("\t") for line in listed]


def named_by_assertion() -> list[Fault]:
    return [fault for fault in faults() if fault.assertion in {each.id for each in catalogue("agent")}]


def check(command: list[str], directory: Path, *ids: str, timeout: float = 5.0) -> ConformanceReport:
    candidate = candidate_for(command, directory, *ids, timeout=timeout)
    return asyncio.run(examine(candidate, [each for each in catalogue("agent") if not ids or each.id in ids]))


def candidate_for(command: list[str], directory: Path, *ids: str, timeout: float = 5.0) -> Candidate:
    project, home = directory / "project", directory / "home"
    project.mkdir()
    home.mkdir()
    wants_login = bool(ids) and set(ids) <= LOGIN and not WANTS_NONE & set(command)
    return Candidate(
        command,
        project.resolve(),
        env={"MODEL_AGENT_HOME": str(home)} | ({"MODEL_AGENT_AUTH": "1"} if wants_login else {}),
        timeout=timeout,
        startup_timeout=4 * timeout,
        auth="key" if wants_login else None,
        prompt="Use every feature",
        slow_prompt="Be slow",
    )


def failures(report: ConformanceReport) -> dict[str, str]:
    return {each.assertion.id: each.message for each in report.results if each.outcome == "failed"}


def result(report: ConformanceReport, id: str) -> AssertionResult:
    return next(each for each in report.results if each.assertion.id == id)


@pytest.mark.long
def test_a_right_agent_passes_everything_and_nothing_is_skipped(tmp_path: Path) -> None:
    report = check(MODEL, tmp_path)

    assert failures(report) == {}
    skipped = {each.assertion.id for each in report.results if each.outcome == "skipped"}
    assert skipped <= {"A18"}
    assert report.seconds < 60


def test_a_right_agent_that_wants_a_login_passes_as_well(tmp_path: Path) -> None:
    report = check(MODEL, tmp_path, *LOGIN)

    assert {each.assertion.id for each in report.results if each.outcome == "passed"} == LOGIN


@pytest.mark.parametrize("fault", named_by_assertion(), ids=lambda fault: f"{fault.assertion}-{fault.name}")
def test_a_fault_is_caught_by_the_assertion_that_names_it(fault: Fault, tmp_path: Path) -> None:
    timeout = 1.0 if fault.name in MUTE else 5.0
    report = check([*FAULTY, fault.name], tmp_path, fault.assertion, timeout=timeout)

    judged = result(report, fault.assertion)
    assert judged.outcome == "failed", f"{fault.sentence} {judged.message}"
    assert judged.message


def test_an_agent_that_hangs_up_on_what_is_illegal_is_not_blamed_for_the_greeting(tmp_path: Path) -> None:
    report = check([*FAULTY, "dies-before-the-greeting"], tmp_path, "A01", "A07")

    assert [each.assertion.id for each in report.results if each.standing != "passed"] == ["A07"]
    assert not report.fails


@pytest.mark.parametrize(("name", "assertions"), unusual_agents().items())
def test_a_right_agent_with_ways_of_its_own_fails_nothing(
    name: str, assertions: list[str], tmp_path: Path
) -> None:
    report = check([*UNUSUAL, name], tmp_path, *assertions)

    assert failures(report) == {}


def test_two_messages_that_read_like_one_are_noted(tmp_path: Path) -> None:
    judged = result(check([*UNUSUAL, "says-two-messages-in-a-row"], tmp_path, "A51"), "A51")

    assert judged.outcome == "passed"
    assert judged.notes == ("the id changes in the midst of a sentence",)


@pytest.mark.parametrize("name", ["rounds-large-ids", "rounds-large-ids-late"])
def test_an_id_that_javascript_cannot_hold_is_no_mandatory_failure(name: str, tmp_path: Path) -> None:
    judged = result(check([*FAULTY, name], tmp_path, "A12", timeout=1.0), "A12")

    assert judged.outcome == "failed"
    assert "was answered as 9007199254740992" in judged.message
    assert not judged.is_mandatory_failure


def test_what_several_assertions_need_is_done_once(tmp_path: Path) -> None:
    candidate = candidate_for(MODEL, tmp_path)

    async def examine_at_once() -> None:
        probes = [
            each.probe for each in catalogue("agent") if each.id in ("A37", "N01", "N02") and each.probe
        ]
        await asyncio.gather(*(probe(candidate) for probe in probes))

    asyncio.run(examine_at_once())

    assert [len(trace.exchanges("session/new")) for trace in candidate.traces] == [1, 0, 0]


def test_every_assertion_has_caught_something() -> None:
    caught = {fault.assertion for fault in faults()}
    assert {each.id for each in catalogue("agent")} - caught == set()


def test_a_late_update_of_bookkeeping_is_a_note_and_no_fault(tmp_path: Path) -> None:
    late = next(fault for fault in faults() if fault.assertion == "A45-note")

    judged = result(check([*FAULTY, late.name], tmp_path, "A45"), "A45")

    assert judged.outcome == "passed"
    assert any("usage_update" in note for note in judged.notes)


@pytest.mark.parametrize("name", [fault.name for fault in faults() if fault.assertion in ("alive", "none")])
def test_an_agent_that_hangs_dies_or_floods_does_not_hold_up_the_kit(name: str, tmp_path: Path) -> None:
    report = check([*FAULTY, name], tmp_path, "A01", "A21", "A41", "A44", "A53", timeout=1.0)

    assert len(report.results) == 5
    assert report.seconds < 60
