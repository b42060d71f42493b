"""Served graphs for tests: one process for many of them, which have a session each."""

from __future__ import annotations

import contextlib
from pathlib import Path

from agent.steps import leave, still_serves
from raw_client import Frame, RawClient, serve

HERE = Path(__file__).parent
IMPORTS = 6
"""How many times the usual patience the imports of LangChain may take."""

ACTOR = HERE / "graphs" / "actor.py"


def surroundings(home: Path | str) -> dict[str, str]:
    """The environment of a served graph: a home of its own, and the tests' own modules."""
    return {"COUPLER_HOME": str(home), "PYTHONPATH": str(HERE.parents[1])}


def introduced(client: RawClient, **capabilities: object) -> Frame:
    """Say hello to a client that may have much to import, on a machine that has much else to do."""
    info = {"name": "zed", "version": "1"}
    params = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
    request = client.request("initialize", params)
    client.send(request)
    for _ in range(IMPORTS):
        with contextlib.suppress(AssertionError):
            result: Frame = client.answer_to(request)["result"]
            return result
    raise AssertionError(f"no answer to initialize; stderr: {client.stderr.decode()}")


class Stage:
    """A process that serves a graph, with a new session for each test."""

    def __init__(self, target: Path | str, home: Path, *options: str, **capabilities: object) -> None:
        self.client: RawClient = serve(target, *options, env=surroundings(home))
        self.hello: Frame = introduced(self.client, **capabilities)

    def session(self, cwd: Path | str = "/", *servers: Frame) -> tuple[RawClient, str]:
        """The client, with nothing left to read of other tests, and a new session."""
        still_serves(self.client)
        self.client._held.clear()
        return self.client, self.client.new_session(str(cwd), *servers)

    def close(self) -> None:
        """End the process in good order."""
        with self.client:
            leave(self.client)


def by_id(updates: list[Frame]) -> dict[str, Frame]:
    """The tool calls in these updates as a client shows them in the end, in the order of their beginning."""
    calls: dict[str, Frame] = {}
    for update in updates:
        if update["sessionUpdate"].startswith("tool_call"):
            call = calls.setdefault(update["toolCallId"], {})
            call.update({key: value for key, value in update.items() if key != "sessionUpdate"})
    return calls


def statuses(updates: list[Frame], id: str) -> list[str]:
    """The statuses that a call went through."""
    of_call = [update for update in updates if update.get("toolCallId") == id and "status" in update]
    return [update["status"] for update in of_call]
