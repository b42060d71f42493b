"""Clients that are each wrong in one way: faulty.py NAME COMMAND…; FAULTS says which assertion finds it."""

import contextlib
import json
import os
import sys
import threading
import urllib.request
from pathlib import Path

from raw import RawClient, Refusal, Terminal, main, part

FAULTS = {}


def fault(id):
    """Note which assertion is there for this fault."""

    def register(kind):
        FAULTS[kind.__name__] = (id, kind)
        return kind

    return register


@fault("C01")
class Hasty(RawClient):
    """Opens a session before initialize is answered."""

    def initialize(self):
        self.last_id += 1
        self.send({"id": self.last_id, "method": "initialize", "params": self.hello()})
        self.send({"id": "hasty", "method": "session/new", "params": self.setup()})
        return self.answer(self.last_id)


@fault("C01")
class VersionAsText(RawClient):
    def hello(self):
        return {**super().hello(), "protocolVersion": "1"}


@fault("C02")
class AnyVersion(RawClient):
    def initialize(self):
        return {**super().initialize(), "protocolVersion": 1}


@fault("C03")
class ListsAnyway(RawClient):
    def list_sessions(self, hello):
        try:
            self.call("session/list", {})
        except Refusal:
            return


@fault("C04")
class SendsPictures(RawClient):
    def blocks(self):
        return [*super().blocks(), {"type": "image", "data": "", "mimeType": "image/png"}]


@fault("C05")
class RelativeDirectory(RawClient):
    def setup(self):
        return {"cwd": ".", "mcpServers": []}


@fault("C05")
class NoServers(RawClient):
    def setup(self):
        return {"cwd": str(self.directory)}


@fault("C06")
class MoreDirectories(RawClient):
    def setup(self):
        return {**super().setup(), "additionalDirectories": ["/tmp"]}


@fault("C06")
class RelativeMoreDirectories(RawClient):
    """Knows when they may be sent, but not how they must be written."""

    takes_more = False

    def initialize(self):
        hello = super().initialize()
        abilities = part(part(hello, "agentCapabilities"), "sessionCapabilities")
        self.takes_more = isinstance(part(abilities, "additionalDirectories"), dict)
        return hello

    def setup(self):
        return {**super().setup(), **({"additionalDirectories": ["more"]} if self.takes_more else {})}


@fault("C07")
class AllowsAfterCancel(RawClient):
    def permit(self, params):
        answer = super().permit(params)
        if answer["outcome"]["outcome"] == "cancelled":
            answer["outcome"] = {"outcome": "selected", "optionId": params["options"][0]["optionId"]}
        return answer


@fault("C08")
class LeavesAtCancel(RawClient):
    def cancel(self, session):
        self.send({"method": "session/cancel", "params": {"sessionId": session}})
        self.process.stdin.close()
        sys.exit(130)


@fault("C08")
class HangsAfterCancel(RawClient):
    def end(self, answer):
        if self.is_cancelled:
            threading.Event().wait()
        super().end(answer)


@fault("C11")
class DiesOfUnknownUpdates(RawClient):
    def receive(self, message):
        if part(part(part(message, "params"), "update"), "sessionUpdate") == "hologram":
            self.process.kill()
            os._exit(3)
        super().receive(message)


@fault("C12")
class StopsAtABadItem(RawClient):
    """It shows a plan up to the entry that is malformed."""

    def show(self, update):
        for entry in part(update, "entries") or []:
            if not isinstance(part(entry, "content"), str):
                break
            print(entry["content"])
        super().show(update)


@fault("C12")
class DropsTheRestOfTheTurn(RawClient):
    """A bad item in a list makes it ignore all later updates."""

    is_broken = False

    def show(self, update):
        entries = part(update, "entries") or []
        self.is_broken |= any(not isinstance(part(each, "content"), str) for each in entries)
        if not self.is_broken:
            super().show(update)


@fault("C13")
class ServesEveryFile(RawClient):
    def inside(self, path):
        return Path(path)


@fault("C13")
class FollowsLinks(RawClient):
    def inside(self, path):
        if not Path(path).is_relative_to(self.directory):
            raise Refusal(-32602, f"{path} is outside")
        return Path(path)


@fault("C13")
class WritesThroughLinks(RawClient):
    def write_file(self, params):
        self.inside(Path(params["path"]).parent)
        Path(params["path"]).write_text(params["content"])
        return {}


@fault("C13")
class LinesFromZero(RawClient):
    def read_file(self, params):
        return super().read_file({**params, "line": params["line"] + 1} if "line" in params else params)


@fault("C13")
class WritesToNoDisk(RawClient):
    """Keeps what it should write in its memory, and reads it from there."""

    def __init__(self, command):
        super().__init__(command)
        self.written = {}

    def write_file(self, params):
        self.written[self.inside(params["path"])] = params["content"]
        return {}

    def read_file(self, params):
        file = self.inside(params["path"])
        if file not in self.written:
            return super().read_file(params)
        lines = self.written[file].splitlines(keepends=True)[(params.get("line") or 1) - 1 :]
        return {"content": "".join(lines[: params.get("limit")])}


@fault("C13")
class RefusesWhatItHasWritten(RawClient):
    def write_file(self, params):
        Path(params["path"]).write_text(params["content"])
        return super().write_file(params)


@fault("C14")
class CutsCharacters(RawClient):
    def create_terminal(self, params):
        class Cutting(Terminal):
            def kept(self):
                return self.written[-self.limit :]

        self.terminals["t"] = Cutting(params)
        return {"terminalId": "t"}


