"""`kill -9` again and again: what was answered is there, whole, once, in order; the rest as far as it got."""

import random

import pytest

from labs.kills import MOMENTS, WITNESS, KilledSessions
from raw_client import COUPLER

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]

KILLS = 25


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_answered_is_lost_doubled_or_moved_by_a_kill(app, tmp_path, moment):
    killed = KilledSessions([*COUPLER, "serve", str(app(WITNESS))], tmp_path, moment, random.Random())

    for _ in range(KILLS):
        killed.kill_one()

    killed.end()
    assert killed.prompts > KILLS
