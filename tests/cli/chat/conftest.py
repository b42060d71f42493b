"""Agents in a few lines for the tests of `coupler chat`, and the coder with a scripted model."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.stage import Scripted
from coder.script import ScriptedModel
from labs.langchain.model_server import ModelServer

WAIT = """
import time
def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.005)
"""


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Callable[[str], Scripted]]:
    """Agents written in a few lines, none of which may be left running."""
    made: list[Scripted] = []

    def make(body: str) -> Scripted:
        made.append(Scripted(tmp_path, len(made), WAIT + textwrap.dedent(body)))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """A model behind an address."""
    with ModelServer([]) as server:
        yield ScriptedModel(server)
