"""The model agent's turns: one that uses all that the client offers, and one that is slow."""

from __future__ import annotations

import re
import sys
import threading
import time
import traceback
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from model_sessions import Session, Sessions, now, text_in
from model_wire import (
    BAD_PARAMS,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    Cancelled,
    Object,
    Refusal,
    Request,
)

PATIENCE = 30.0
"""Seconds that a file or a terminal of the client may take, and the length of a slow turn."""

STEPS = ("Read the notes", "Write the notes", "Run a command")
OPTIONS = {"allow_once": "Allow", "allow_always": "Allow for this turn", "reject_once": "Reject"}
RECORDED = re.compile(r"(user|agent)_\w+_chunk|tool_call\w*|plan|compaction_\w+")
"""The updates that belong to the conversation; the others are state that a client gets anew."""


@dataclass
class Turn:
    """A prompt that is being answered."""

    session: Session
    request: Request
    text: str
    cancelled: bool = False
    by_request: bool = False
    """Cancelled by the id of the prompt, not by its session."""
    open_calls: list[str] = field(default_factory=list)


class Turns(Sessions):
    """All that happens between a prompt and its answer."""

    def finish(self) -> None:
        with self.changed:
            for turn in self.turns.values():
                self.cancel_turn(turn)
            self.ended = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.turns, 2)
        super().finish()

    # From the prompt to the answer

    def prompt(self, request: Request) -> None:
        """Begin a turn; the reader goes on."""
        session = self.session_of(request)
        blocks = self.blocks_in(request.params)
        with self.changed:
            if session.id in self.turns:
                raise Refusal(INVALID_REQUEST, "a turn is running in this session already")
            turn = Turn(session, request, text_of(blocks))
            self.turns[session.id] = turn
        message = session.next_message()
        session.history += [chunk("user_message_chunk", block, message) for block in blocks]
        session.prompts += 1
        self.start_turn(turn)

    def start_turn(self, turn: Turn) -> None:
        """Let a turn have a thread of its own."""
        threading.Thread(target=self.run_turn, args=(turn,), daemon=True).start()

    def run_turn(self, turn: Turn) -> None:
        """Take a turn to its one answer, whatever happens in it."""
        failure = None
        try:
            self.take_turn(turn)
        except Cancelled:
            pass
        except Exception:
            traceback.print_exc()
            failure = Refusal(INTERNAL_ERROR, "the turn failed")
        self.settle_open_calls(turn)
        self.save(turn.session)
        with self.changed:
            del self.turns[turn.session.id]
            self.answer_prompt(turn, failure)
            self.changed.notify_all()

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        """Say how a turn ended."""
        if turn.by_request:
            failure = Refusal(REQUEST_CANCELLED, "the prompt was cancelled")
        if failure and (turn.by_request or not turn.cancelled):
            self.answer_error(turn.request, failure)
        else:
            self.answer(turn.request, {"stopReason": self.stop_reason(turn)})

    def stop_reason(self, turn: Turn) -> str:
        """Why a turn ended that did not fail."""
        return "cancelled" if turn.cancelled else "end_turn"

    def settle_open_calls(self, turn: Turn) -> None:
        """Leave no tool call waiting. ACP has no status for a cancelled one."""
        for call in list(turn.open_calls):
            self.publish(turn, self.settled_call(call))

    def settled_call(self, call: str) -> Object:
        """The last update of a call that was cut short."""
        return {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "failed"}

    def blocks_in(self, params: Object) -> list[Object]:
        """The blocks of a prompt; one that is malformed or not advertised refuses all."""
        blocks = params.get("prompt")
        if not isinstance(blocks, list):
            raise Refusal(BAD_PARAMS, "prompt must be an array")
        for block in blocks:
            if not self.accepts(block):
                raise Refusal(BAD_PARAMS, "a block of the prompt is malformed or not supported")
        return blocks

    def accepts(self, block: object) -> bool:
        """Whether this is a whole block of a kind that is advertised."""
        match block:
            case {"type": "text", "text": str()}:
                return True
            case {"type": "resource_link", "name": str(), "uri": str()}:
                return True
            case {"type": "image", "data": str(), "mimeType": str()}:
                return True
            case {
                "type": "resource",
                "resource": {"uri": str(), "text": str()} | {"uri": str(), "blob": str()},
            }:
                return True
        return False

    # Cancelling

    def cancel_session(self, params: Object) -> None:
        """Cancel the turn of a session, if there is one."""
        identity = params.get("sessionId")
        turn = self.turns.get(identity) if isinstance(identity, str) else None
        if turn:
            turn.by_request = False
            self.cancel_turn(turn)
        else:
            self.cancel_idle(params)

    def cancel_idle(self, params: Object) -> None:
        """Do nothing: there is no turn to cancel."""

    def cancel_request(self, params: Object) -> None:
        """Cancel the prompt with this id, if there is one; all other requests are answered already."""
        identity = params.get("requestId")
        for turn in list(self.turns.values()):
            if turn.request.id == identity and type(turn.request.id) is type(identity):
                turn.by_request = turn.by_request or not turn.cancelled
                self.cancel_turn(turn)
                return
        self.cancel_unknown(params)

    def cancel_unknown(self, params: Object) -> None:
        """Do nothing: the request has been answered, or never was."""

    def cancel_turn(self, turn: Turn) -> None:
        with self.changed:
            turn.cancelled = True
            self.changed.notify_all()

    # What a turn does

    def take_turn(self, turn: Turn) -> None:
        """Do what the prompt asks: be slow, or use everything once."""
        if re.search(r"\bslow", turn.text, re.IGNORECASE):
            self.stream_slowly(turn)
            return
        self.show_plan(turn, 0)
        self.think(turn, "What has this client to offer?")
        self.say(turn, "I use ", "all of it.")
        self.report_usage(turn)
        self.name_session(turn)
        self.give_notice(turn)
        self.compact(turn)
        notes = self.read_notes(turn)
        self.show_plan(turn, 1)
        self.edit_notes(turn, notes)
        self.show_plan(turn, 2)
        self.run_command(turn)
        self.ask_by_form(turn)
        self.ask_by_link(turn)
        self.show_plan(turn, 3)
        self.say(turn, *self.last_words(turn.session))

    def stream_slowly(self, turn: Turn) -> None:
        """Talk until cancelled."""
        message = turn.session.next_message()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.report(turn, chunk("agent_message_chunk", text("tick "), message))
            with self.changed:
                self.changed.wait_for(lambda: turn.cancelled, 0.02)

    def last_words(self, session: Session) -> list[str]:
        """What the agent knows of the session."""
        where = f"I work in {session.cwd}. This was prompt {session.prompts}."
        roots = f" I also see {', '.join(session.roots)}." if session.roots else ""
        return [where + roots, f" The mode is {session.mode}."]

    def say(self, turn: Turn, *parts: str) -> None:
        """Say one message in several chunks."""
        message = turn.session.next_message()
        for part in parts:
            self.report(turn, chunk("agent_message_chunk", text(part), message))

    def think(self, turn: Turn, thought: str) -> None:
        """Think aloud."""
        self.report(turn, chunk("agent_thought_chunk", text(thought), turn.session.next_message()))

    def show_plan(self, turn: Turn, done: int) -> None:
        """Show all steps; so many of them are done, and the next one is under way."""
        states = ["completed"] * done + ["in_progress"] + ["pending"] * len(STEPS)
        entries = [
            {"content": step, "priority": "medium", "status": state}
            for step, state in zip(STEPS, states, strict=False)
        ]
        self.report(turn, {"sessionUpdate": "plan", "entries": entries})

    def report_usage(self, turn: Turn) -> None:
        """Say how full the context is, and what the session has cost so far."""
        used = 100 * turn.session.prompts
        self.report(
            turn, {"sessionUpdate": "usage_update", "used": used, "size": 200_000, "cost": cost(used)}
        )

    def name_session(self, turn: Turn) -> None:
        """Call a session by its first prompt."""
        session = turn.session
        session.title = session.title or turn.text[:60] or "Untitled"
        session.updated = now()
        self.report(
            turn,
            {"sessionUpdate": "session_info_update", "title": session.title, "updatedAt": session.updated},
        )

    def give_notice(self, turn: Turn) -> None:
        """Give a notice, or say it to a client that knows none."""
        if "notices" in self.offered:
            self.report(turn, {"sessionUpdate": "notice", "severity": "info", "title": "This is a model"})
        else:
            self.say(turn, "Note: this is a model.")

    def compact(self, turn: Turn) -> None:
        """Sum up the conversation, if the client can show that."""
        if "compaction" not in self.offered:
            return
        compaction = {"compactionId": uuid.uuid4().hex}
        begun = {"sessionUpdate": "compaction_update", **compaction, "status": "in_progress"}
        summary = {
            "sessionUpdate": "compaction_summary_chunk",
            **compaction,
            "content": text("So far, so good."),
        }
        self.report(turn, begun)
        self.publish(turn, summary)
        self.publish(turn, {**begun, "status": "completed"})

    # Tools

    def read_notes(self, turn: Turn) -> str | None:
        """Read the notes, which need not exist."""
        path = self.notes_of(turn)
        call = self.open_call(turn, "read", "Read the notes", locations=[{"path": path, "line": 1}])
        self.move_call(turn, call, "in_progress")
        notes = self.read_file(turn, path)
        shown = "There are no notes." if notes is None else notes
        self.move_call(turn, call, "completed", content=[shown_text(shown)])
        return notes

    def edit_notes(self, turn: Turn, notes: str | None) -> None:
        """Add a line to the notes, if the user agrees."""
        path = self.notes_of(turn)
        new = f"{notes or ''}prompt {turn.session.prompts}\n"
        diff = {"type": "diff", "path": path, "newText": new} | ({} if notes is None else {"oldText": notes})
        call = self.open_call(turn, "edit", "Write the notes", locations=[{"path": path}])
        if not self.is_allowed(turn, call, diff):
            self.move_call(turn, call, "failed", content=[shown_text("This was not allowed.")])
            return
        self.move_call(turn, call, "in_progress")
        try:
            self.write_file(turn, path, new)
        except (OSError, Refusal) as error:
            self.move_call(turn, call, "failed", content=[shown_text(f"Not written: {error}")])
        else:
            self.move_call(turn, call, "completed", content=[diff])

    def is_allowed(self, turn: Turn, call: str, diff: Object) -> bool:
        """Ask the user. Only an option that allows is a yes; all else, errors included, is a no."""
        options = [{"optionId": option, "name": name, "kind": option} for option, name in OPTIONS.items()]
        tool_call = {"toolCallId": call, "title": "Write the notes", "kind": "edit", "content": [diff]}
        params = {"sessionId": turn.session.id, "toolCall": tool_call, "options": options}
        try:
            answer = self.ask(turn, "session/request_permission", params)
        except Refusal:
            return False
        return self.is_yes(answer.get("outcome"))

    def is_yes(self, outcome: object) -> bool:
        """Whether the user has chosen to allow it."""
        match outcome:
            case {"outcome": "selected", "optionId": "allow_once" | "allow_always"}:
                return True
        return False

    def run_command(self, turn: Turn) -> None:
        """Run a command in a terminal of the client, if it has any."""
        if "terminal" not in self.offered:
            return
        call = self.open_call(turn, "execute", "Print the directory")
        try:
            status, printed = self.run_in_terminal(turn, call)
        except Refusal as error:
            self.move_call(turn, call, "failed", content=[shown_text(f"Not run: {error}")])
        else:
            self.move_call(turn, call, status, rawOutput={"output": printed})

    def run_in_terminal(self, turn: Turn, call: str) -> tuple[str, str]:
        """Create, watch and release a terminal; the status and what was printed."""
        # Not cancellable: a terminal whose id never arrives could not be released.
        created = self.ask(None, "terminal/create", self.command_of(turn), seconds=PATIENCE)
        terminal = {"sessionId": turn.session.id, "terminalId": text_in(created, "terminalId")}
        shown = {"type": "terminal", "terminalId": terminal["terminalId"]}
        try:
            self.move_call(turn, call, "in_progress", content=[shown])
            exited = self.ask(turn, "terminal/wait_for_exit", terminal, seconds=PATIENCE)
            printed = self.ask(turn, "terminal/output", terminal, seconds=PATIENCE)
        finally:
            self.release(turn, terminal)
        status = "completed" if exited.get("exitCode") == 0 else "failed"
        return status, str(printed.get("output", ""))

    def command_of(self, turn: Turn) -> Object:
        """What the terminal runs."""
        return {
            "sessionId": turn.session.id,
            "command": sys.executable,
            "args": ["-c", "import os; print(os.getcwd())"],
            "env": [{"name": "MODEL_AGENT", "value": "1"}],
            "cwd": self.directory_of(turn),
            "outputByteLimit": 65_536,
        }

    def release(self, turn: Turn, terminal: Object) -> None:
        """Give a terminal back, also when the turn is cancelled."""
        try:
            self.ask(None, "terminal/release", terminal, seconds=5)
        except Refusal as error:
            print(f"terminal/release: {error}", file=sys.stderr)

    def ask_by_form(self, turn: Turn) -> None:
        """Ask the user a question in a form; no answer is an answer too."""
        if "form" not in self.offered:
            return
        try:
            answer = self.ask(turn, "elicitation/create", self.form_for(turn))
        except Refusal:
            answer = {}
        self.say(turn, f"Your answer: {answer.get('action', 'none')}.")

    def form_for(self, turn: Turn) -> Object:
        """A form that asks for nothing secret."""
        tone = {"type": "string", "title": "Tone", "enum": ["plain", "warm"], "default": "plain"}
        length = {"type": "integer", "title": "Length", "minimum": 1, "maximum": 9}
        return {
            "sessionId": turn.session.id,
            "mode": "form",
            "message": "How shall I write?",
            "requestedSchema": {
                "type": "object",
                "properties": {"tone": tone, "length": length},
                "required": ["tone"],
            },
        }

    def ask_by_link(self, turn: Turn) -> None:
        """Send the user to a page, and tell the client when that is done."""
        if "url" not in self.offered:
            return
        elicitation = {"elicitationId": uuid.uuid4().hex}
        page = {"mode": "url", "url": "https://example.com/model", "message": "Please look at this page."}
        try:
            answer = self.ask(
                turn, "elicitation/create", {"sessionId": turn.session.id, **elicitation, **page}
            )
        except Refusal:
            return
        if answer.get("action") == "accept":
            self.notify("elicitation/complete", elicitation)

    # Files, the client's or the machine's own

    def directory_of(self, turn: Turn) -> str:
        """Where tools work: in the session's directory, wherever the process is."""
        return turn.session.cwd

    def notes_of(self, turn: Turn) -> str:
        """The path of the notes."""
        return str(Path(self.directory_of(turn), "notes.txt"))

    def read_file(self, turn: Turn, path: str) -> str | None:
        """What is in a file; none if there is no such file."""
        try:
            if "read" in self.offered:
                params = {"sessionId": turn.session.id, "path": path}
                return text_in(self.ask(turn, "fs/read_text_file", params, seconds=PATIENCE), "content")
            return self.inside_roots(turn, path).read_text(errors="replace")
        except (OSError, Refusal):
            return None

    def write_file(self, turn: Turn, path: str, content: str) -> None:
        """Write a file."""
        if "write" in self.offered:
            params = {"sessionId": turn.session.id, "path": path, "content": content}
            self.ask(turn, "fs/write_text_file", params, seconds=PATIENCE)
        else:
            self.inside_roots(turn, path).write_text(content)

    def inside_roots(self, turn: Turn, path: str) -> Path:
        """The true path of a file, which no link may lead out of the session's roots."""
        true = Path(path).resolve()
        roots = [self.directory_of(turn), *turn.session.roots]
        if not any(true.is_relative_to(Path(root).resolve()) for root in roots):
            raise PermissionError(f"{path} leads out of the session's directories")
        return true

    # Reporting

    def open_call(self, turn: Turn, kind: str, title: str, **more: object) -> str:
        """Report a tool call that has not begun."""
        call = turn.session.next_call()
        about = {"toolCallId": call, "title": title, "name": kind, "kind": kind, "status": "pending"}
        self.report(turn, {"sessionUpdate": "tool_call", **about, **more})
        turn.open_calls.append(call)
        return call

    def move_call(self, turn: Turn, call: str, status: str, **more: object) -> None:
        """Report where a tool call stands now."""
        self.report(turn, {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": status, **more})
        if status in ("completed", "failed"):
            turn.open_calls.remove(call)

    def report(self, turn: Turn, update: Object) -> None:
        """Publish an update, unless the turn has been cancelled."""
        if self.given_up(turn):
            raise Cancelled
        self.publish(turn, update)

    def publish(self, turn: Turn, update: Object) -> None:
        """Send an update, and remember it if it belongs to the conversation."""
        self.update(turn.session, update)
        if RECORDED.fullmatch(update["sessionUpdate"]):
            turn.session.history.append(lasting(update))


def chunk(kind: str, block: Object, message: str) -> Object:
    """A part of a message."""
    return {"sessionUpdate": kind, "content": block, "messageId": message}


def text(words: str) -> Object:
    """A block of text."""
    return {"type": "text", "text": words}


def shown_text(words: str) -> Object:
    """Text as a tool call shows it."""
    return {"type": "content", "content": text(words)}


def text_of(blocks: list[Object]) -> str:
    """What a prompt says in words."""
    return " ".join(block["text"] for block in blocks if block["type"] == "text")


def cost(used: int) -> Object:
    """What so many tokens cost."""
    return {"amount": used / 100_000, "currency": "USD"}


def lasting(update: Object) -> Object:
    """An update without the terminals in it, which are gone when it is replayed."""
    if not update["sessionUpdate"].startswith("tool_call") or "content" not in update:
        return update
    return {**update, "content": [part for part in update["content"] if part["type"] != "terminal"]}
