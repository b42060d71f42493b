"""Faults of sessions: how they are opened, loaded, listed and left."""

from __future__ import annotations

import subprocess

from fault import Fault
from model_sessions import PAGE, Session, is_absolute
from model_turn import Turn
from model_wire import BAD_PARAMS, Object, Refusal, Request


class HangsOnANewSession(Fault):
    """A request for a session is never answered."""

    assertion = "alive"

    def new_session(self, request: Request) -> None:
        pass


class ReusesSessionIds(Fault):
    """All sessions have one id."""

    assertion = "A21"

    def new_id(self) -> str:
        return "session"


class TakesARelativeCwd(Fault):
    """A session can be opened in a relative directory."""

    assertion = "A22"

    def check_cwd(self, cwd: str) -> None:
        if is_absolute(cwd):
            super().check_cwd(cwd)


class TakesMissingServers(Fault):
    """A session can be opened without mcpServers."""

    assertion = "A24"

    def servers_in(self, params: Object) -> list[Object]:
        return super().servers_in({"mcpServers": [], **params})


class RefusesNullServers(Fault):
    """A null for mcpServers is refused."""

    assertion = "A24"

    def servers_in(self, params: Object) -> list[Object]:
        if params.get("mcpServers", []) is None:
            raise Refusal(BAD_PARAMS, "mcpServers must be an array")
        return super().servers_in(params)


class StartsNoServers(Fault):
    """MCP servers are accepted and never started."""

    assertion = "A25"

    def start_servers(self, session: Session, servers: list[Object]) -> list[subprocess.Popen[bytes]]:
        return []


class DropsServerArguments(Fault):
    """An MCP server is started without its arguments."""

    assertion = "A25"

    def start_server(self, session: Session, server: Object) -> subprocess.Popen[bytes]:
        return super().start_server(session, {**server, "args": []})


class DropsServerVariables(Fault):
    """An MCP server is started without its environment variables."""

    assertion = "A25"

    def start_server(self, session: Session, server: Object) -> subprocess.Popen[bytes]:
        return super().start_server(session, {**server, "env": []})


class FailsOnABadServer(Fault):
    """One malformed MCP server costs the session."""

    assertion = "A25"

    def can_start(self, server: object) -> bool:
        if not super().can_start(server):
            raise Refusal(BAD_PARAMS, "a malformed MCP server")
        return True


class DropsBadDirectories(Fault):
    """A relative additional directory is left out in silence."""

    assertion = "A26"

    def roots_in(self, params: Object) -> list[str]:
        roots = [root for root in params.get("additionalDirectories") or [] if is_absolute(root)]
        return super().roots_in({"additionalDirectories": roots})


class RevivesStoredDirectories(Fault):
    """A session that is loaded without additional directories has its old ones."""

    assertion = "A27"

    def roots_on_reopening(self, session: Session, sent: list[str]) -> list[str]:
        return sent or session.roots


class ReplaysAfterTheAnswer(Fault):
    """The answer to a load comes before the conversation."""

    assertion = "A28"

    def load_session(self, request: Request) -> None:
        session = self.reopen(request)
        self.answer_opened(request, session)
        self.replay(session)


class ReplaysItselfOnly(Fault):
    """A load leaves out what the user said."""

    assertion = "A28"

    def replay(self, session: Session) -> None:
        for update in session.history:
            if update["sessionUpdate"] != "user_message_chunk":
                self.update(session, update)


class ReplaysTheUserOnly(Fault):
    """A load leaves out what the agent said."""

    assertion = "A28"

    def replay(self, session: Session) -> None:
        for update in session.history:
            if update["sessionUpdate"] == "user_message_chunk":
                self.update(session, update)


class ReplaysTheUserLast(Fault):
    """A load shows what the user said after what the agent said."""

    assertion = "A28"

    def replay(self, session: Session) -> None:
        for update in sorted(session.history, key=lambda update: str(update["sessionUpdate"])[0] == "u"):
            self.update(session, update)


