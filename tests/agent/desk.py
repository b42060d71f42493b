"""An agent on a tape: one process, one loop, no bytes lost, and every tick under control."""

import itertools
import json
from typing import Any, Self

from coupler.agent.connection import AgentConnection
from coupler.agent.factory import AgentFactory
from schema.conformance import check_frame
from wire.stage import Tape, until

Frame = dict[str, Any]


class Desk:
    """A client's hands on an `AgentConnection`; every frame is checked against the schema."""

    def __init__(self, target: Any) -> None:
        made = AgentFactory.of(target)

        async def loaded() -> AgentFactory:
            return made

        self.tape = Tape()
        self.connection = AgentConnection(self.tape, made.introduction, loaded)
        self._ids = itertools.count(1)
        self._methods: dict[Any, str] = {}
        self._checked = 0
        self._answered_requests: set[int] = set()

    @classmethod
    async def open(cls, target: Any, **capabilities: Any) -> Self:
        """Connect and say hello."""
        desk = cls(target)
        desk.connection.open()
        info = {"name": "zed", "version": "1"}
        params = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
        hello = desk.request("initialize", params)
        await desk.answer(hello)
        return desk

    async def new_session(self) -> str:
        answer = await self.answer(self.request("session/new", {"cwd": "/", "mcpServers": []}))
        return str(answer["result"]["sessionId"])

    def prompt(self, session: str, text: str = "") -> int:
        return self.request(
            "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        )

    def request(self, method: str, params: Any) -> int:
        id = next(self._ids)
        self._methods[id] = method
        self.send({"id": id, "method": method, "params": params})
        return id

    def notify(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    def send(self, *frames: Frame) -> None:
        lines = (json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)
        self.tape.receiver.data_received(b"".join(lines))

    def leave(self) -> None:
        """The client's end of input; turns are cancelled as `serve` does."""
        self.tape.receiver.input_ended(None)
        for session in self.connection._sessions:
            session.cancel(1.0)

    async def answer(self, id: int, *, permissions: list[str] | None = None) -> Frame:
        """The answer to a request; the agent's questions are answered with these options in turn."""
        options = itertools.cycle(permissions or ["reject_once"])

        def is_there() -> bool:
            for frame in self.frames():
                if (
                    frame.get("method") == "session/request_permission"
                    and frame["id"] not in self._answered_requests
                ):
                    self._answered_requests.add(frame["id"])
                    outcome = {"outcome": "selected", "optionId": next(options)}
                    self.send({"id": frame["id"], "result": {"outcome": outcome}})
            return any("method" not in frame and frame["id"] == id for frame in self.frames())

        await until(is_there)
        return next(frame for frame in self.frames() if "method" not in frame and frame["id"] == id)

    def around(self, id: int) -> tuple[Frame, list[Frame], list[Frame]]:
        """The answer, the updates before it, and whatever followed it."""
        frames = self.frames()
        place = next(i for i, frame in enumerate(frames) if "method" not in frame and frame["id"] == id)
        before = [
            frame["params"]["update"] for frame in frames[:place] if frame.get("method") == "session/update"
        ]
        return frames[place], before, frames[place + 1 :]

    def frames(self) -> list[Frame]:
        """Everything the agent has sent so far."""
        frames = self.tape.messages
        for frame in frames[self._checked :]:
            check_frame(frame, sent_by="agent", method_of=self._methods)
        self._checked = len(frames)
        return frames

    async def close(self) -> None:
        await self.connection.finish(1.0)
