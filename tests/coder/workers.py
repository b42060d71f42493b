"""The coder's own tools, called by an agent that does as it is told, in the real command over real pipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import forked
from agent.steps import leave
from labs.langchain.acting import introduced
from raw_client import RawClient, serve

HERE = Path(__file__).parent
WORKER = HERE / "graphs" / "worker.py"


class Workers:
    """One process for each set of capabilities and surroundings; tests have sessions of their own in it."""

    def __init__(self, homes: pytest.TempPathFactory, loaded: forked.Loaded) -> None:
        self._homes = homes
        self._loaded = loaded
        self._started: dict[str, tuple[RawClient, Path]] = {}

    def client(
        self, *, config: str = "", env: dict[str, str] | None = None, **capabilities: Any
    ) -> tuple[RawClient, Path]:
        """A client of such a process, and the home of it."""
        key = json.dumps([config, env, capabilities])
        if key not in self._started:
            self._started[key] = self.start(config=config, env=env, **capabilities)
        client, home = self._started[key]
        client._held.clear()
        return client, home

    def start(
        self, *, config: str = "", env: dict[str, str] | None = None, **capabilities: Any
    ) -> tuple[RawClient, Path]:
        """A process of one's own, which whoever wants it has to end."""
        home = self._homes.mktemp("worker")
        (home / "coupler.toml").write_text(config)
        with self._loaded.used():
            client = serve(WORKER, env={"COUPLER_HOME": str(home), **(env or {})})
        introduced(client, **capabilities)
        return client, home

    def close(self) -> None:
        for client, _ in self._started.values():
            with client:
                leave(client)
