"""Agents for the tests: in a file, served by the real command, and gone in good order afterwards."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agent.steps import leave, still_serves
from raw_client import RawClient, serve

Start = Callable[..., RawClient]


@pytest.fixture
def app(tmp_path: Path) -> Callable[..., Path]:
    """Writes the source of an agent into app.py."""

    def write(source: str, name: str = "app.py") -> Path:
        path = tmp_path / name
        path.write_text(dedent(source))
        return path

    return write


@contextmanager
def starting(see_off: Callable[[RawClient], None]) -> Iterator[Start]:
    """Gives what starts `coupler serve TARGET`; in the end each process is seen off, then killed."""
    started: list[RawClient] = []
    with ExitStack() as stack:

        def start(target: str | Path, *options: str, **keywords: Any) -> RawClient:
            client = stack.enter_context(serve(target, *options, **keywords))
            started.append(client)
            return client

        yield start
        for client in started:
            see_off(client)


@pytest.fixture
def start_target() -> Iterator[Start]:
    """Starts `coupler serve TARGET`; each process must end by itself when the client leaves."""
    with starting(leave) as start:
        yield start


@pytest.fixture
def start(app: Callable[..., Path], start_target: Start) -> Start:
    """Starts `coupler serve` on this source."""
    return lambda source, *options, **keywords: start_target(app(source), *options, **keywords)


@pytest.fixture
def converse(start: Start) -> Callable[..., tuple[RawClient, str]]:
    """Starts the source, says hello and opens a session."""

    def converse(source: str, *options: str, **capabilities: Any) -> tuple[RawClient, str]:
        client = start(source, *options)
        client.initialize(**capabilities)
        return client, client.new_session()

    return converse


@pytest.fixture(scope="module")
def shared_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RawClient]]:
    clients: dict[str, RawClient] = {}
    with ExitStack() as stack:

        def client_of(source: str, **capabilities: Any) -> RawClient:
            key = json.dumps([source, capabilities])
            if key not in clients:
                directory = tmp_path_factory.mktemp("shared")
                (directory / "app.py").write_text(dedent(source))
                client = serve(directory / "app.py", env={"COUPLER_HOME": str(directory)})
                clients[key] = stack.enter_context(client)
                client.initialize(**capabilities)
            return clients[key]

        yield client_of
        for client in clients.values():
            leave(client)


@pytest.fixture
def share(shared_clients: Callable[..., RawClient]) -> Callable[..., tuple[RawClient, str]]:
    """Like `converse`, for tests that differ in one prompt only: they have a session each in one process."""

    def share(source: str, **capabilities: Any) -> tuple[RawClient, str]:
        client = shared_clients(source, **capabilities)
        still_serves(client)
        client._held.clear()
        return client, client.new_session()

    return share
