"""Coders that are served to tests, and projects for them to work in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import forked
from coder.script import ScriptedModel
from coder.served_coder import Coder, Coders
from coder.workers import Workers
from labs.langchain.desk import Desk
from labs.langchain.model_server import ModelServer

HAS_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def scripted_model() -> Iterator[ScriptedModel]:
    """One model behind an address."""
    with ModelServer([]) as server:
        yield ScriptedModel(server)


@pytest.fixture(scope="session")
def coders(
    langchain_loaded: forked.Loaded, scripted_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Coders]:
    """The processes that tests share."""
    homes = (tmp_path_factory.mktemp(f"coder-home-{number}") for number in itertools.count(1))
    processes = Coders(homes, scripted_model)
    yield processes
    processes.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which test has failed: what it leaves undone then is no second failure."""
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


@pytest.fixture
def coder(request: pytest.FixtureRequest, coders: Coders, langchain_loaded: forked.Loaded) -> Iterator[Coder]:
    """Sessions with the coder, each with a script for its model; the script is played to its end."""
    with ExitStack() as stack, langchain_loaded.used():
        made = Coder(coders, stack)
        coders.model.plays()
        yield made
        if HAS_FAILED in request.node.stash:
            return
        made.close()
        assert coders.model.is_over, "the model was asked less or more often than the test thinks"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory to work in."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A directory that passes for a repository."""
    directory = tmp_path / "repository"
    (directory / ".git").mkdir(parents=True)
    return directory


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, langchain_loaded: forked.Loaded) -> Iterator[Workers]:
    """Processes that do as they are told with the coder's tools."""
    made = Workers(tmp_path_factory, langchain_loaded)
    yield made
    made.close()


@pytest.fixture
def desk(workers: Workers, project: Path) -> Callable[..., Desk]:
    """A session in the project, with somebody who answers what is asked; its home is `at.home`."""

    def open_desk(**surroundings: Any) -> Desk:
        client, home = workers.client(**surroundings)
        at = Desk(client, project)
        at.home = home
        return at

    return open_desk
