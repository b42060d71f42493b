"""Sends and traces lines over a transport, for the scripted client and the scripted agent.

Nothing is interpreted beyond lines and answers, so that a script can send and see anything. `ClientServices`
answer what an agent asks its client.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from coupler.__about__ import __version__
from coupler.conformance.reading import shown
from coupler.recording.traces import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Side,
    Trace,
    TraceEntry,
    id_key,
)
from coupler.wire.frames import FrameBuffer, Oversized
from coupler.wire.transport import Transport

T = TypeVar("T")

INFO = {"name": "coupler-check", "title": "Coupler's conformance kit", "version": __version__}
"""The name and version of a scripted peer."""

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of the longest line that is kept whole."""

FLOOD_LINES = 100_000
FLOOD_BYTES = 256 * 1024 * 1024
"""Lines and bytes that a peer may write in all; what exceeds them is a flood and is dropped."""

FULL_CAPABILITIES: dict[str, Any] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "session": {"configOptions": {"boolean": {}}, "compaction": {}, "notices": {}},
    "elicitation": {"form": {}, "url": {}},
}

TERMINAL_OUTPUT = "played by coupler check\n"

SPREAD = "a message is spread over several lines: write every message on one line, without line breaks in it"
WITH_HEADERS = "messages come with Content-Length headers, which ACP does not have: write one line a message"
UNENDED = "a message has no line end: write a line feed after every message, and flush stdout"
UNFLUSHED = (
    "the answer to initialize was written only when the agent's input was closed: "
    "flush stdout after every message"
)

ScriptErrorKind = Literal["silent", "gone", "flood", "spawn", "unreadable"]

Service: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the params and returns the result, or raises RequestRefused or Unanswered."""


class ScriptError(Exception):
    """The other side did not do what the script waited for."""

    def __init__(self, kind: ScriptErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class LinePipe:
    """One end of a connection: writes lines, traces lines, and wakes whoever waits for one."""

    def __init__(self, transport: Transport, us: Side, trace: Trace, timeout: float) -> None:
        self.trace = trace
        self.timeout = timeout
        self.has_ended = False
        self.when_received: Callable[[TraceEntry], None] = lambda entry: None
        self._us: Side = us
        self._them: Side = "agent" if us == "client" else "client"
        self._transport = transport
        self._frames = FrameBuffer(LINE_LIMIT)
        self._began = time.monotonic()
        self._unwritten = b""
        self._bytes_read = 0
        self._lines_read = 0
        self._is_flooded = False
        self._answers: dict[str, TraceEntry] = {}
        self._news = asyncio.Event()

    def open(self) -> None:
        self._transport.open(self)

    def close(self) -> None:
        self._transport.close()

    def write(self, data: bytes) -> None:
        """Send bytes as they are; each line of them is traced."""
        for line in data.splitlines():
            self.trace.append(self._now(), self._us, line)
        self._unwritten += data
        self.output_ready()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; `jsonrpc` is added."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n")

    async def until(self, look: Callable[[], T | None], what: str, within: float | None = None) -> T:
        """Wait until `look` finds something; it is called again after every line."""
        limit = self.timeout if within is None else within
        try:
            async with asyncio.timeout(limit):
                while (found := look()) is None:
                    self._raise_if_over(what)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ScriptError("silent", f"{what} did not come within {limit:g} s") from None
        return found

    def misframed(self) -> str | None:
        """Say what keeps messages from being read as lines; None if nothing does."""
        lines = [entry for entry in self.trace.entries if entry.sender == self._them]
        if any(entry.line.lower().startswith(b"content-length:") for entry in lines):
            return WITH_HEADERS
        opened = (place for place, each in enumerate(lines) if each.line[:1] == b"{" and not each.message)
        if (first := next(opened, None)) is not None:
            text = b"\n".join(entry.line for entry in lines[first:]).decode(errors="replace")
            return SPREAD if _begins_with_object(text) else None
        return None

    def lacks_line_end(self) -> bool:
        """True if a whole message is there, but not its line end, which may come a moment later."""
        held = self._frames.unfinished.decode(errors="replace").strip()
        return held.endswith("}") and _begins_with_object(held)

    async def answer(self, id: Any, what: str, within: float | None = None) -> TraceEntry:
        """Wait for the answer to the request with this id."""
        return await self.until(lambda: self._answers.get(id_key(id)), what, within)

    async def quiet(self, seconds: float) -> None:
        """Let that time pass, or stop early when the other side is gone."""
        try:
            async with asyncio.timeout(seconds):
                while not self.has_ended and not self._is_flooded:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return

    def data_received(self, data: bytes) -> None:
        self._bytes_read += len(data)
        for frame in self._frames.feed(data):
            self._note(frame)
        self._news.set()

    def input_ended(self, error: Exception | None) -> None:
        for frame in self._frames.end():
            self._note(frame)
        self.has_ended = True
        self._news.set()

    def output_ready(self) -> None:
        if self._unwritten and not self.has_ended:
            sent = self._transport.write(self._unwritten)
            self._unwritten = self._unwritten[sent:]

    def _note(self, frame: bytes | Oversized) -> None:
        self._lines_read += 1
        if self._lines_read > FLOOD_LINES or self._bytes_read > FLOOD_BYTES:
            self._is_flooded = True
        if self._is_flooded:
            return
        line = frame if isinstance(frame, bytes) else frame.head + b"\xe2\x80\xa6" + frame.tail
        entry = self.trace.append(self._now(), self._them, line)
        if entry.is_answer:
            self._answers.setdefault(id_key(entry.message.get("id")), entry)
        self.when_received(entry)

    def _raise_if_over(self, what: str) -> None:
        if self._is_flooded:
            raise ScriptError("flood", f"the {self._them} wrote without end while {what} was waited for")
        if self.has_ended:
            raise ScriptError("gone", f"the {self._them} closed the connection before {what} came")

    def _now(self) -> float:
        return time.monotonic() - self._began


def _begins_with_object(text: str) -> bool:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


class RequestRefused(Exception):  # noqa: N818
    """Raised by a service to answer the request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Unanswered(Exception):  # noqa: N818
    """Raised by a service to leave the request unanswered for now."""


