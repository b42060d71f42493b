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

from coupler.inspect.conformance.assertion import catalogue
from coupler.inspect.conformance.candidate import Candidate
from coupler.inspect.conformance.examination import examine
from coupler.inspect.conformance.report import Report, Result

pytestmark = pytest.mark.usefixtures("unmeasured")

AGENTS = Path(__file__).parent / "agents"
MODEL = [sys.executable, str(AGENTS / "model.py")]
FAULTY = [sys.executable, str(AGENTS / "faulty.py")]

LOGIN = {"A16", "A17", "A18", "A19"}
"""What is about logging in, and so needs an agent that wants it."""
WANTS_NONE = {"logs-out-unadvertised"}
"""Faults of an agent that can be used without."""


MUTE = {
    "breaks-its-lines",
    "does-one-thing-at-a-time",
    "ignores-cancels",
    "never-answers-a-cancelled-prompt",
    "queues-settings-behind-the-turn",
    "turns-ids-into-strings",
    "waits-for-another-answer",
    "writes-latin1",
}
"""Faults for which the kit has to wait in vain, and which are not given long."""


class Fault(NamedTuple):
    assertion: str
    name: str
    also: frozenset[str]
    sentence: str


@cache
def faults() -> list[Fault]:
    """All faulty agents, as their own list says."""
    listed = subprocess.run(FAULTY, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [line.split("\t") for line in listed]
    return [Fault(id, name, frozenset(also.split(",")), sentence) for id, name, also, sentence in found]


def named_by_assertion() -> list[Fault]:
    return [fault for fault in faults() if fault.assertion in {each.id for each in catalogue("agent")}]


def check(command: list[str], directory: Path, *ids: str, timeout: float = 5.0) -> Report:
    project, home = directory / "project", directory / "home"
    project.mkdir()
    home.mkdir()
    wants_login = bool(ids) and set(ids) <= LOGIN and not WANTS_NONE & set(command)
    candidate = Candidate(
        command,
        project.resolve(),
        env={"MODEL_AGENT_HOME": str(home)} | ({"MODEL_AGENT_AUTH": "1"} if wants_login else {}),
        timeout=timeout,
        startup_timeout=4 * timeout,
        auth="key" if wants_login else None,
        prompt="Use every feature",
        slow_prompt="Be slow",
    )
    return asyncio.run(examine(candidate, [each for each in catalogue("agent") if not ids or each.id in ids]))


def failures(report: Report) -> dict[str, str]:
    return {each.assertion.id: each.message for each in report.results if each.outcome == "failed"}


def result(report: Report, id: str) -> Result:
    return next(each for each in report.results if each.assertion.id == id)


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
