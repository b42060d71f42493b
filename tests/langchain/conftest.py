"""The obedient agent, served once for all tests of a module that have the same capabilities."""

import json

import pytest

from agent.steps import leave
from labs.langchain.acting import HERE, introduced, surroundings
from labs.langchain.desk import Desk
from labs.langchain.ordering import order, stages
from raw_client import serve

__all__ = ["order", "stages"]

OBEDIENT = HERE / "graphs" / "obedient.py"


@pytest.fixture(autouse=True)
def has_all_imported(langchain_loaded):
    """Processes that are started begin with LangChain imported."""
    with langchain_loaded.used():
        yield


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """One process for each set of capabilities; tests have sessions of their own in it."""
    started = {}

    def client_with(**capabilities):
        key = json.dumps(capabilities)
        if key not in started:
            home = tmp_path_factory.mktemp("home")
            started[key] = serve(OBEDIENT, env=surroundings(home))
            introduced(started[key], **capabilities)
        started[key]._held.clear()
        return started[key]

    yield client_with
    for client in started.values():
        with client:
            leave(client)


@pytest.fixture
def desk(clients, tmp_path):
    def open_desk(*servers, cwd=tmp_path, **capabilities):
        return Desk(clients(**capabilities), cwd, *servers)

    return open_desk