class ClientServices:
    """Answers an agent's requests, as far as the client advertised them.

    Files are those of one directory. Terminals are only simulated: nothing that an agent under test asks for
    is run. Each service can be replaced: `desk.services["session/request_permission"] = hold`.
    """

    def __init__(self, directory: Path, capabilities: dict[str, Any]) -> None:
        self.directory = directory
        self.terminals: list[str] = []
        self.services: dict[str, Service] = {"session/request_permission": allow}
        files = capabilities.get("fs") or {}
        if files.get("readTextFile") is True:
            self.services["fs/read_text_file"] = self._read
        if files.get("writeTextFile") is True:
            self.services["fs/write_text_file"] = self._write
        if capabilities.get("terminal") is True:
            self.services |= {
                "terminal/create": self._create_terminal,
                "terminal/output": self._terminal_output,
                "terminal/wait_for_exit": self._wait_for_exit,
                "terminal/kill": self._known_terminal,
                "terminal/release": self._release_terminal,
            }
        if capabilities.get("elicitation"):
            self.services["elicitation/create"] = decline

    @property
    def open_terminals(self) -> list[str]:
        """The terminals that were not released."""
        return [terminal for terminal in self.terminals if terminal != "released"]

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer's message, or None to leave the request open."""
        service = self.services.get(str(request.get("method")))
        params = request.get("params")
        try:
            if service is None:
                raise RequestRefused(
                    METHOD_NOT_FOUND, f"this client has no method {shown(request.get('method'))}"
                )
            if not isinstance(params, dict):
                raise RequestRefused(INVALID_PARAMS, "params must be an object")
            return {"id": request["id"], "result": service(params)}
        except Unanswered:
            return None
        except RequestRefused as refusal:
            code, message = refusal.code, refusal.message
        except (ValueError, TypeError, OverflowError) as error:
            # Params may be anything: a line in words, a path with a NUL.
            code, message = INVALID_PARAMS, str(error)
        return {"id": request["id"], "error": {"code": code, "message": message}}

    def _read(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            lines = self._file(params).read_text(errors="replace").splitlines(keepends=True)
        except OSError as error:
            raise RequestRefused(NOT_FOUND, f"{params.get('path')}: {error.strerror}") from None
        first = max(int(params.get("line") or 1), 1) - 1
        limit = params.get("limit")
        return {"content": "".join(lines[first : None if limit is None else first + int(limit)])}

    def _write(self, params: dict[str, Any]) -> dict[str, Any]:
        file = self._file(params)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(params.get("content")))
        except OSError as error:
            raise RequestRefused(INTERNAL_ERROR, f"{params.get('path')}: {error.strerror}") from None
        return {}

    def _file(self, params: dict[str, Any]) -> Path:
        file = Path(str(params.get("path"))).resolve()
        if not file.is_relative_to(self.directory.resolve()):
            raise RequestRefused(INVALID_PARAMS, f"{file} is outside of the session's directory")
        return file

    def _create_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        self.terminals.append(f"terminal_{len(self.terminals) + 1}")
        return {"terminalId": self.terminals[-1]}

    def _terminal_output(self, params: dict[str, Any]) -> dict[str, Any]:
        self._known_terminal(params)
        return {"output": TERMINAL_OUTPUT, "truncated": False, "exitStatus": {"exitCode": 0}}

    def _wait_for_exit(self, params: dict[str, Any]) -> dict[str, Any]:
        self._known_terminal(params)
        return {"exitCode": 0}

    def _release_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        self._known_terminal(params)
        self.terminals[self.terminals.index(params["terminalId"])] = "released"
        return {}

    def _known_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("terminalId") not in self.open_terminals:
            raise RequestRefused(NOT_FOUND, f"there is no terminal {shown(params.get('terminalId'))}")
        return {}


def allow(params: dict[str, Any]) -> dict[str, Any]:
    """Select the option to allow once, or else always; cancelled if neither is offered."""
    return _select(params, "allow_once", "allow_always")


def reject(params: dict[str, Any]) -> dict[str, Any]:
    """Select the option to reject once, or else always; cancelled if neither is offered."""
    return _select(params, "reject_once", "reject_always")


def cancel(params: dict[str, Any]) -> dict[str, Any]:
    """Answer that the turn was cancelled."""
    return {"outcome": {"outcome": "cancelled"}}


def decline(params: dict[str, Any]) -> dict[str, Any]:
    """Decline an elicitation."""
    return {"action": "decline"}


def hold(params: dict[str, Any]) -> dict[str, Any]:
    """Leave a request unanswered."""
    raise Unanswered


def _select(params: dict[str, Any], *kinds: str) -> dict[str, Any]:
    options = params.get("options")
    for kind in kinds:
        for option in options if isinstance(options, list) else []:
            if isinstance(option, dict) and option.get("kind") == kind:
                return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
    return {"outcome": {"outcome": "cancelled"}}
