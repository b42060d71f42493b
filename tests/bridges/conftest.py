"""The obedient agent, served once for all tests of a module that have the same capabilities."""

import json
from pathlib import Path

import pytest

from agent.steps import leave
from bridges.desk import Desk
from bridges.ordering import order, stages
from raw_client import serve

__all__ = ["order", "stages"]

HERE = Path(__file__).parent
OBEDIENT = HERE / "graphs" / "obedient.py"

HELLO_PATIENCE = 4
"""How many times the usual patience a first start may need."""


def say_hello(client, **capabilities):
    """The first start of a target imports it before it answers, which takes a while on a busy machine."""
    request = client.request("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})
    client.send(request)
    for _ in range(HELLO_PATIENCE):
        try:
            return client.answer_to(request)
        except AssertionError as error:
            late = error
    raise late


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """One process for each set of capabilities; tests have sessions of their own in it."""
    started = {}

    def client_with(**capabilities):
        key = json.dumps(capabilities)
        if key not in started:
            home = tmp_path_factory.mktemp("home")
            env = {"COUPLER_HOME": str(home), "PYTHONPATH": str(HERE.parent)}
            started[key] = serve(OBEDIENT, env=env)
            say_hello(started[key], **capabilities)
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
