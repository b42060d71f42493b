"""The coder lives through a short day on each wire: everything goes wrong once, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from labs.coder_day import EVENTS, FAULTS, MODELS, Day, coder, processor_time
from labs.strict_model import StrictModel
from raw_client import COUPLER

pytestmark = pytest.mark.long

PROMPTS, STEPS = 2 * (len(EVENTS) + 1), 7
WINDOW = 20_000
"""Tokens that the model can read, so that there are several compactions."""


@pytest.mark.parametrize("wire", MODELS)
def test_a_session_goes_on_whatever_goes_wrong_in_a_day(tmp_path: Path, wire: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with StrictModel(processor_time) as model:
        day = Day(coder(tmp_path / "home", model.url, wire, WINDOW, COUPLER), project, model, PROMPTS, STEPS)
        asyncio.run(day.run())

    assert not day.failures
    assert (day.answered, day.lost) == (PROMPTS, 0)
    killed = [event for event in EVENTS if event.startswith("killed")]
    assert len(day.survived) == len(FAULTS)
    assert day.survived.count("killed") == len(killed)
    assert sum(asked.is_summary for asked in model.ledger.asked) >= 3
    assert len(model.ledger.refusals) >= 2, "what the server refused was mended"
