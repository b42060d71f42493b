"""Faults of the connection: the greeting, the lines, the login."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import ClassVar

from fault import Fault
from model import SWITCHES, ModelAgent, leaf
from model_turn import Turn
from model_wire import BAD_PARAMS, INTERNAL_ERROR, UNKNOWN_METHOD, Cancellable, Object, Refusal, Request


class AnswersAVersionInWords(Fault):
    """The version in the greeting is a string."""

    assertion = "A01"

    def greeting(self) -> Object:
        return super().greeting() | {"protocolVersion": "1"}


class RefusesNewerVersions(Fault):
    """A version that is too new is an error, not a reason to offer the own one."""

    assertion = "A02"

    def check_version(self, version: object) -> None:
        super().check_version(version)
        if version != 1:
            raise Refusal(BAD_PARAMS, "unsupported version")


class ReadsAnyVersion(Fault):
    """What is no version is taken for one."""

    assertion = "A03"

    def check_version(self, version: object) -> None:
        pass


class WantsCapabilities(Fault):
    """A client that sends no capabilities is refused."""

    assertion = "A04"

    def offered_in(self, params: Object) -> set[str]:
        if "clientCapabilities" not in params:
            raise Refusal(BAD_PARAMS, "clientCapabilities is missing")
        return super().offered_in(params)


class TakesAnyValueForOn(Fault):
    """A capability is on if its value is true enough for Python."""

    assertion = "A05"

    def is_on(self, value: object) -> bool:
        return bool(value)


class DropsTheNeighboursOfABadLeaf(Fault):
    """One malformed capability turns all others off."""

    assertion = "A05"

    def offered_in(self, params: Object) -> set[str]:
        leaves = [leaf(params.get("clientCapabilities"), path) for path in SWITCHES.values()]
        return (
            super().offered_in(params) if all(isinstance(value, bool | None) for value in leaves) else set()
        )


class HasNoName(Fault):
    """The greeting does not say who the agent is."""

    assertion = "A06"

    def greeting(self) -> Object:
        return {key: value for key, value in super().greeting().items() if key != "agentInfo"}


class DiesBeforeTheGreeting(Fault):
    """A request that comes too early ends the process."""

    assertion = "A07"

    def require_greeting(self) -> None:
        if not self.greeted:
            os._exit(1)


class WorksBeforeTheGreeting(Fault):
    """A session can be opened before initialize."""

    assertion = "A07"

    def require_greeting(self) -> None:
        pass


class PrintsItsLog(Fault):
    """A line of the log is printed to stdout."""

    assertion = "A08"

    def new_session(self, request: Request) -> None:
        self.write(b"INFO opening a session\n")
        super().new_session(request)


class PrintsItsTraces(Fault):
    """The trace of an error is printed to stdout."""

    assertion = "A08"

    def answer_unknown(self, request: Request) -> None:
        self.write(b"Traceback (most recent call last):\n  KeyError\n")
        super().answer_unknown(request)


class BreaksItsLines(Fault):
    """A message is spread over several lines."""

    assertion = "A08"

    def send(self, frame: Object) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **frame}, indent=2).encode() + b"\n")


class WritesHeaders(Fault):
    """Messages have headers, as with language servers."""

    assertion = "A08"

    def send(self, frame: Object) -> None:
        body = json.dumps({"jsonrpc": "2.0", **frame}).encode()
        self.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


class EndsNoLines(Fault):
    """Messages have no line ends."""

    assertion = "A08"

    def send(self, frame: Object) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **frame}).encode())


class NeverFlushes(Fault):
    """What is written stays in a buffer until the process ends."""

    assertion = "A01"
    buffer = b""

    def write(self, data: bytes) -> None:
        self.buffer += data

    def finish(self) -> None:
        super().finish()
        super().write(self.buffer)


class WritesLatin1(Fault):
    """The output is not UTF-8."""

    assertion = "A08"

    def greeting(self) -> Object:
        return super().greeting() | {"agentInfo": {"name": "modèle", "version": "1"}}

    def send(self, frame: Object) -> None:
        text = json.dumps({"jsonrpc": "2.0", **frame}, ensure_ascii=False)
        self.write(text.encode("latin-1", "replace") + b"\n")


class FloodsStdout(Fault):
    """Megabytes of garbage come before the greeting."""

    assertion = "A08"

    def greeting(self) -> Object:
        self.write(b"loading the model, please wait\n" * 50_000)
        return super().greeting()


class FloodsStderr(Fault):
    """Megabytes of log come before the greeting, which is allowed: nobody may stop reading stderr."""

    assertion = "none"

    def greeting(self) -> Object:
        print("loading the model, please wait\n" * 50_000, file=sys.stderr)
        return super().greeting()


class ReadsShortLinesOnly(Fault):
    """A line of more than 64 KiB ends the process, as asyncio's default would."""

    assertion = "A09"

    def lines(self) -> Iterable[bytes]:
        for line in super().lines():
            if len(line) > 65_536:
                os._exit(1)
            yield line


class DiesOfBrokenJson(Fault):
    """A line that is no JSON ends the process."""

    assertion = "A10"

    def refuse_line(self, reason: str) -> None:
        os._exit(1)


class AnswersNullOnUnknownMethod(Fault):
    """An unknown request has a result."""

    assertion = "A11"

    def answer_unknown(self, request: Request) -> None:
        self.send({"id": request.id, "result": None})


