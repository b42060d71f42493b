"""A project whose workflows the real `coupler serve` offers to a client that is a test."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.steps import text_of, tool_updates
from raw_client import COUPLER, PATIENCE, Frame, RawClient, is_answer_to


class Shown:
    """A turn that is over, as a client shows it in the end."""

    def __init__(self, updates: list[Frame], answer: Frame) -> None:
        self.updates = updates
        self.answer = answer
        self.calls: dict[str, Frame] = {}
        """The tool calls by their ids, each with all that was said of it."""
        self.statuses: dict[str, list[str]] = {}
        """Each status that a call was in, in order."""
        for update in tool_updates(updates):
            call = update["toolCallId"]
            is_new = update["sessionUpdate"] == "tool_call"
            assert is_new == (call not in self.calls), update
            self.calls[call] = {**self.calls.get(call, {}), **update}
            if "status" in update:
                self.statuses.setdefault(call, []).append(update["status"])

    @property
    def reason(self) -> str:
        return str(self.answer["result"]["stopReason"])

    @property
    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = self.answer["result"]["_meta"]["coupler"]
        return meta

    @property
    def run(self) -> str:
        return str(self.meta["run"])

    def call(self, step: str) -> Frame:
        """The call that is a step of the run."""
        return self.calls[f"{self.run}/{step}"]

    def output(self, step: str) -> str:
        return text_of(self.call(step))

    def status(self, step: str) -> str:
        return str(self.call(step)["status"])

    @property
    def messages(self) -> list[str]:
        """What was said, message by message."""
        return [*self._texts("agent_message_chunk").values()]

    @property
    def thoughts(self) -> list[str]:
        return [*self._texts("agent_thought_chunk").values()]

    @property
    def last_message(self) -> str:
        return self.messages[-1]

    @property
    def commands(self) -> set[str]:
        """The slash commands that were told last; none if they stayed as they were."""
        told = [each for each in self.updates if each["sessionUpdate"] == "available_commands_update"]
        return {command["name"] for each in told[-1:] for command in each["availableCommands"]}

    @property
    def plan(self) -> dict[str, str]:
        """The entries of the last plan, with their statuses."""
        plans = [update for update in self.updates if update["sessionUpdate"] == "plan"]
        return {entry["content"]: entry["status"] for entry in plans[-1]["entries"]}

    def _texts(self, kind: str) -> dict[str, str]:
        texts: dict[str, str] = {}
        for update in self.updates:
            if update["sessionUpdate"] == kind:
                id = update["messageId"]
                texts[id] = texts.get(id, "") + update["content"].get("text", "")
        return texts


class Editor:
    """A client with one session, and the answers that it gives to permission requests."""

    def __init__(self, client: RawClient, session: str) -> None:
        self.client = client
        self.session = session
        self.asked: list[Frame] = []
        """The permission requests and forms, in order."""
        self.forms: list[Frame] = []
        """How the forms are answered that come next."""
        self.buffers: dict[str, str] = {}
        """What the editor has of files, by their paths: read and written instead of the disk."""

    def prompt(self, text: str, *answers: str) -> Shown:
        """Send a prompt; each dialog gets the next of these answers, `allow` or `deny`."""
        return self.finish(self.begin(text), *answers)

    def begin(self, *prompt: str | Frame) -> Frame:
        """Send a prompt of texts and other blocks, and do not wait for what becomes of it."""
        blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in prompt]
        request = self.client.request("session/prompt", {"sessionId": self.session, "prompt": blocks})
        self.client.send(request)
        return request

    def finish(self, request: Frame, *answers: str, before: list[Frame] | None = None) -> Shown:
        waiting = iter(answers)
        frames = [*(before or ())]
        while not is_answer_to(frame := self.client.read(), request["id"]):
            frames.append(frame)
            if "method" in frame and "id" in frame:
                self.client.send({"id": frame["id"], **self._answer(frame, waiting)})
        assert next(waiting, None) is None, "somebody was asked less often than the test thinks"
        return Shown(_updates(frames), frame)

    def _answer(self, frame: Frame, waiting: Iterator[str]) -> Frame:
        params = frame["params"]
        match frame["method"]:
            case "session/request_permission":
                self.asked.append(params)
                return {"result": {"outcome": {"outcome": "selected", "optionId": next(waiting)}}}
            case "elicitation/create":
                self.asked.append(params)
                return {"result": self.forms.pop(0)}
            case "fs/read_text_file" if params["path"] in self.buffers:
                return {"result": {"content": self.buffers[params["path"]]}}
            case "fs/write_text_file":
                self.buffers[params["path"]] = params["content"]
                return {"result": {}}
        return {"error": {"code": -32002, "message": "not found"}}

    def until(self, *parts: str) -> list[Frame]:
        """The frames up to the first that has all of these in it."""
        return self.client.read_until(lambda frame: all(part in json.dumps(frame) for part in parts))

    def cancel(self) -> None:
        self.client.send({"method": "session/cancel", "params": {"sessionId": self.session}})


def served(
    *words: str, home: Path, cwd: Path, env: Mapping[str, str] | None = None, **capabilities: Any
) -> RawClient:
    """`coupler serve`, greeted."""
    client = RawClient(*COUPLER, "serve", *words, cwd=cwd, env={**(env or {}), "COUPLER_HOME": str(home)})
    client.initialize(**capabilities)
    return client


def opened(client: RawClient, cwd: Path) -> Editor:
    """A new session in a directory."""
    return Editor(client, client.new_session(str(cwd)))


def coupler(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command does in a terminal that has the same home."""
    env = {**os.environ, "COUPLER_HOME": str(home)}
    return subprocess.run([*COUPLER, *words], env=env, capture_output=True, text=True, timeout=PATIENCE)


def write_workflow(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}.yaml"
    file.write_text(text)
    return file


def _updates(frames: list[Frame]) -> list[Frame]:
    return [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
