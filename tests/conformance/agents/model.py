"""A complete agent for ACP 1, written against the protocol alone: the measure of the conformance kit.

It uses nothing but the standard library, so that the kit is proven against code it was not fitted to.
`MODEL_AGENT_HOME` is the directory of its sessions; `MODEL_AGENT_AUTH=1` makes it want a login first.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import ClassVar

from model_sessions import text_in
from model_turn import Turns
from model_wire import BAD_PARAMS, INVALID_REQUEST, LOGIN_REQUIRED, UNKNOWN_METHOD, Object, Refusal, Request

VERSION = 1

SWITCHES = {
    "read": ("fs", "readTextFile"),
    "write": ("fs", "writeTextFile"),
    "terminal": ("terminal",),
    "terminal login": ("auth", "terminal"),
}
"""The client's capabilities that are true or false."""

OBJECTS = {
    "boolean": ("session", "configOptions", "boolean"),
    "compaction": ("session", "compaction"),
    "notices": ("session", "notices"),
    "form": ("elicitation", "form"),
    "url": ("elicitation", "url"),
}
"""The client's capabilities that are there if they are an object."""


class ModelAgent(Turns):
    """The first words of a connection, and who may ask for what."""

    methods: ClassVar[dict[str, str]] = {
        "initialize": "initialize",
        "authenticate": "authenticate",
        "logout": "logout",
        "session/new": "new_session",
        "session/load": "load_session",
        "session/resume": "resume_session",
        "session/list": "list_sessions",
        "session/delete": "delete_session",
        "session/close": "close_session",
        "session/set_mode": "set_mode",
        "session/set_config_option": "set_option",
        "session/prompt": "prompt",
    }
    notifications: ClassVar[dict[str, str]] = {
        "session/cancel": "cancel_session",
        "$/cancel_request": "cancel_request",
    }
    needs_login = os.environ.get("MODEL_AGENT_AUTH") == "1"

    def __init__(self) -> None:
        super().__init__()
        self.greeted = False
        self.logged_in = self.login.exists()

    @property
    def login(self) -> Path:
        """The file that a login in a terminal leaves behind."""
        return self.home / "login"

    def initialize(self, request: Request) -> None:
        """Agree on the version, which is always 1, and learn what the client offers."""
        self.check_version(request.params.get("protocolVersion"))
        self.offered = self.offered_in(request.params)
        self.greeted = True
        self.answer(request, self.greeting())

    def check_version(self, version: object) -> None:
        """Refuse what is not a version at all; one that is too new is none of the agent's business."""
        if type(version) is not int or not 0 <= version <= 65_535:
            raise Refusal(BAD_PARAMS, "protocolVersion must be an integer from 0 to 65535")

    def offered_in(self, params: Object) -> set[str]:
        """The client's capabilities; one that is malformed is off, and its neighbours are not."""
        sent = params.get("clientCapabilities")
        on = {name for name, path in SWITCHES.items() if self.is_on(leaf(sent, path))}
        return on | {name for name, path in OBJECTS.items() if isinstance(leaf(sent, path), dict)}

    def is_on(self, value: object) -> bool:
        """Whether a switch is on."""
        return value is True

    def greeting(self) -> Object:
        """What the agent is and can do."""
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "model-agent", "title": "Model agent", "version": "1.0"},
            "agentCapabilities": self.capabilities(),
            "authMethods": self.logins() if self.needs_login else [],
        }

    def capabilities(self) -> Object:
        """All of stable ACP 1 but audio and remote MCP servers."""
        return {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {
                "list": {},
                "delete": {},
                "resume": {},
                "close": {},
                "additionalDirectories": {},
            },
            "auth": {"logout": {}} if self.needs_login else {},
        }

    def logins(self) -> list[Object]:
        """The ways to log in; the one in a terminal is for clients that have one."""
        logins: list[Object] = [{"id": "key", "name": "Key"}]
        if "terminal login" in self.offered:
            logins.append({"type": "terminal", "id": "shell", "name": "In a terminal", "args": ["--login"]})
        return logins

    def authenticate(self, request: Request) -> None:
        """Log in by the one method that needs no terminal."""
        self.check_login(text_in(request.params, "methodId"))
        self.logged_in = True
        self.answer(request, {})

    def check_login(self, method: str) -> None:
        """Refuse a way to log in that was not offered, or that is not for this call."""
        if method != "key":
            raise Refusal(BAD_PARAMS, f"cannot log in by {method!r}")

    def logout(self, request: Request) -> None:
        """Log out, also for the processes to come."""
        self.login.unlink(missing_ok=True)
        self.logged_in = False
        self.answer(request, {})

    def admit(self, request: Request) -> None:
        """Let the greeting come first, then the login, then the rest."""
        if request.method == "initialize":
            return
        self.require_greeting()
        if request.method.startswith("session/"):
            self.require_login()
        elif not self.needs_login:
            self.answer_login_unadvertised(request)

    def require_greeting(self) -> None:
        """Refuse to go on with a client that has not said hello."""
        if not self.greeted:
            raise Refusal(INVALID_REQUEST, "initialize comes first")

    def require_login(self) -> None:
        """Refuse to work for a user who has not logged in."""
        if self.needs_login and not self.logged_in:
            raise Refusal(LOGIN_REQUIRED, "please log in")

    def answer_login_unadvertised(self, request: Request) -> None:
        """Know no login where none is needed."""
        raise Refusal(UNKNOWN_METHOD, f"unknown method {request.method}")


def leaf(sent: object, path: tuple[str, ...]) -> object:
    """A value deep in an object, or nothing if the path breaks off."""
    for key in path:
        sent = sent.get(key) if isinstance(sent, dict) else None
    return sent


def run(agent: ModelAgent) -> None:
    """Serve until the client leaves or the process is told to end; or only log in, as a terminal does."""
    if "--login" in sys.argv[1:]:
        agent.login.touch()
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    agent.serve()


if __name__ == "__main__":
    run(ModelAgent())