class AnswersUnknownNotifications(Fault):
    """An unknown notification is answered with an error."""

    assertion = "A11"

    def ignore_notification(self, message: Object) -> None:
        if message["method"] not in self.notifications:
            self.send_error(None, Refusal(UNKNOWN_METHOD, "unknown notification"))


class TurnsIdsIntoStrings(Fault):
    """The id of an answer is always a string."""

    assertion = "A12"

    def send(self, frame: Object) -> None:
        super().send(frame if "method" in frame else {**frame, "id": str(frame["id"])})


class LosesTheIdZero(Fault):
    """An id that is false for Python is lost."""

    assertion = "A12"

    def send(self, frame: Object) -> None:
        super().send(frame if "method" in frame else {**frame, "id": frame["id"] or None})


class RoundsLargeIds(Fault):
    """A large id goes through a float."""

    assertion = "A12"

    def send(self, frame: Object) -> None:
        whole = "method" in frame or type(frame["id"]) is not int
        super().send(frame if whole else {**frame, "id": int(float(frame["id"]))})


class RoundsLargeIdsLate(RoundsLargeIds):
    """A large id goes through a float, and the answer comes after that to a later request."""

    def write(self, data: bytes) -> None:
        if json.loads(data).get("id") == 2**53:
            threading.Timer(0.3, super().write, (data,)).start()
        else:
            super().write(data)


class AnswersMalformedNotifications(Fault):
    """A cancel without params is answered with an error."""

    assertion = "A13"

    def ignore_notification(self, message: Object) -> None:
        if message["method"] in self.notifications:
            self.send_error(None, Refusal(BAD_PARAMS, "params are missing"))


class DoesOneThingAtATime(Fault):
    """The thread that reads also takes the turns."""

    assertion = "A14"

    def start_turn(self, turn: Turn) -> None:
        self.run_turn(turn)

    def ask(
        self, turn: Cancellable | None, method: str, params: Object, *, seconds: float | None = None
    ) -> Object:
        return super().ask(turn, method, params, seconds=seconds or 10)


class OutlivesItsInput(Fault):
    """The end of the input does not end the process."""

    assertion = "A15"

    def finish(self) -> None:
        super().finish()
        time.sleep(60)


class LeavesOrphans(Fault):
    """A child of the process lives on after it."""

    assertion = "A15"

    def new_session(self, request: Request) -> None:
        nothing = subprocess.DEVNULL
        child = [sys.executable, "-c", "import time; time.sleep(60)"]
        subprocess.Popen(child, stdin=nothing, stdout=nothing, stderr=nothing)
        super().new_session(request)


class AlwaysOffersATerminalLogin(Fault):
    """A login in a terminal is offered to clients that have none."""

    assertion = "A16"
    needs_login = True

    def logins(self) -> list[Object]:
        self.offered.add("terminal login")
        return super().logins()


class AcceptsAnyLogin(Fault):
    """A login that was never offered succeeds."""

    assertion = "A17"
    needs_login = True

    def check_login(self, method: str) -> None:
        pass


class LocksWithTheWrongCode(Fault):
    """Who has not logged in gets an internal error."""

    assertion = "A18"
    needs_login = True

    def require_login(self) -> None:
        if not self.logged_in:
            raise Refusal(INTERNAL_ERROR, "please log in")


class StaysLockedAfterTheLogin(Fault):
    """A login succeeds and changes nothing."""

    assertion = "A18"
    needs_login = True

    def authenticate(self, request: Request) -> None:
        super().authenticate(request)
        self.logged_in = False


class NeverLogsOut(Fault):
    """A logout succeeds and changes nothing."""

    assertion = "A19"
    needs_login = True

    def logout(self, request: Request) -> None:
        self.answer(request, {})


class LogsOutUnadvertised(Fault):
    """A logout that was not advertised succeeds."""

    assertion = "A19"

    def answer_login_unadvertised(self, request: Request) -> None:
        if request.method != "logout":
            super().answer_login_unadvertised(request)


class AdvertisesWhatIsMissing(Fault):
    """Sessions can be listed, says the greeting, and there is no such method."""

    assertion = "A20"
    methods: ClassVar[dict[str, str]] = {
        method: name for method, name in ModelAgent.methods.items() if method != "session/list"
    }


class ServesWhatItHides(Fault):
    """Sessions cannot be deleted, says the greeting, and they can."""

    assertion = "A20"

    def capabilities(self) -> Object:
        capabilities = super().capabilities()
        del capabilities["sessionCapabilities"]["delete"]
        return capabilities


class AddsRootKeys(Fault):
    """The greeting has a key of its own beside those of the protocol."""

    assertion = "A60"

    def greeting(self) -> Object:
        return super().greeting() | {"vendor": "model"}


class RefusesMeta(Fault):
    """A request with `_meta` is refused."""

    assertion = "A60"

    def admit(self, request: Request) -> None:
        if "_meta" in request.params:
            raise Refusal(BAD_PARAMS, "unknown key _meta")
        super().admit(request)


class RefusesUnknownKeys(Fault):
    """A request with a key that the protocol does not know is refused."""

    assertion = "A60"

    def admit(self, request: Request) -> None:
        known = {
            "_meta",
            "protocolVersion",
            "clientCapabilities",
            "clientInfo",
            "methodId",
            "sessionId",
            "cwd",
        }
        known |= {
            "mcpServers",
            "additionalDirectories",
            "cursor",
            "modeId",
            "configId",
            "value",
            "type",
            "prompt",
        }
        if request.params.keys() - known:
            raise Refusal(BAD_PARAMS, "unknown key")
        super().admit(request)
