"""Scripted agents for workflows, looked over when the test has ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.stage import Scripted
from workflow.agent_stage import Script


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Make an agent of a few lines; see `client/agents/bare.py` for its words."""
    made: list[Scripted] = []
    numbers = itertools.count(1)

    def make(body: str) -> Scripted:
        made.append(Scripted(tmp_path, next(numbers), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()
