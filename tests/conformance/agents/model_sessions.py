"""The model agent's sessions: opened, stored as files, listed, replayed, configured, closed and deleted."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from model_wire import BAD_PARAMS, INVALID_REQUEST, NOT_FOUND, Object, Refusal, Request, Wire, log

PAGE = 2
"""Sessions in one answer to session/list."""

MODES = {"ask": "Ask", "auto": "Auto"}
MODELS = {"Small": {"swift": "Swift"}, "Large": {"deep": "Deep", "deeper": "Deeper"}}
COMMANDS = [{"name": "notes", "description": "Show the notes", "input": {"hint": "what to look for"}}]


@dataclass
class Session:
    """A conversation as it is stored."""

    id: str
    cwd: str
    roots: list[str]
    created: float = field(default_factory=time.time)
    updated: str = ""
    title: str | None = None
    mode: str = "ask"
    model: str = "swift"
    terse: bool = False
    prompts: int = 0
    calls: int = 0
    messages: int = 0
    history: list[Object] = field(default_factory=list)

    def next_call(self) -> str:
        """An id for a tool call that this session never had."""
        self.calls += 1
        return f"call_{self.calls}"

    def next_message(self) -> str:
        """An id for a message that this session never had."""
        self.messages += 1
        return f"message_{self.messages}"


class Sessions(Wire):
    """All that the protocol says about sessions, but for the turns in them."""

    def __init__(self) -> None:
        super().__init__()
        self.active: dict[str, Session] = {}
        self.turns: dict[str, Any] = {}
        self.servers: dict[str, list[subprocess.Popen[bytes]]] = {}
        self.cursors: dict[str, tuple[str | None, tuple[float, str]]] = {}
        self.offered: set[str] = set()
        self.scratch = tempfile.TemporaryDirectory(prefix="model-agent-", ignore_cleanup_errors=True)
        self.home = Path(os.environ.get("MODEL_AGENT_HOME") or self.scratch.name)
        self.home.mkdir(parents=True, exist_ok=True)

    def finish(self) -> None:
        super().finish()
        for session in list(self.servers):
            self.stop_servers(session)
        self.scratch.cleanup()

    # Opening

    def new_session(self, request: Request) -> None:
        """Open a session, and tell the client its commands once it knows the session."""
        cwd, servers, roots = self.setup_of(request.params)
        session = Session(self.new_id(), cwd, roots, updated=now())
        self.activate(session, servers)
        self.save(session)
        self.answer_opened(request, session, sessionId=session.id)

    def load_session(self, request: Request) -> None:
        """Open a stored session; the client sees all of it before the answer."""
        session = self.reopen(request)
        self.replay(session)
        self.answer_opened(request, session)

    def resume_session(self, request: Request) -> None:
        """Open a stored session that the client still shows."""
        request.params.setdefault("mcpServers", [])
        self.answer_opened(request, self.reopen(request))

    def reopen(self, request: Request) -> Session:
        """Activate a stored session with the setup that the client sends now."""
        cwd, servers, roots = self.setup_of(request.params)
        session = self.stored(text_in(request.params, "sessionId"))
        if session.id in self.turns:
            raise Refusal(INVALID_REQUEST, "a turn is running in this session")
        if session.cwd != cwd:
            raise Refusal(BAD_PARAMS, f"this session works in {session.cwd}")
        session.roots = self.roots_on_reopening(session, roots)
        self.activate(session, servers)
        self.save(session)
        return session

    def roots_on_reopening(self, session: Session, sent: list[str]) -> list[str]:
        """Only what the client sends now; what it sent in the past is over."""
        return sent

    def answer_opened(self, request: Request, session: Session, **more: str) -> None:
        """Answer with the session's settings."""
        self.answer(request, {**more, "modes": self.modes(session), "configOptions": self.options(session)})
        self.update(session, {"sessionUpdate": "available_commands_update", "availableCommands": COMMANDS})

    def new_id(self) -> str:
        """An id that no session has had."""
        return uuid.uuid4().hex

    def activate(self, session: Session, servers: list[Object]) -> None:
        """Make a session ready for prompts."""
        self.stop_servers(session.id)
        self.servers[session.id] = self.start_servers(session, servers)
        with self.changed:
            self.active[session.id] = session

    def replay(self, session: Session) -> None:
        """Show the conversation so far, but for what this client cannot show."""
        for update in session.history:
            if "compaction" in self.offered or not update["sessionUpdate"].startswith("compaction"):
                self.update(session, update)

    # The setup of a session

    def setup_of(self, params: Object) -> tuple[str, list[Object], list[str]]:
        """The directory, the MCP servers and the further roots that the client asks for."""
        cwd = text_in(params, "cwd")
        self.check_cwd(cwd)
        return cwd, self.servers_in(params), self.roots_in(params)

    def check_cwd(self, cwd: str) -> None:
        """Refuse a directory that a session cannot work in."""
        if not Path(cwd).is_absolute():
            raise Refusal(BAD_PARAMS, f"cwd must be absolute: {cwd!r}")
        if not os.path.isdir(cwd):  # noqa: PTH112 - unlike pathlib it never raises
            raise Refusal(BAD_PARAMS, f"cwd is not a directory: {cwd!r}")

    def servers_in(self, params: Object) -> list[Object]:
        """The MCP servers that can be started; null means none, and a bad entry is left out."""
        if "mcpServers" not in params:
            raise Refusal(BAD_PARAMS, "mcpServers is missing")
        servers = [] if params["mcpServers"] is None else params["mcpServers"]
        if not isinstance(servers, list):
            raise Refusal(BAD_PARAMS, "mcpServers must be an array")
        return [server for server in servers if self.can_start(server)]

    def can_start(self, server: object) -> bool:
        """Whether this is a complete stdio server."""
        match server:
            case {"type": "http" | "sse"}:
                startable = False
            case {"name": str(), "command": str(), "args": list(args), "env": list(env)}:
                startable = all(isinstance(arg, str) for arg in args) and all(map(is_variable, env))
            case _:
                startable = False
        if not startable:
            log("left out an MCP server that is no complete stdio server")
        return startable

    def roots_in(self, params: Object) -> list[str]:
        """The additional directories; one bad entry refuses all, for a smaller set is another set."""
        roots = params.get("additionalDirectories")
        if roots is None:
            return []
        if not isinstance(roots, list) or not all(is_absolute(root) for root in roots):
            raise Refusal(BAD_PARAMS, "additionalDirectories must be absolute paths")
        return roots

    def start_servers(self, session: Session, servers: list[Object]) -> list[subprocess.Popen[bytes]]:
        """Start MCP servers; one that cannot be started costs its tools, not the session."""
        started = []
        for server in servers:
            try:
                started.append(self.start_server(session, server))
            except OSError as error:
                log(f"cannot start {server['name']!r}: {error}")
        return started

    def start_server(self, session: Session, server: Object) -> subprocess.Popen[bytes]:
        """Start one MCP server and greet it."""
        process = subprocess.Popen(
            [server["command"], *server["args"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **{variable["name"]: variable["value"] for variable in server["env"]}},
            cwd=session.cwd,
        )
        threading.Thread(target=greet_server, args=(process,), daemon=True).start()
        return process

    def stop_servers(self, session_id: str) -> None:
        """End the MCP servers of a session."""
        for process in self.servers.pop(session_id, []):
            process.terminate()
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # Listing and leaving

    def list_sessions(self, request: Request) -> None:
        """List sessions, the oldest first, a page at a time."""
        cwd, cursor = request.params.get("cwd"), request.params.get("cursor")
        if cwd is not None and not is_absolute(cwd):
            raise Refusal(BAD_PARAMS, "cwd must be an absolute path")
        after = (0.0, "")
        if cursor is not None:
            cwd, after = self.place_of(cursor)
        waiting = [session for session in self.matching(cwd) if (session.created, session.id) > after]
        self.answer(request, self.page_of(cwd, waiting))

    def place_of(self, cursor: object) -> tuple[str | None, tuple[float, str]]:
        """Where the page begins that a cursor stands for."""
        if not isinstance(cursor, str) or cursor not in self.cursors:
            raise Refusal(BAD_PARAMS, "no such cursor")
        return self.cursors[cursor]

    def matching(self, cwd: str | None) -> list[Session]:
        """The stored sessions of a directory, or all, in the order of their making."""
        sessions = [self.read(path) for path in self.home.glob("*.json")]
        return sorted(
            (session for session in sessions if cwd in (None, session.cwd)),
            key=lambda session: (session.created, session.id),
        )

    def page_of(self, cwd: str | None, waiting: list[Session]) -> Object:
        """One page, with a cursor if another follows."""
        page: Object = {"sessions": [self.summary(session) for session in waiting[:PAGE]]}
        if waiting[PAGE:]:
            page["nextCursor"] = secrets.token_hex(8)
            last = waiting[PAGE - 1]
            self.cursors[page["nextCursor"]] = cwd, (last.created, last.id)
        return page

    def summary(self, session: Session) -> Object:
        """What a list says of a session."""
        summary: Object = {"sessionId": session.id, "cwd": session.cwd, "updatedAt": session.updated}
        if session.title:
            summary["title"] = session.title
        if session.roots:
            summary["additionalDirectories"] = session.roots
        return summary

    def close_session(self, request: Request) -> None:
        """Cancel what runs in a session and free what it holds."""
        session = self.session_of(request)
        self.leave(session, lambda: self.answer(request, {}))

    def delete_session(self, request: Request) -> None:
        """Forget a session; one that is not there is as good as forgotten."""
        identity = text_in(request.params, "sessionId")
        if session := self.active.get(identity):
            self.leave(session, lambda: self.forget(request, identity))
        else:
            self.forget(request, identity)

    def forget(self, request: Request, identity: str) -> None:
        """Remove what is stored of a session."""
        if path := self.path_of(identity):
            path.unlink()
        self.answer(request, {})

    def leave(self, session: Session, then: Any) -> None:
        """Cancel a session's turn, and when it has been answered free the session; the reader goes on."""
        with self.changed:
            self.active.pop(session.id, None)
            turn = self.turns.get(session.id)
        if turn is None:
            self.stop_servers(session.id)
            then()
            return

        def wait_and_go_on() -> None:
            with self.changed:
                self.changed.wait_for(lambda: session.id not in self.turns)
            self.stop_servers(session.id)
            then()

        self.cancel_turn(turn)
        threading.Thread(target=wait_and_go_on, daemon=True).start()

    def cancel_turn(self, turn: Any) -> None:
        """Tell a turn to end."""
        raise NotImplementedError

    # Settings

    def modes(self, session: Session) -> Object:
        """The modes, as clients without configuration options know them."""
        available = [{"id": mode, "name": name} for mode, name in MODES.items()]
        return {"currentModeId": session.mode, "availableModes": available}

    def options(self, session: Session) -> list[Object]:
        """All configuration options that this client can show."""
        models = [
            {"group": group.lower(), "name": group, "options": choices(models)}
            for group, models in MODELS.items()
        ]
        options: list[Object] = [
            select("mode", "Mode", session.mode, choices(MODES)),
            select("model", "Model", session.model, models),
        ]
        if self.offers_booleans():
            options.append({"id": "terse", "name": "Terse", "type": "boolean", "currentValue": session.terse})
        return options

    def offers_booleans(self) -> bool:
        """Whether this client has said that it can show a boolean option."""
        return "boolean" in self.offered

    def set_mode(self, request: Request) -> None:
        """Change the mode, and with it the option of that name."""
        session, mode = self.session_of(request), text_in(request.params, "modeId")
        if mode not in MODES:
            raise Refusal(BAD_PARAMS, f"no such mode: {mode}")
        self.change(session, "mode", mode)
        self.answer(request, {})

    def set_option(self, request: Request) -> None:
        """Change one option; the answer has them all."""
        session, option = self.session_of(request), text_in(request.params, "configId")
        value = request.params.get("value")
        self.check_value(session, option, value, request.params.get("type"))
        self.change(session, option, value)
        self.answer(request, {"configOptions": self.options(session)})

    def check_value(self, session: Session, option: str, value: object, type: object) -> None:
        """Refuse an option that was not offered, and a value that it does not have."""
        offered = {entry["id"]: entry for entry in self.options(session)}.get(option)
        if offered is None:
            raise Refusal(BAD_PARAMS, f"no such option: {option}")
        if offered["type"] == "boolean":
            fits = isinstance(value, bool) and type == "boolean"
        else:
            fits = isinstance(value, str) and value in self.values_of(offered)
        if not fits:
            raise Refusal(BAD_PARAMS, f"{option} cannot be {value!r}")

    def values_of(self, option: Object) -> list[str]:
        """The values of a select, those in groups included."""
        groups = [entry.get("options", [entry]) for entry in option["options"]]
        return [choice["value"] for group in groups for choice in group]

    def change(self, session: Session, option: str, value: object) -> None:
        """Change a setting and tell the client, in both ways if it is the mode."""
        with self.changed:
            setattr(session, option, value)
        self.save(session)
        if option == "mode":
            self.update(session, {"sessionUpdate": "current_mode_update", "currentModeId": value})
        self.update(
            session, {"sessionUpdate": "config_option_update", "configOptions": self.options(session)}
        )

    # Finding and storing

    def session_of(self, request: Request) -> Session:
        """The open session that a request is about."""
        identity = text_in(request.params, "sessionId")
        if identity not in self.active:
            raise self.no_session(identity)
        return self.active[identity]

    def stored(self, identity: str) -> Session:
        """A session from its file, or as it is open already."""
        path = self.path_of(identity)
        if path is None:
            raise self.no_session(identity)
        return self.active.get(identity) or self.read(path)

    def no_session(self, identity: str) -> Refusal:
        """What a request for an unknown session is answered with."""
        return Refusal(NOT_FOUND, "no such session", {"uri": identity})

    def path_of(self, identity: str) -> Path | None:
        """The file of a session. A client's text is no path before it has this shape."""
        path = self.home / f"{identity}.json"
        return path if re.fullmatch(r"[\w-]{1,64}", identity) and path.exists() else None

    def read(self, path: Path) -> Session:
        """A session from its file."""
        return Session(**json.loads(path.read_text()))

    def save(self, session: Session) -> None:
        """Store a session, whole or not at all."""
        with self.changed:
            part = self.home / f"{session.id}.part"
            part.write_text(json.dumps(asdict(session)))
            part.replace(self.home / f"{session.id}.json")

    def update(self, session: Session, update: Object) -> None:
        """Tell the client something about a session."""
        self.notify("session/update", {"sessionId": session.id, "update": update})


def select(option: str, name: str, value: str, options: list[Object]) -> Object:
    """A select whose category is its own name."""
    return {
        "id": option,
        "name": name,
        "category": option,
        "type": "select",
        "currentValue": value,
        "options": options,
    }


def choices(names: dict[str, str]) -> list[Object]:
    """The values of a select with their names."""
    return [{"value": value, "name": name} for value, name in names.items()]


def text_in(params: Object, key: str) -> str:
    """A string that a request must have."""
    if not isinstance(params.get(key), str):
        raise Refusal(BAD_PARAMS, f"{key} must be a string")
    text: str = params[key]
    return text


def is_absolute(path: object) -> bool:
    """Whether this is an absolute path."""
    return isinstance(path, str) and Path(path).is_absolute()


def is_variable(entry: object) -> bool:
    """Whether this is an environment variable as ACP writes it."""
    match entry:
        case {"name": str(), "value": str()}:
            return True
    return False


def greet_server(process: subprocess.Popen[bytes]) -> None:
    """Begin the MCP handshake, finish it when the server answers, and keep its pipe empty."""
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "model-agent", "version": "1"},
    }
    try:
        for frame in (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
            process.stdin.flush()
            process.stdout.readline()
        while process.stdout.readline():
            pass
    except (OSError, ValueError) as error:
        log(f"an MCP server left: {error}")


def now() -> str:
    """The time as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
