"""`kill -9` at any moment, then `coupler resume`: nothing that is kept runs again, and nothing is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from labs.kills import KilledRuns

RUNS = 300


@pytest.mark.long
@pytest.mark.usefixtures("unmeasured")
def test_no_kept_step_runs_again_and_none_is_lost(tmp_path: Path) -> None:
    killed = KilledRuns(tmp_path, random.Random())

    for _ in range(RUNS):
        killed.run_one()

    # How many come before the run is begun, or after its end, depends on the machine.
    assert killed.kills > RUNS / 4
