"""Scripted agents for every test of the client, looked over when the test has ended."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.stage import Scripted
from coupler.client.quirks import Usual


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[str], Scripted]]:
    """Make an agent of a few lines; see `agents/bare.py` for its words."""
    made: list[Scripted] = []
    numbers = itertools.count(1)

    def make(body: str) -> Scripted:
        made.append(Scripted(tmp_path, next(numbers), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unseen(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[None]:
    """The client prints nothing, and neither asyncio nor the wire has an error to log."""
    yield
    problems = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.levelno >= logging.ERROR and record.name.startswith(("asyncio", "coupler.wire"))
    ]
    assert not problems
    assert capfd.readouterr() == ("", "")


@pytest.fixture(autouse=True)
def no_prompt_waits_for_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most scripted agents never ask for the tools that they are given; tests of the wait say their own."""
    monkeypatch.setattr(Usual, "tools_wait", 0.0)
