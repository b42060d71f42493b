"""What every test gets: a home of its own, so that no test sees what another start remembered."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import forked
from coupler.redaction.sources import secret_variables
from coupler.runtime import logs

pytest_plugins = ["pytester"]

# A shared machine may pause at any moment; that is no property of the code.
settings.register_profile("coupler", deadline=None)
settings.load_profile("coupler")


def pytest_configure() -> None:
    """Hear Ctrl-C, and let the programs of tests hear it: what a shell runs in its background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in secret_variables(os.environ):
        del os.environ[name]  # of whoever runs the tests; a command that fails would tell of it


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no worker is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Look for no garbage while modules are imported: there is hardly any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what was imported out of later garbage collections, which some tests ask for a hundred times."""
    gc.enable()
    _keep_out_of_collections()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do the same with what the tests of a file have imported."""
    if nextitem is not None and nextitem.path != item.path:
        _keep_out_of_collections()


def _keep_out_of_collections() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logs_are_counted_anew() -> None:
    """No test's log is short because an earlier one has logged the same."""
    logs.limit_logs().start_anew()


@pytest.fixture(scope="session")
def coupler_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Places for homes, which are made by whoever needs one: most tests do not."""
    directory = tmp_path_factory.mktemp("coupler-homes")
    return (directory / str(number) for number in itertools.count(1))


@pytest.fixture(autouse=True)
def coupler_home(coupler_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Coupler keeps its state during the test."""
    home = next(coupler_homes)
    monkeypatch.setenv("COUPLER_HOME", str(home))
    monkeypatch.delenv("COUPLER_LOG", raising=False)
    return home


@pytest.fixture(autouse=True)
def nothing_learned() -> Iterator[None]:
    """Agents in this process share what they know to be secret; a test's tokens are none in the next one."""
    yield
    known_secrets = sys.modules.get("coupler.redaction.known_secrets")
    if known_secrets is not None:
        known_secrets._learned.clear()


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No coverage of the processes that a test starts: measuring hundreds of little ones takes minutes."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)


@pytest.fixture
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the product starts is a fork, too: the conformance kit starts an agent some sixty times."""
    monkeypatch.setattr("coupler.runtime.process._popen", forked.start_child)


@pytest.fixture(scope="session")
def langchain_loaded() -> Iterator[forked.Loaded]:
    """A process that has LangChain imported, once for all that tests start while it is used."""
    from labs.langchain.loaded import loaded

    process = loaded()
    yield process
    process.close()
