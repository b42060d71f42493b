"""Scripted agents behind a relay, and editors made of pipes in front of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.stage import Scripted
from raw_client import COUPLER, RawClient

Serve = Callable[..., RawClient]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[str], Scripted]]:
    """Make an agent of a few lines; see `client/agents/bare.py` for its words."""
    made: list[Scripted] = []
    numbers = itertools.count(1)

    def make(body: str) -> Scripted:
        made.append(Scripted(tmp_path, next(numbers), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


@pytest.fixture
def relay(tmp_path: Path) -> Serve:
    """A client of `coupler serve [OPTIONS] -- COMMAND…`."""

    def serve(agent: Scripted | list[str], *options: str, **kwargs: Any) -> RawClient:
        command = agent.command if isinstance(agent, Scripted) else agent
        return _Leaving(*COUPLER, "serve", *options, "--", *command, **kwargs)

    return serve


class _Leaving(RawClient):
    """Leaves by closing the input, as editors do: so the agent behind ends too."""

    def __exit__(self, *problem: object) -> None:
        if self.process.poll() is None and not self.process.stdin.closed:  # type: ignore[union-attr]
            self.close_stdin()
            self.wait()
        super().__exit__(*problem)
