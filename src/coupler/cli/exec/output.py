"""Where `coupler exec` writes: a stream of text, one object, events, or the answer alone.

An agent's words come from strangers: a terminal obeys nothing of them. In a pipe they are as they came.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any, Protocol

from msgspec import json

from coupler.cli.exec.events import JsonObject, event_object
from coupler.cli.exec.options import PROGRAM
from coupler.cli.refusal import refuse
from coupler.cli.sessions.wording import clean, one_line, quiet_json
from coupler.client.observation import Observation, PermissionDecided, Received, SessionOpened
from coupler.client.policy import Decision
from coupler.events import Notice, Plan, Text, ToolCall

MARKS = {"completed": "x", "in_progress": ">"}
"""How the steps of a plan are marked; the others are left open."""


class Output(Protocol):
    """One of the formats."""

    def notice(self, observation: Observation) -> None:
        """Something has happened."""

    def finish(self, result: JsonObject) -> None:
        """It is over."""

    def aside(self, line: str) -> None:
        """Something for the person at the terminal, if there is one."""


def output_for(format: str, *, has_schema: bool) -> Output:
    """The output of a format. With a schema the answer is what fits it, and not the text around."""
    if sys.stderr is None:  # closed by who started us
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123
    if sys.stdout is None:
        refuse("stdout is closed, so that the answer could be written nowhere", PROGRAM)
    _forgive(sys.stdout)
    _forgive(sys.stderr)
    match format:
        case "json":
            return JsonOutput(sys.stdout)
        case "ndjson":
            return EventOutput(sys.stdout)
        case "quiet":
            return QuietOutput(sys.stdout, has_schema=has_schema)
    return TextOutput(sys.stdout, sys.stderr, has_schema=has_schema)


class JsonOutput:
    """One object, at the end."""

    def __init__(self, stdout: IO[str]) -> None:
        self._stdout = stdout

    def notice(self, observation: Observation) -> None:
        return

    def finish(self, result: JsonObject) -> None:
        self._write(result)

    def aside(self, line: str) -> None:
        return

    def _write(self, value: JsonObject) -> None:
        text = json.encode(value).decode()
        self._stdout.write(f"{quiet_json(text) if self._stdout.isatty() else text}\n")
        self._stdout.flush()


class EventOutput(JsonOutput):
    """An object a line for each event, and for the result."""

    def notice(self, observation: Observation) -> None:
        told = event_object(observation)
        if told is not None:
            self._write(told)

    def finish(self, result: JsonObject) -> None:
        self._write({"event": "result", **result})


class QuietOutput:
    """The answer alone, once it is whole."""

    def __init__(self, stdout: IO[str], *, has_schema: bool) -> None:
        self._stdout = stdout
        self._has_schema = has_schema

    def notice(self, observation: Observation) -> None:
        return

    def finish(self, result: JsonObject) -> None:
        text = _answer(result, has_schema=self._has_schema)
        if text:
            self._stdout.write(_ended(clean(text) if self._stdout.isatty() else text))
            self._stdout.flush()

    def aside(self, line: str) -> None:
        return


class TextOutput:
    """The agent's text as it comes; beside it, for people at a terminal, what the agent does."""

    def __init__(self, stdout: IO[str], stderr: IO[str], *, has_schema: bool) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._has_schema = has_schema
        self._is_terminal = stdout.isatty()
        self._has_company = stderr.isatty()
        self._is_dim = self._has_company and not os.environ.get("NO_COLOR")
        self._message_id: str | None = None
        self._was_interrupted = False
        self._newlines: int | None = None
        """Line ends at the end of what was written; None if nothing was."""
        self._titles: dict[str, str] = {}
        self._failed: set[str] = set()
        self._steps: dict[str, str] = {}

    def notice(self, observation: Observation) -> None:
        match observation:
            case SessionOpened(reason=str(reason)):
                self._tell(f"this is a new session: {reason}")
            case Received(event=Text() as piece):
                if not self._has_schema:
                    self._stream(piece)
            case Received(event=ToolCall() as call):
                self._was_interrupted = True
                self._tell_call(call)
            case Received(event=Plan() as plan):
                self._tell_plan(plan)
            case Received(event=Notice(severity, title, description)):
                self.aside(f"{severity}: {title}{f': {description}' if description else ''}")
            case PermissionDecided(decision=decision) if not decision.is_allowed:
                self.aside(_denial(decision))

    def finish(self, result: JsonObject) -> None:
        if self._has_schema and result["output"] is not None:
            self._write(_answer(result, has_schema=True))
        if self._newlines == 0:
            self._write("\n")
        if not self._has_company:
            for denied in result["denied"]:
                self._stderr.write(f"{PROGRAM}: {one_line(_denial_in(denied))}\n")

    def _tell(self, line: str) -> None:
        """Something that must be known, whether somebody looks or not."""
        if self._has_company:
            self.aside(line)
        else:
            self._stderr.write(f"{PROGRAM}: {one_line(line)}\n")

    def aside(self, line: str) -> None:
        if not self._has_company:
            return
        if self._is_terminal and self._newlines == 0:
            self._write("\n")
        words = one_line(line)
        self._stderr.write(f"\x1b[2m{words}\x1b[0m\n" if self._is_dim else f"{words}\n")
        self._stderr.flush()

    def _stream(self, piece: Text) -> None:
        begins = self._was_interrupted if piece.message_id is None else piece.message_id != self._message_id
        if begins and self._newlines is not None:
            self._write("\n" * max(2 - self._newlines, 0))
        self._message_id = piece.message_id
        self._was_interrupted = False
        self._write(clean(piece.text) if self._is_terminal else piece.text)

    def _write(self, text: str) -> None:
        if not text:
            return
        self._stdout.write(text)
        self._stdout.flush()
        ends = len(text) - len(text.rstrip("\n"))
        self._newlines = ends + (self._newlines or 0) if ends == len(text) else ends

    def _tell_plan(self, plan: Plan) -> None:
        """Only what is new in it: agents send the whole of it again with every step."""
        for entry in plan.entries:
            if self._steps.get(entry.content) != entry.status:
                self._steps[entry.content] = entry.status
                self.aside(f"[{MARKS.get(entry.status, ' ')}] {entry.content}")

    def _tell_call(self, call: ToolCall) -> None:
        title = call.title or call.name or call.kind
        if self._titles.get(call.id) != title:
            self._titles[call.id] = title
            self.aside(f"{call.kind}: {title}")
        if call.status == "failed" and call.id not in self._failed:
            self._failed.add(call.id)
            self.aside(f"failed: {title}")


def silence_stdout() -> None:
    """Nobody reads any more: what is left to be written at the end goes nowhere, without complaint."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _answer(result: JsonObject, *, has_schema: bool) -> str:
    if has_schema:
        return "" if result["output"] is None else json.encode(result["output"]).decode()
    text: str = result["text"]
    return text


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _denial(decision: Decision) -> str:
    call = decision.tool_call
    return _denied(call.title or call.kind, decision.remedy)


def _denial_in(denied: JsonObject) -> str:
    return _denied(denied["title"] or denied["kind"], denied["remedy"])


def _denied(what: str, remedy: str | None) -> str:
    return f"denied: {what}" if remedy is None else f"denied: {what}; {remedy}"


def _forgive(stream: Any) -> None:
    """A character that the stream cannot show is escaped, instead of ending the program."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
