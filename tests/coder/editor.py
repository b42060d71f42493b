"""An editor made of pipes: it has buffers, terminals and forms as a test wants, and answers dialogs."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from raw_client import Frame, RawClient, is_answer_to
from workflow.served_project import Shown

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
TERMINALS = {"terminal": True}
FORMS = {"elicitation": {"form": {}}}

NOT_FOUND = {"error": {"code": -32002, "message": "Resource not found"}}

Answer = str | Frame
"""To a dialog: the kind of an option, or a whole outcome."""


class Turn(Shown):
    """A turn that is over, as the editor shows it."""

    @property
    def uses(self) -> list[Frame]:
        """The tool calls in the order of their beginning."""
        return [*self.calls.values()]

    @property
    def use(self) -> Frame:
        """The last of them."""
        return self.uses[-1]

    @property
    def text(self) -> str:
        """All that was said."""
        return "\n".join(self.messages)

    @property
    def error(self) -> Frame:
        error: Frame = self.answer["error"]
        return error

    def of(self, kind: str) -> list[Frame]:
        """The updates of a kind."""
        return [update for update in self.updates if update["sessionUpdate"] == kind]


class Editor:
    """One session in it, and the user in front of it."""

    def __init__(self, client: RawClient, session: str, cwd: Path) -> None:
        self.client = client
        self.session = session
        self.cwd = cwd
        self.asked: list[Frame] = []
        """The permission requests and forms, in order."""
        self.forms: list[Frame] = []
        """How the forms are answered that come next."""
        self.buffers: dict[Path, str] = {}
        """What the editor has of files and has not saved."""
        self.terminals: dict[str, Terminal] = {}
        self.on_ask: Callable[[Frame], None] | None = None
        """What happens before a dialog is answered."""
        self.is_closed = False
        self._unexpected: list[Frame] = []

    def prompt(self, text: str, *answers: Answer) -> Turn:
        """Send a prompt; each dialog gets the next of these answers, and there are just as many."""
        return self.finish(self.begin(text), *answers)

    def begin(self, *prompt: str | Frame) -> Frame:
        """Send a prompt of texts and other blocks, and do not wait for what becomes of it."""
        blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in prompt]
        request = self.client.request("session/prompt", {"sessionId": self.session, "prompt": blocks})
        self.client.send(request)
        return request

    def finish(self, request: Frame, *answers: Answer, before: list[Frame] | None = None) -> Turn:
        waiting = iter(answers)
        frames = [*(before or ())]
        while not is_answer_to(frame := self.client.read(), request["id"]):
            frames.append(frame)
            self.serve(frame, waiting)
        left = [*waiting]
        assert not self._unexpected, f"nobody expected to be asked this: {self._unexpected}"
        assert not left, f"nobody was asked what {left} answers; asked was {self.asked}"
        return Turn(self._updates(frames), frame)

    def until(self, matches: Callable[[Frame], bool], *answers: Answer) -> list[Frame]:
        """Serve what is asked up to the first frame that matches, which is left to the test."""
        waiting = iter(answers)
        frames = [self.client.read()]
        while not matches(frames[-1]):
            self.serve(frames[-1], waiting)
            frames.append(self.client.read())
        return frames

    def serve(self, frame: Frame, answers: Iterator[Answer]) -> None:
        """Answer what the agent asks; terminals may do that later."""
        if "method" not in frame or "id" not in frame:
            return
        reply = self._reply(frame, answers)
        if reply is not None:
            self.client.send({"id": frame["id"], **reply})

    def set_mode(self, mode: str) -> None:
        answer = self.client.call("session/set_mode", {"sessionId": self.session, "modeId": mode})
        assert "result" in answer, answer

    def cancel(self) -> None:
        self.client.send({"method": "session/cancel", "params": {"sessionId": self.session}})

    def close(self) -> None:
        answer = self.client.call("session/close", {"sessionId": self.session})
        assert "result" in answer, answer
        self.is_closed = True

    def _reply(self, frame: Frame, answers: Iterator[Answer]) -> Frame | None:
        params = frame["params"]
        match frame["method"]:
            case "session/request_permission":
                self.asked.append(params)
                if self.on_ask is not None:
                    self.on_ask(params)
                return {"result": {"outcome": self._outcome(params, next(answers, None))}}
            case "elicitation/create":
                self.asked.append(params)
                if not self.forms:
                    self._unexpected.append(params)
                    return {"result": {"action": "cancel"}}
                return {"result": self.forms.pop(0)}
            case "fs/read_text_file":
                return self._read(Path(params["path"]), params)
            case "fs/write_text_file":
                path = Path(params["path"])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(params["content"].encode())
                self.buffers.pop(path, None)
                return {"result": {}}
            case method if method.startswith("terminal/"):
                return self._terminal(method.removeprefix("terminal/"), frame)
        raise AssertionError(f"an unexpected request: {frame}")

    def _outcome(self, params: Frame, answer: Answer | None) -> Any:
        """What the user chooses; what nobody expects is refused, so that the turn can end."""
        if answer is not None and not isinstance(answer, str):
            return answer
        options = {each["optionId"]: each["kind"] for each in params["options"]}
        fitting = [id for id, kind in options.items() if answer in (id, kind)]
        if not fitting:
            self._unexpected.append(params)
            return {"outcome": "cancelled"}
        return {"outcome": "selected", "optionId": fitting[0]}

    def _read(self, path: Path, params: Frame) -> Frame:
        if path not in self.buffers and not path.is_file():
            return NOT_FOUND
        text = self.buffers[path] if path in self.buffers else path.read_bytes().decode()
        lines = text.splitlines(keepends=True)
        start = (params.get("line") or 1) - 1
        limit = params.get("limit")
        part = lines[start:] if limit is None else lines[start : start + limit]
        return {"result": {"content": "".join(part)}}

    def _terminal(self, what: str, frame: Frame) -> Frame | None:
        params = frame["params"]
        if what == "create":
            id = f"terminal-{len(self.terminals) + 1}"
            self.terminals[id] = Terminal(params)
            return {"result": {"terminalId": id}}
        terminal = self.terminals[params["terminalId"]]
        match what:
            case "output":
                return {"result": terminal.output}
            case "wait_for_exit":
                terminal.tell_end(lambda status: self.client.send({"id": frame["id"], "result": status}))
                return None
            case "kill":
                terminal.kill()
            case "release":
                terminal.kill()
                terminal.is_released = True
        return {"result": {}}

    def _updates(self, frames: list[Frame]) -> list[Frame]:
        return [
            frame["params"]["update"]
            for frame in frames
            if frame.get("method") == "session/update" and frame["params"]["sessionId"] == self.session
        ]


def finish_together(*begun: tuple[Editor, Frame]) -> list[Turn]:
    """Wait for the prompts of several sessions of one process, in which nobody is asked anything."""
    editors = {editor.session: editor for editor, _ in begun}
    frames: list[Frame] = []
    answers: dict[int, Frame] = {}
    while len(answers) < len(begun):
        frame = begun[0][0].client.read()
        for _, request in begun:
            if is_answer_to(frame, request["id"]):
                answers[request["id"]] = frame
        if "method" in frame and "id" in frame:
            editors[frame["params"]["sessionId"]].serve(frame, iter(()))
        frames.append(frame)
    return [Turn(editor._updates(frames), answers[request["id"]]) for editor, request in begun]


class Terminal:
    """A command that the editor runs for the agent."""

    def __init__(self, asked: Frame) -> None:
        self.asked = asked
        self.is_released = False
        environment = os.environ | {each["name"]: each["value"] for each in asked.get("env") or ()}
        self.process = subprocess.Popen(
            [asked["command"], *asked.get("args", ())],
            cwd=asked.get("cwd"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._limit = asked.get("outputByteLimit")
        self._bytes = b""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def output(self) -> Frame:
        limit = self._limit
        is_cut = limit is not None and len(self._bytes) > limit
        shown = self._bytes[-limit:] if is_cut and limit is not None else self._bytes
        status = {} if self.process.poll() is None else {"exitStatus": self.status}
        return {"output": shown.decode(errors="replace"), "truncated": is_cut, **status}

    @property
    def status(self) -> Frame:
        code = self.process.returncode
        return {"exitCode": code} if code >= 0 else {"signal": str(-code)}

    def tell_end(self, tell: Callable[[Frame], None]) -> None:
        def wait() -> None:
            self.process.wait()
            self._reading.join()
            tell(self.status)

        threading.Thread(target=wait, daemon=True).start()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            while data := os.read(stream.fileno(), 65536):
                self._bytes += data
