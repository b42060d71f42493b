"""What an editor in front of a relay does, as the tests write it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raw_client import Frame, RawClient, is_answer_to


def answering(client: RawClient, request: Frame, answer: Callable[[Frame], Any]) -> list[Frame]:
    """Send a request and answer what comes meanwhile; all frames up to the request's own answer."""
    client.send(request)
    frames: list[Frame] = []
    while not frames or not is_answer_to(frames[-1], request["id"]):
        frames.append(frame := client.read())
        if "method" in frame and "id" in frame:
            client.send({"id": frame["id"], **answer(frame)})
    return frames


def updates(frames: list[Frame], kind: str) -> list[Frame]:
    told = [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
    return [update for update in told if update["sessionUpdate"] == kind]


def chosen(option: str) -> Callable[[Frame], Any]:
    return lambda frame: {"result": {"outcome": {"outcome": "selected", "optionId": option}}}
