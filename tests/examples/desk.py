"""An editor's session with an example: prompts are sent, and what is asked meanwhile is answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from labs.langchain.acting import by_id
from raw_client import Frame, RawClient, is_answer_to, texts

EXAMPLES = Path(__file__).parents[2] / "examples"


def chooses(option: str) -> Frame:
    """The answer to a dialog."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


class Desk:
    """One session. `asked` and `updates` are those of the last prompt."""

    def __init__(self, client: RawClient, cwd: Path, *servers: Frame) -> None:
        self.client = client
        answer = client.call("session/new", {"cwd": str(cwd), "mcpServers": list(servers)})
        self.id = answer["result"]["sessionId"]
        self.asked: list[Frame] = []
        self.updates: list[Frame] = []

    def says(self, prompt: str, **replies: Frame | Callable[[Frame], Any]) -> str:
        """What is said to a prompt; `replies` are results by the last part of a method's name."""
        self.asked, self.updates = [], []
        request = self.client.prompt_request(self.id, prompt)
        self.client.send(request)
        while not is_answer_to(frame := self.client.read(), request["id"]):
            if "id" in frame:
                self.asked.append(frame)
                reply = replies[frame["method"].rpartition("/")[2]]
                result = reply(frame["params"]) if callable(reply) else reply
                self.client.send({"id": frame["id"], "result": result})
            elif frame["method"] == "session/update":
                self.updates.append(frame["params"]["update"])
        assert frame.get("result", {}).get("stopReason") == "end_turn", frame
        return texts(self.updates)

    @property
    def calls(self) -> list[Frame]:
        """The tool calls as they are shown in the end."""
        return [*by_id(self.updates).values()]

    def questions(self, method: str) -> list[Frame]:
        """What was asked by this method."""
        return [frame["params"] for frame in self.asked if frame["method"].endswith(method)]
