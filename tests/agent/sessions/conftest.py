"""Agents whose sessions outlive them: served, ended in one way or another, and served again."""

from collections.abc import Iterator

import pytest

from agent.conftest import Start, app, converse, share, shared_clients, start, starting
from agent.steps import leave
from raw_client import RawClient

__all__ = ["app", "converse", "share", "shared_clients", "start"]


@pytest.fixture
def start_target() -> Iterator[Start]:
    """Starts `coupler serve TARGET`; what a test has not ended itself must end well by itself."""
    with starting(_leave_if_it_runs) as start:
        yield start


def _leave_if_it_runs(client: RawClient) -> None:
    if client.process.poll() is None:
        leave(client)
