"""Served graphs pass the whole conformance kit: made by LangChain, by deepagents, and by hand."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import coupler
import forked
from coupler.conformance.assertion import catalogue
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine
from raw_client import COUPLER

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick_starts", "unmeasured")]

GRAPHS = Path(__file__).parents[1] / "labs" / "langchain" / "graphs"
LANGCHAIN = Path(coupler.__path__[0]) / "langchain"
TIMEOUT = 30.0
"""Seconds for an answer: nothing here is about how soon it comes."""

MODULES = ("deepagents", "langchain.agents", "labs.langchain.graphs.doing_all", "coupler.acp")
LATER = "deepagents.profiles._builtin_profiles"
"""What deepagents imports when it makes an agent."""

NEVER_APPLIES = {
    "A18",  # the agents want no login
    "A42",  # they take every kind of block
}
NO_OPTIONS = {"A35", "A36", "A38", "A39", "A40"}
NO_PERMISSION = {"A54", "A58"}
DOES_NOT_APPLY = {
    "created": set[str](),
    # no terminal of the client's, no question, and no path: its files are in the graph's state
    "deep": NO_OPTIONS | {"A23", "A57", "A59"},
    "plain": NO_OPTIONS | NO_PERMISSION | {"A49", "A57"},  # nor a plan
}


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> Iterator[None]:
    """The kit starts each agent some sixty times; what it starts is a fork that has LangChain loaded."""
    own = [module.name for module in pkgutil.walk_packages([str(LANGCHAIN)], "coupler.langchain.")]
    with forked.having_loaded(*MODULES, LATER, *own):
        yield


@pytest.fixture
def has_all_imported() -> None:
    """Nothing but what is imported once for this module."""


@pytest.mark.parametrize("graph", DOES_NOT_APPLY)
def test_a_served_graph_keeps_to_every_sentence_that_applies_to_it(graph: str, tmp_path: Path) -> None:
    command = [*COUPLER, "serve", str(GRAPHS / f"{graph}.py")]
    served = Candidate(
        command, tmp_path, timeout=TIMEOUT, startup_timeout=TIMEOUT, prompt="count", slow_prompt="be slow"
    )

    report = asyncio.run(examine(served, catalogue("agent")))

    outcomes = {
        outcome: {each.assertion.id: each.message for each in report.results if each.outcome == outcome}
        for outcome in ("failed", "skipped")
    }
    assert outcomes["failed"] == {}
    assert outcomes["skipped"].keys() == NEVER_APPLIES | DOES_NOT_APPLY[graph], outcomes["skipped"]
