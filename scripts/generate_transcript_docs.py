"""Writes the transcript of docs/transcript.md: what a client and an agent really said.

The agent of the page is served by `coupler serve`, in a new directory and a new home. The client sends what
stands here, line by line, and waits for what the agent answers. What differs from run to run gets other
names: ids and the directory.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pages

AGENT = """\
from coupler import Turn, serve

async def agent(turn: Turn) -> None:
    await turn.say("I will note that.")
    async with turn.tool("Write todo.txt", kind="edit", path="todo.txt") as call:
        await call.diff("todo.txt", old=None, new=turn.text)
        if await call.permitted():
            await turn.files.write("todo.txt", turn.text)

serve(agent)
"""
SHOWN_DIRECTORY = "/home/ann/app"
KINDS = {"sessionId": "sess_", "messageId": "msg_", "toolCallId": "call_"}
CHANGING = re.compile(rf'"({"|".join(KINDS)})": "([^"]+)"')
"""Ids that are made anew each time."""
WIDTH = 112
SENT, RECEIVED = "→", "←"

Frame = dict[str, Any]
Line = tuple[str, Frame]


class Conversation:
    """A client of few words, which writes down both sides."""

    def __init__(self, to_agent: IO[str], from_agent: IO[str]) -> None:
        self._to_agent, self._from_agent = to_agent, from_agent
        self.lines: list[Line] = []

    def send(self, **frame: Any) -> None:
        """Say something to the agent."""
        self._write(SENT, {"jsonrpc": "2.0", **frame})
        self._to_agent.write(json.dumps(frame | {"jsonrpc": "2.0"}) + "\n")
        self._to_agent.flush()

    def until(self, is_last: Callable[[Frame], bool]) -> Frame:
        """Listen to the agent until it has said this."""
        for line in self._from_agent:
            frame: Frame = json.loads(line)
            self._write(RECEIVED, frame)
            if is_last(frame):
                return frame
        raise EOFError("the agent has ended")

    def answer(self, request_id: int) -> Frame:
        """What the agent answers to a request."""
        return self.until(lambda frame: frame.get("id") == request_id and "method" not in frame)["result"]

    def _write(self, side: str, frame: Frame) -> None:
        self.lines.append((side, frame))


def held(directory: Path) -> dict[str, list[Line]]:
    """Hold the conversation, with an agent in this directory; what was said, by the part of the page."""
    home = directory / "home"
    project = directory / "app"
    for each in (home, project):
        each.mkdir()
    (directory / "agent.py").write_text(AGENT)
    serving = [sys.executable, "-m", "coupler", "serve", str(directory / "agent.py")]
    environment = {**os.environ, "COUPLER_HOME": str(home)}
    with subprocess.Popen(
        serving,
        cwd=project,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as agent:
        assert agent.stdin is not None and agent.stdout is not None
        conversation = Conversation(agent.stdin, agent.stdout)
        parts: dict[str, list[Line]] = {}
        for name in _parts(conversation, str(project)):
            parts[name] = conversation.lines
            conversation.lines = []
        agent.stdin.close()
    return parts


def _parts(client: Conversation, cwd: str) -> Iterator[str]:
    """Say all that there is to say, and name each part of it when it is over."""
    offers = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    client.send(id=0, method="initialize", params={"protocolVersion": 1, "clientCapabilities": offers})
    client.answer(0)
    yield "introduction"

    client.send(id=1, method="session/new", params={"cwd": cwd, "mcpServers": []})
    session = client.answer(1)["sessionId"]
    yield "session"

    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "buy milk"}]}
    client.send(id=2, method="session/prompt", params=prompt)
    question = client.until(lambda frame: frame.get("method") == "session/request_permission")
    yield "turn"

    choice = {"outcome": "selected", "optionId": question["params"]["options"][0]["optionId"]}
    client.send(id=question["id"], result={"outcome": choice})
    client.answer(2)
    yield "permission"

    client.send(id=3, method="session/prompt", params=prompt)
    client.until(lambda frame: frame.get("method") == "session/request_permission")
    client.send(method="session/cancel", params={"sessionId": session})
    client.answer(3)
    yield "cancel"

    client.send(id=4, method="session/new", params={"cwd": "app", "mcpServers": []})
    client.until(lambda frame: frame.get("id") == 4)
    yield "error"


def shown(parts: dict[str, list[Line]], directory: Path) -> dict[str, str]:
    """The parts as the page has them: what differs from run to run has names that do not."""
    names = {str(directory / "app"): SHOWN_DIRECTORY}
    texts = {}
    for part, lines in parts.items():
        for _, frame in lines:
            for found in CHANGING.findall(json.dumps(frame)):
                kind = KINDS[found[0]]
                number = 1 + sum(name.startswith(kind) for name in names.values())
                names.setdefault(found[1], f"{kind}{number}")
        texts[part] = "```text\n" + "\n".join(_wrapped(*line, names) for line in lines) + "\n```"
    return texts


def _wrapped(side: str, frame: Frame, names: dict[str, str]) -> str:
    text = json.dumps(frame, ensure_ascii=False)
    for name, other in names.items():
        text = text.replace(name, other)
    pieces = textwrap.wrap(
        f"{side} {text}", WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(pieces)


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place).resolve()
        parts = held(directory)
    texts = shown(parts, directory)
    return pages.update({"transcript.md": {"agent": f"```python\n{AGENT}```", **texts}}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