@fault("C14")
class KeepsTheBeginning(RawClient):
    def create_terminal(self, params):
        class Beginning(Terminal):
            def kept(self):
                return self.written[: self.limit // 4]

        self.terminals["t"] = Beginning(params)
        return {"terminalId": "t"}


@fault("C15")
class KillReleases(RawClient):
    kill_terminal = RawClient.release_terminal


@fault("C15")
class ReleasesNothing(RawClient):
    release_terminal = RawClient.kill_terminal


@fault("C16")
class DeclinesUnknownModes(RawClient):
    """A mode that nobody knows is declined, as if a user had seen it."""

    def elicit(self, params):
        if part(params, "mode") == "hologram":
            return {"action": "decline"}
        return super().elicit(params)


@fault("C16")
class ShowsEveryForm(RawClient):
    def elicit(self, params):
        return {"action": "decline"}


@fault("C17")
class FetchesLinks(RawClient):
    def elicit(self, params):
        answer = super().elicit(params)
        with contextlib.suppress(OSError):
            urllib.request.urlopen(params["url"], timeout=2).close()
        return answer


@fault("C18")
class AuthenticatesInTerminals(RawClient):
    def log_in(self, hello):
        self.call("authenticate", {"methodId": hello["authMethods"][0]["id"]})


@fault("C20")
class AnswersNull(RawClient):
    def serve(self, request):
        if request["method"] in self.services:
            super().serve(request)
        else:
            self.reply(request, result=None)


@fault("C20")
class StaysSilent(RawClient):
    def serve(self, request):
        if request["method"] in self.services:
            super().serve(request)


@fault("C20")
class ReadsCursors(RawClient):
    def call(self, method, params):
        if "cursor" in params:
            params = {"cursor": params["cursor"].strip().lower().replace(" ", "")}
        return super().call(method, params)


@fault("C20")
class BeginsListsAgain(RawClient):
    """Passes on whatever cursor it got, also none, and so never comes to an end."""

    def list_sessions(self, hello):
        listing = part(part(part(hello, "agentCapabilities"), "sessionCapabilities"), "list")
        cursor = None
        while isinstance(listing, dict):
            cursor = self.call("session/list", {"cursor": cursor}).get("nextCursor")


@fault("C20")
class AsksOnAfterTheLastPage(RawClient):
    def call(self, method, params):
        page = super().call(method, params)
        if method == "session/list" and "nextCursor" not in page:
            super().call(method, params)
        return page


@fault("X02")
class InventsOptions(RawClient):
    def permit(self, params):
        return {"outcome": {"outcome": "selected", "optionId": "allow"}}


@fault("X03")
class AnswersTwice(RawClient):
    def reply(self, request, **answer):
        super().reply(request, **answer)
        super().reply(request, **answer)


@fault("X03")
class TextualIds(RawClient):
    def reply(self, request, **answer):
        if request["method"] in self.services:
            super().reply(request, **answer)
        else:
            self.send({"id": str(request["id"]), **answer})


@fault("X03")
class LeavesPermissionsOpen(RawClient):
    def serve(self, request):
        if request["method"] != "session/request_permission":
            super().serve(request)


@fault("X04")
class AnswersPermissionsWithNull(RawClient):
    def permit(self, params):
        return None


@fault("X04")
class OwnKeys(RawClient):
    def hello(self):
        return {**super().hello(), "theme": "dark"}


@fault("X05")
class KnowsAllStopReasons(RawClient):
    def end(self, answer):
        super().end(answer)
        if answer["stopReason"] not in ("end_turn", "cancelled"):
            sys.exit(f"unknown stop reason {answer['stopReason']}")


@fault("X06")
class MissingIsEmpty(RawClient):
    def read_file(self, params):
        try:
            return super().read_file(params)
        except Refusal as refusal:
            if refusal.code != -32002:
                raise
            return {"content": ""}


@fault("X07")
class ForgetsTheEnvironment(RawClient):
    def create_terminal(self, params):
        return super().create_terminal({**params, "env": []})


@fault("X07")
class RunsWhereItRuns(RawClient):
    def create_terminal(self, params):
        return super().create_terminal({**params, "cwd": None})


@fault("X08")
class OneThingAtATime(RawClient):
    def receive(self, message):
        if "method" in message and "id" in message:
            self.serve(message)
        else:
            super().receive(message)


@fault("X09")
class KnowsOnlyItsSessions(RawClient):
    """An update for a session that it does not know yet makes it give up."""

    def receive(self, message):
        is_early = not any("sessionId" in part_of(answer) for answer in self.answers.values())
        if message.get("method") == "session/update" and is_early:
            self.process.kill()
        super().receive(message)


def part_of(answer):
    return part(answer, "result") or {}


@fault("X10")
class TakesNoNoise(RawClient):
    def read(self, process):
        for line in process.stdout:
            try:
                self.receive(json.loads(line))
            except ValueError:
                self.process.kill()
        super().read(process)


@fault("X11")
class LosesUpdates(RawClient):
    """Prints what it has when the answer comes, and forgets what it had queued."""

    shown = 0

    def show(self, update):
        self.shown += 1
        if self.shown < 1000:
            super().show(update)


@fault("X12")
class ShortLines(RawClient):
    def read(self, process):
        while line := process.stdout.readline(1 << 20):
            if len(line) == 1 << 20:
                self.process.kill()
            try:
                self.receive(json.loads(line))
            except (ValueError, AttributeError):
                continue
        super().read(process)


@fault("X13")
class WaitsForEver(RawClient):
    def answer(self, id):
        with self.news:
            self.news.wait_for(lambda: id in self.answers)
        return super().answer(id)


@fault("X14")
class HidesErrors(RawClient):
    def run(self):
        try:
            super().run()
        except Refusal:
            sys.exit(0)


if __name__ == "__main__":
    main(FAULTS[sys.argv[1]][1], sys.argv[2:])
