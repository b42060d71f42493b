"""Scripted agents for workflows, looked over when the test has ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.stage import Scripted
from coupler.client.quirks import Usual
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


@pytest.fixture(autouse=True)
def no_prompt_waits_for_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most scripted agents never ask for the tools that they are given; tests of the wait say their own."""
    monkeypatch.setattr(Usual, "tools_wait", 0.0)
