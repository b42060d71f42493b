"""Agents whose sessions outlive them: served, ended in one way or another, and served again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.conftest import app, converse, share, shared_clients
from agent.steps import leave
from raw_client import RawClient, serve

__all__ = ["app", "converse", "share", "shared_clients"]

Start = Callable[..., RawClient]


@pytest.fixture
def start_target() -> Iterator[Start]:
    """Starts `coupler serve TARGET`; what a test has not ended itself must end well by itself."""
    started: list[RawClient] = []
    with ExitStack() as stack:

        def start(target: str | Path, *options: str, **keywords: Any) -> RawClient:
            client = stack.enter_context(serve(target, *options, **keywords))
            started.append(client)
            return client

        yield start
        for client in started:
            if client.process.poll() is None:
                leave(client)


@pytest.fixture
def start(app: Callable[..., Path], start_target: Start) -> Start:
    """Starts `coupler serve` on this source."""
    return lambda source, *options, **keywords: start_target(app(source), *options, **keywords)
