"""Agents made to order, over stdio: one process for many of them, and somebody who answers what they ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.steps import update_of
from labs.langchain.acting import HERE, Stage, by_id
from raw_client import Frame, is_answer_to, texts

TO_ORDER = HERE / "graphs" / "to_order.py"
FORMS = {"elicitation": {"form": {}}}

Reply = Callable[[Frame], Any]


class Order:
    """A session with an agent, and what came of its last prompt."""

    def __init__(self, stage: Stage, cwd: Path, source: str, servers: Sequence[Frame] = ()) -> None:
        (cwd / "order.py").write_text(source)
        self.client, self.id = stage.session(cwd, *servers)
        self.cwd = cwd
        self.asked: list[Frame] = []
        self.updates: list[Frame] = []
        self.answer: Frame = {}

    def does(self, *calls: tuple[str, dict[str, Any]], reply: Any = "allow_once") -> list[Any]:
        """Have tools called; what the model was answered."""
        answered: list[Any] = json.loads(self.says(json.dumps(calls), reply=reply))
        return answered

    def tells(self) -> Frame:
        """What the model was given."""
        told: Frame = json.loads(self.says("tell"))
        return told

    def says(self, text: str | list[Frame], *, reply: Any = "allow_once") -> str:
        """Prompt with a text or with content blocks; the last message of the answer."""
        blocks = [{"type": "text", "text": text}] if isinstance(text, str) else text
        request = self.client.request("session/prompt", {"sessionId": self.id, "prompt": blocks})
        self.client.send(request)
        self.asked, self.updates = [], []
        while not is_answer_to(frame := self.client.read(), request["id"]):
            if "id" in frame:
                self.asked.append(frame)
                self.client.send({"id": frame["id"], "result": _result(reply, frame)})
            else:
                self.updates.append(update_of(frame))
        self.answer = frame
        assert frame.get("result", {}).get("stopReason") == "end_turn", frame
        chunks = [update for update in self.updates if update["sessionUpdate"] == "agent_message_chunk"]
        return texts([chunk for chunk in chunks if chunk["messageId"] == chunks[-1]["messageId"]])

    def set_mode(self, mode: str) -> Frame:
        return self.client.call("session/set_mode", {"sessionId": self.id, "modeId": mode})

    @property
    def calls(self) -> dict[str, Frame]:
        """The tool calls as a client shows them in the end."""
        return by_id(self.updates)

    @property
    def plans(self) -> list[list[tuple[str, str]]]:
        """The plans that were shown: text and status of each entry."""
        return [
            [(entry["content"], entry["status"]) for entry in update["entries"]]
            for update in self.updates
            if update["sessionUpdate"] == "plan"
        ]


def offered(question: Frame) -> dict[str, str]:
    """The options of a permission dialog: their ids and kinds."""
    return {option["optionId"]: option["kind"] for option in question["params"]["options"]}


def selected(option: str) -> Frame:
    """The choice of an option."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


def accepted(**content: Any) -> Frame:
    """A form that was filled in."""
    return {"action": "accept", "content": content}


def _result(reply: Any, frame: Frame) -> Any:
    if callable(reply):
        reply = reply(frame)
    return selected(reply) if isinstance(reply, str) else reply


Ordering = Callable[..., Order]


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], Stage]]:
    """The processes: one for clients with forms, one for others; they are started when they are needed."""
    started: dict[bool, Stage] = {}

    def stage(forms: bool) -> Stage:
        if forms not in started:
            home = tmp_path_factory.mktemp("home")
            started[forms] = Stage(TO_ORDER, home, **(FORMS if forms else {}))
        return started[forms]

    yield stage
    for each in started.values():
        each.close()


@pytest.fixture
def order(stages: Callable[[bool], Stage], tmp_path: Path) -> Iterator[Ordering]:
    """Makes a session with an agent to order."""
    made: list[Order] = []

    def make(
        source: str, *, forms: bool = False, cwd: Path = tmp_path, servers: Sequence[Frame] = ()
    ) -> Order:
        made.append(Order(stages(forms), cwd, source, servers))
        return made[-1]

    yield make
    for each in made:
        each.client.call("session/close", {"sessionId": each.id})