class OpensGhosts(Fault):
    """A load of a session that never was opens an empty one."""

    assertion = "A29"

    def reopen(self, request: Request) -> Session:
        if self.path_of(request.params["sessionId"]):
            return super().reopen(request)
        cwd, servers, roots = self.setup_of(request.params)
        session = Session(request.params["sessionId"], cwd, roots)
        self.activate(session, servers)
        return session


class ReplaysOnResume(Fault):
    """A resume shows the conversation again."""

    assertion = "A30"

    def resume_session(self, request: Request) -> None:
        request.params.setdefault("mcpServers", [])
        self.load_session(request)


class ForgetsOnResume(Fault):
    """A resumed session does not know what was said."""

    assertion = "A30"

    def resume_session(self, request: Request) -> None:
        super().resume_session(request)
        session = self.active[request.params["sessionId"]]
        session.prompts, session.history = 0, []


class IgnoresTheDirectory(Fault):
    """A list has sessions of all directories, whichever is asked for."""

    assertion = "A31"

    def matching(self, cwd: str | None) -> list[Session]:
        return super().matching(None)


class AnswersNullForNoSessions(Fault):
    """An empty list is null."""

    assertion = "A31"

    def page_of(self, cwd: str | None, waiting: list[Session]) -> Object:
        return super().page_of(cwd, waiting) if waiting else {"sessions": None}


class ListsNothing(Fault):
    """The list is always empty."""

    assertion = "A31"

    def matching(self, cwd: str | None) -> list[Session]:
        return []


class ListsRelativeDirectories(Fault):
    """A list has relative directories."""

    assertion = "A31"

    def summary(self, session: Session) -> Object:
        return super().summary(session) | {"cwd": session.cwd.rpartition("/")[2] or "."}


class PagesForever(Fault):
    """The last page of a list has a cursor, which leads to the first."""

    assertion = "A32"

    def page_of(self, cwd: str | None, waiting: list[Session]) -> Object:
        self.cursors["again"] = cwd, (0.0, "")
        return {"nextCursor": "again", **super().page_of(cwd, waiting)}


class RepeatsSessions(Fault):
    """A page begins with the last session of the page before."""

    assertion = "A32"

    def page_of(self, cwd: str | None, waiting: list[Session]) -> Object:
        page = super().page_of(cwd, waiting)
        if "nextCursor" in page:
            before = waiting[PAGE - 2]
            self.cursors[page["nextCursor"]] = cwd, (before.created, before.id)
        return page


class TakesAForgedCursor(Fault):
    """A cursor that was never given leads to the first page."""

    assertion = "A32"

    def place_of(self, cursor: object) -> tuple[str | None, tuple[float, str]]:
        return super().place_of(cursor) if cursor in self.cursors else (None, (0.0, ""))


class RefusesASecondDelete(Fault):
    """A session that is not there cannot be deleted."""

    assertion = "A33"

    def forget(self, request: Request, identity: str) -> None:
        if self.path_of(identity) is None:
            raise self.no_session(identity)
        super().forget(request, identity)


class KeepsWhatItDeletes(Fault):
    """A deleted session is still in the list."""

    assertion = "A33"

    def forget(self, request: Request, identity: str) -> None:
        self.answer(request, {})


class StaysOpenAfterClose(Fault):
    """A closed session takes prompts."""

    assertion = "A34"

    def close_session(self, request: Request) -> None:
        session = self.session_of(request)
        super().close_session(request)
        self.active[session.id] = session


class ForgetsThePromptOnClose(Fault):
    """A prompt that is cancelled by a close is never answered."""

    assertion = "A34"

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        if turn.session.id in self.active:
            super().answer_prompt(turn, failure)


class UpdatesBeforeTheAnswer(Fault):
    """A message speaks in a session whose id the client does not have yet."""

    assertion = "T11"

    def answer_opened(self, request: Request, session: Session, **more: str) -> None:
        if more:
            hello = {"type": "text", "text": "Welcome."}
            self.update(session, {"sessionUpdate": "agent_message_chunk", "content": hello})
        super().answer_opened(request, session, **more)
