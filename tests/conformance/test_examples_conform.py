"""The whole kit is passed by the surveyor, and by the reference agent, which leaves nothing of it out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coupler.conformance.assertion import catalogue
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine
from coupler.conformance.report import ConformanceReport
from raw_client import COUPLER

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick_starts", "unmeasured")]

EXAMPLES = Path(__file__).parents[2] / "examples"

DOES_NOT_APPLY = {
    "A18",  # the agent wants no login
    "A42",  # the agent takes every kind of block
}


def check(example: str, directory: Path, **prompts: str) -> ConformanceReport:
    command = [*COUPLER, "serve", str(EXAMPLES / example)]
    return asyncio.run(examine(Candidate(command, directory.resolve(), **prompts), catalogue("agent")))


def results(report: ConformanceReport, outcome: str) -> dict[str, str]:
    return {each.assertion.id: each.message for each in report.results if each.outcome == outcome}


def test_the_reference_agent_passes_everything_that_applies_to_it(tmp_path: Path) -> None:
    report = check("reference.py", tmp_path, prompt="Use every feature", slow_prompt="Be slow")

    assert results(report, "failed") == {}
    skipped = results(report, "skipped")
    assert skipped.keys() == DOES_NOT_APPLY, skipped


def test_the_surveyor_passes_everything_that_applies_to_it(tmp_path: Path) -> None:
    report = check("surveyor.py", tmp_path)

    assert results(report, "failed") == {}
    assert "A25" in results(report, "passed"), results(report, "skipped")
    assert report.seconds < 60
