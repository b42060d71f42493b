"""Reports a tool call while it runs, and asks whether it may."""

from __future__ import annotations

import asyncio
import logging
import os
import os.path
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, cast, get_args

import msgspec
from msgspec import UNSET

from coupler.agent.content import block, chosen, json_value, plain_text
from coupler.agent.errors import NotPermittedError, describe
from coupler.events import ToolCall, ToolOutput, ToolUpdate
from coupler.events.events import CANCELLED_META, OPEN_STATUSES, plain_text_of
from coupler.events.fold import FoldedCall, text_content
from coupler.mcp.tool_names import qualified_name
from coupler.schema.v1 import (
    Content,
    ContentBlock,
    Diff,
    PermissionToolCall,
    Terminal,
    TextContent,
    ToolCallContent,
    ToolCallLocation,
    ToolKind,
)

if TYPE_CHECKING:
    from coupler.agent.permission import TurnDialog
    from coupler.agent.turn import Turn
    from coupler.permission.action import Action
    from coupler.permission.decision import Permission, Verdict
    from coupler.permission.rules import Rule

KINDS: tuple[str, ...] = get_args(ToolKind)
LAST_LINE = 2**32 - 1
UNANSWERED = "not permitted: the question was not answered"


class Call:
    """A tool call: announced as pending, run once it is allowed or goes on unasked, ended with its block."""

    def __init__(
        self,
        turn: Turn,
        title: str,
        *,
        kind: ToolKind,
        name: str | None,
        path: str | None,
        line: int | None,
        input: Any,
        id: str | None,
        command: str | Sequence[str] | None = None,
        url: str | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        server: str | None = None,
    ) -> None:
        self.title = plain_text(title, "a tool call's title")
        self.kind = cast(ToolKind, chosen(kind, KINDS, "a tool call's kind"))
        self.id = plain_text(id, "a tool call's id") if id is not None else ""
        self._turn = turn
        self._name = plain_text(name, "a tool's name") if name is not None else None
        self._server = server
        self._command = _command(command)
        self._env = _variables(turn, env) if env else {}
        self._cwd = directory_of(turn, cwd)
        self._urls = (plain_text(url, "a tool call's address"),) if url is not None else ()
        self._input = self._with_judged(json_value(input) if input is not None else UNSET)
        self._locations: list[ToolCallLocation] = []
        self._paths: list[str] = []
        self._is_open = False
        self._outer: Call | None = None
        self._started = False
        self._is_running = False
        self._refused: str | None = None
        self._failure: str | None = None
        self._is_permitted = False
        if path is not None:
            self._locations.append(self._location(path, line))

    async def __aenter__(self) -> Self:
        await self.open()
        step_into(self)
        # Code that goes on without asking is running; code that asks next does so before this is called.
        asyncio.get_running_loop().call_soon(self.start)
        return self

    async def open(self) -> None:
        """Announce the call."""
        self._turn.check_alive()
        self._turn.begin_new_message()
        self.id = self._ledger.announce(
            self.title,
            id=self.id or None,
            kind=self.kind,
            status="pending",
            name=self._shown_name or UNSET,
            locations=tuple(self._locations) or UNSET,
            raw_input=self._input,
        )
        self._is_open = True
        await self._turn.session.outlet.wait_for_room()

    def start(self) -> None:
        """Report that the call runs, unless it has been asked for or reported meanwhile."""
        if not self._started:
            self._started = self._is_running = True
            self._ledger.update(self.id, status="in_progress")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        step_out_of(self)
        self._is_open = False
        self._started = True
        if isinstance(error, asyncio.CancelledError):
            self._fail("cancelled", meta=CANCELLED_META)
        elif error is not None:
            self._fail(describe(error))
        elif (reason := self._refused or self._failure) is not None:
            self._fail(reason)
        else:
            self._ledger.settle(self.id, "completed")

    async def output(self, content: str | ContentBlock) -> None:
        """Add text, an image or another block to what the call shows."""
        if isinstance(content, str):
            await self._show(text_content(plain_text(content, "a tool's output")), starts=True)
        else:
            await self._show(Content(block(content, "a tool's output")), starts=True)

    async def describe(self, text: str) -> None:
        """Add text that says what the call is about; it may be shown before it is asked about."""
        await self._show(text_content(plain_text(text, "a tool's description")), starts=False)

    async def diff(self, path: str, old: str | None, new: str) -> None:
        """Add a change of a file; `old` is None for a new one. It may be shown before it is asked about."""
        new = plain_text(new, "a file's new text")
        old = plain_text(old, "a file's old text") if old is not None else None
        absolute = self._absolute(path)
        self._paths.append(absolute)
        await self._show(Diff(absolute, new, old), starts=False)

    async def locate(self, path: str, line: int | None = None) -> None:
        """Add a place in a file that the call works on, which editors can follow."""
        location = self._location(path, line)
        if location not in self._locations:
            self._locations.append(location)
            await self._report(locations=tuple(self._locations))

    async def retitle(self, title: str) -> None:
        """Show another title."""
        self.title = plain_text(title, "a tool call's title")
        await self._report(title=self.title)

    async def input(self, value: Any) -> None:
        """Report what the tool was called with; any object will do."""
        self._input = self._with_judged(json_value(value))
        await self._report(raw_input=self._input)

    async def result(self, value: Any) -> None:
        """Report what the tool returned; any object will do."""
        await self._report(starts=True, raw_output=json_value(value))

    def fail(self, reason: str) -> None:
        """Report the call as failed for this reason, once its block is left; there is no exception."""
        self._failure = plain_text(reason, "a reason")

    @property
    def refusal(self) -> str | None:
        """The reason why the call is not permitted, if it is not."""
        return self._refused

    async def permitted(self, *, deadline: float | None = None) -> bool:
        """Return whether the call is permitted: by the rules, by an earlier choice, or by asking the user.

        The user has `deadline` seconds to answer, or any time. Anything but a clear yes is a no, and
        leaving the block then fails the call.
        """
        if not self._is_open:
            raise RuntimeError("ask inside of the call's block: `async with turn.tool(…) as call`")
        self._started = True
        # As long as there is no answer, and if none can be had, it is a no.
        self._refused, self._is_permitted = UNANSWERED, False
        permissions = self._turn.session.project.permissions()
        return self._decided(
            await permissions.decide(self._action(), self._dialog(deadline), also=self._further_rules())
        )

    def _further_rules(self) -> Sequence[Rule]:
        """Return rules that hold for this call besides those of the session."""
        return ()

    def _dialog(self, deadline: float | None) -> TurnDialog:
        from coupler.agent.permission import TurnDialog

        return TurnDialog(self._turn, self._as_asked, deadline=deadline)

    def _decided(self, permission: Permission) -> bool:
        self._started = True
        self._refused = None if permission.is_given else permission.reason
        self._is_permitted = permission.is_given
        if permission.is_given:
            self._go_on()
        return permission.is_given

    def _go_on(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._ledger.update(self.id, status="in_progress")

    # What a call yields starts it; what only describes it does not, because the user may be asked next.

    async def _show(self, item: ToolCallContent, *, starts: bool) -> None:
        self._turn.check_alive()
        starts = starts and not self._started
        self._started = self._started or starts
        self._is_running = self._is_running or starts
        self._ledger.append(self.id, item, starts=starts)
        await self._turn.session.outlet.wait_for_room()

    async def _report(self, *, starts: bool = False, **fields: Any) -> None:
        self._turn.check_alive()
        if starts and not self._started:
            self._started = self._is_running = True
            fields["status"] = "in_progress"
        self._ledger.update(self.id, **fields)
        await self._turn.session.outlet.wait_for_room()

    def _fail(self, reason: str, **fields: Any) -> None:
        self._ledger.settle(self.id, "failed", reason, **fields)

    def _with_judged(self, shown: Any) -> Any:
        """Return the tool's input, always with the command, variables and address that are judged."""
        judged: dict[str, Any] = {"command": self._command} if self._command is not None else {}
        if self._env:
            judged["env"] = self._env
        if self._cwd != self._turn.session.cwd:
            judged["cwd"] = self._cwd
        if self._urls:
            judged["url"] = self._urls[0]
        if not judged or shown is UNSET:
            return judged or shown
        return {**(shown if isinstance(shown, dict) else {"input": shown}), **judged}

    def _action(self) -> Action:
        """Return the call as the action to judge, with what was reported of it so far."""
        from coupler.permission.action import Action, given_variables

        session = self._turn.session
        return Action(
            kind=self.kind,
            name=self._name,
            server=self._server,
            paths=tuple(dict.fromkeys((*(location.path for location in self._locations), *self._paths))),
            command=self._command,
            urls=self._urls,
            env=given_variables(self._env.items()),
            cwd=self._cwd,
            roots=session.roots,
        )

    @property
    def _shown_name(self) -> str | None:
        """The tool's name as the client gets it: rules there need its MCP server as well."""
        return None if self._name is None else qualified_name(self._server, self._name)

    def _as_asked(self) -> PermissionToolCall:
        return PermissionToolCall(
            self.id,
            kind=self.kind,
            status="in_progress" if self._is_running else "pending",
            title=self.title,
            name=self._shown_name or UNSET,
            content=self._ledger.content(self.id) or UNSET,
            locations=tuple(self._locations) or UNSET,
            raw_input=self._input,
        )

    def _location(self, path: str, line: int | None) -> ToolCallLocation:
        if line is None:
            return ToolCallLocation(self._absolute(path))
        if not 0 <= index(line) <= LAST_LINE:
            raise ValueError(f"a line is a number from 0 on, not {line}")
        return ToolCallLocation(self._absolute(path), index(line))

    def _absolute(self, path: str) -> str:
        whole = os.path.join(self._turn.session.cwd, plain_text(os.fspath(path), "a path"))
        if ".." in whole.split(os.sep):
            # After a link `..` leads elsewhere than it looks: the path is judged as it was given, too.
            self._paths.append(whole)
        return os.path.normpath(whole)

    @property
    def _ledger(self) -> Ledger:
        return self._turn.session.outlet.ledger


def _command(command: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    if command is None or isinstance(command, str):
        return plain_text(command, "a tool call's command") if command is not None else None
    return tuple(plain_text(word, "a word of a command") for word in command)


def _variables(turn: Turn, env: Mapping[str, str | None]) -> dict[str, str | None]:
    """Check a command's variables, and redact the secrets among them from what the user is shown."""
    given = {plain_text(name, "a variable's name"): value for name, value in env.items()}
    values = {
        name: plain_text(value, f"the variable {name}") for name, value in given.items() if value is not None
    }
    turn.session.secrets.notice(values)
    return given


async def ask_about(call: Call, verdict: Verdict) -> Permission:
    """Ask the user about a call, as the dialog of a decision that its caller has others make."""
    call._started = True
    call._refused, call._is_permitted = UNANSWERED, False
    permission = await call._dialog(None)(verdict)
    call._decided(permission)
    return permission


_innermost: ContextVar[Call | None] = ContextVar("innermost_call", default=None)


def innermost_call(turn: Turn) -> Call | None:
    """Return the open call whose block the running code is in: tasks that it starts are in it too."""
    return _open_one(_innermost.get(), turn)


def check_not_refused(turn: Turn) -> None:
    """Raise if the running code is in the block of a call that may not go on.

    A call in that block does not help, unless it was permitted itself.
    """
    call = innermost_call(turn)
    while call is not None and not call._is_permitted:
        if call._refused is not None:
            raise NotPermittedError(
                f"the tool call {call.title!r} may do nothing more ({call._refused}): "
                "leave its block when permitted() is false"
            )
        call = _open_one(call._outer, turn)


def directory_of(turn: Turn, cwd: str | os.PathLike[str] | None) -> str:
    """Return the directory a command runs in: the session's, or one that may be relative to it."""
    here = turn.session.cwd
    return os.path.join(here, os.fspath(cwd)) if cwd else here


def check_surroundings(turn: Turn, cwd: str, env: Mapping[str, str | None]) -> None:
    """Raise if the running code is in the block of a call that was permitted elsewhere or without these."""
    call = innermost_call(turn)
    while call is not None and not call._is_permitted:
        call = _open_one(call._outer, turn)
    if call is None:
        return
    if cwd != call._cwd and os.path.realpath(cwd) != os.path.realpath(call._cwd):
        raise NotPermittedError(
            f"the tool call {call.title!r} was permitted for a command in {call._cwd}, not in {cwd}: "
            "give the directory to `turn.tool(…, cwd=…)` too, so that it is judged"
        )
    if env.items() <= call._env.items():
        return
    # Imported on use: most commands are given no variables.
    from coupler.permission.variables import is_harmless

    for name in env:
        is_judged = name in call._env and call._env[name] == env[name]
        # One that was shown with another value is not what was agreed to, however plain its value is.
        if not is_judged and not is_harmless(name, None if name in call._env else env[name]):
            raise NotPermittedError(
                f"the tool call {call.title!r} was permitted without the variable {name}, which may change "
                "what a command does: give it to `turn.tool(…, env=…)` too, so that it is judged"
            )


def step_into(call: Call) -> None:
    """Make the call the innermost one of the running code."""
    call._outer = innermost_call(call._turn)
    _innermost.set(call)


def step_out_of(call: Call) -> None:
    """Make the call around this one the innermost one again."""
    if _innermost.get() is call:
        _innermost.set(call._outer)


def _open_one(call: Call | None, turn: Turn) -> Call | None:
    # Calls end in any order, and a task may outlive the block, or even the turn, that it was started in.
    while call is not None and not (call._is_open and call._turn is turn):
        call = call._outer
    return call


log = logging.getLogger("coupler.agent")

PENDING: Literal["pending"] = "pending"
STARTED: Literal["in_progress"] = "in_progress"

PACE = 0.05
"""Seconds between two updates of one call's content, at least."""


def _forget(change: ToolUpdate | ToolOutput) -> None:
    """Record nothing, for a session without a journal."""


class Cover(Protocol):
    """Redacts a tool's output before it is shown, also secrets that are split between two pieces."""

    def covered_output(self, output: ToolOutput) -> tuple[ToolOutput, ...]:
        """Redact a piece of output; returns what can be shown now, and holds back what may begin a secret."""

    def end_output(self, id: str) -> tuple[ToolOutput, ...]:
        """Return what was held back, because the call ends."""

    def covered_terminals(self, update: ToolUpdate) -> tuple[ToolUpdate, ...]:
        """Redact the output of agents' own terminals in an update's `_meta`, which comes in pieces as well.

        The update comes last; before it what was held back, if the terminals end with it.
        """


class _NoCover:
    def covered_output(self, output: ToolOutput) -> tuple[ToolOutput, ...]:
        return (output,)

    def end_output(self, id: str) -> tuple[ToolOutput, ...]:
        return ()

    def covered_terminals(self, update: ToolUpdate) -> tuple[ToolUpdate, ...]:
        return (update,)


class Ledger:
    """Tracks every tool call of a session; `report` tells the client, `record` the journal.

    It guarantees what clients rely on: an id is announced once, only announced ids are updated, nothing
    follows a call's end, and `settle_all` leaves no call open, whichever way a turn ends. Each update to the
    client has a call's whole content, sent in proportion to the output; the journal gets every change once.
    """

    def __init__(
        self,
        report: Callable[[ToolUpdate], None],
        record: Callable[[ToolUpdate | ToolOutput], None] = _forget,
        cover: Cover | None = None,
    ) -> None:
        self._report = report
        self._record = record
        self._cover = cover or _NoCover()
        self._open: dict[str, _Account] = {}
        self._settled: set[str] = set()

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that still wait or run, in the order of their announcement, without their content."""
        return tuple(account.call for account in self._open.values())

    def content(self, id: str) -> tuple[ToolCallContent, ...]:
        """Return the content of an open call so far."""
        account = self._open.get(id)
        return account.shown.content() if account is not None else ()

    def status_when_asked(self, id: str) -> Literal["pending", "in_progress"]:
        """Return the status of a call that the user is asked about: the one that the client knows."""
        account = self._open.get(id)
        return STARTED if account is not None and account.call.status == STARTED else PENDING

    def is_open(self, id: str) -> bool:
        """Return whether the call still waits or runs."""
        return id in self._open

    def drop_details(self, id: str) -> None:
        """Keep only the status of an open call: the client was told the rest, and it is too much to hold."""
        account = self._open.get(id)
        if account is not None:
            account.call = ToolCall(id=id, status=account.call.status)
            account.shown = Shown()

    def knows(self, id: str) -> bool:
        """Return whether a call of this session has the id, so that no other can get it."""
        return id in self._open or id in self._settled

    def know(self, ids: Iterable[str]) -> None:
        """Reserve the ids of calls that ended before the session was opened again."""
        self._settled.update(ids)

    def announce(self, title: str, *, id: str | None = None, **fields: Any) -> str:
        """Begin a call; returns its id, made here unless the agent's model has one."""
        call_id = id or f"call_{os.urandom(8).hex()}"
        if call_id in self._open or call_id in self._settled:
            raise ValueError(
                f"the tool call {call_id!r} was announced before: an id is used once in a session"
            )
        *_, update = self._cover.covered_terminals(ToolUpdate(id=call_id, title=title, **fields))
        _refuse_content(update)
        account = self._open[call_id] = _Account(call_id, Shown())
        account.update(update)
        self._record(update)
        self._report(update)
        return call_id

    def update(self, id: str, **fields: Any) -> None:
        """Report a change; after the call's end there is nothing left to report.

        A call that runs does not wait again, whatever its agent says.
        """
        account = self._account(id)
        if account is None:
            return
        if fields.get("status") == PENDING and account.call.status == STARTED:
            del fields["status"]
            if not fields:
                return
        self._apply(account, ToolUpdate(id=id, **fields))

    def append(self, id: str, item: ToolCallContent, *, starts: bool = False) -> None:
        """Show something more, and report with it that the call runs if it starts with this.

        Text that streams is shown at once and then a few times a second; what would be too much to send
        waits for more output or for the call's end.
        """
        account = self._account(id)
        if account is None:
            return
        if starts:
            self._note(account, ToolUpdate(id=id, status=STARTED))
        self._add(account, ToolOutput(id, item))
        if account.is_ready():
            self._show(account, ToolUpdate(id=id, status=STARTED if starts else UNSET))
        elif starts:
            self._report(ToolUpdate(id=id, status=STARTED))
        if account.could_be_shown():
            account.wait(self._show_late)

    def replace(self, id: str, content: tuple[ToolCallContent, ...]) -> None:
        """Replace all content of a call, for callers that get it whole rather than in pieces."""
        account = self._account(id)
        if account is None:
            return
        self._cover.end_output(id)
        covered: list[ToolOutput] = []
        for position, item in enumerate(content):
            # The first may go on later; texts that came apart stay apart.
            covered += self._cover.covered_output(ToolOutput(id, item, apart=position > 0))
            covered += self._cover.end_output(id)
        account.show_instead(covered)
        self._record(ToolUpdate(id=id, content=tuple(output.item for output in covered)))
        if account.is_ready():
            self._show(account, ToolUpdate(id=id))
        elif account.could_be_shown():
            account.wait(self._show_late)

    def show_terminal(self, id: str, terminal_id: str) -> None:
        """Show one of the client's terminals, at once: after its release it would be too late.

        It is not recorded, because no client will know it again; `record_output` is for what was in it.
        """
        account = self._account(id)
        if account is not None:
            account.shown.add(Terminal(terminal_id))
            self._show(account, ToolUpdate(id=id))

    def record_output(self, id: str, text: str) -> None:
        """Record a text that the client shows by itself."""
        account = self._account(id)
        if account is None:
            return
        self._add_covered(account, self._cover.end_output(id))
        output = ToolOutput(id, text_content(text))
        for covered in (*self._cover.covered_output(output), *self._cover.end_output(id)):
            self._record(covered)

    def settle(
        self,
        id: str,
        status: str,
        reason: str | None = None,
        content: Iterable[ToolCallContent] = (),
        **fields: Any,
    ) -> None:
        """End a call as completed or failed, with the last that it shows, and say why below all of it."""
        account = self._account(id)
        if account is None:
            return
        for item in content:
            self._add(account, ToolOutput(id, item))
        if reason is not None:
            self._add(account, ToolOutput(id, text_content(reason), apart=True))
        self._apply(account, ToolUpdate(id=id, status=status, **fields))

    def settle_all(self, status: str, reason: str | None = None, *, cancelled: bool = False) -> None:
        """End all calls that are still open, and say why."""
        for call in self.open_calls:
            self.settle(call.id, status, reason, meta=cancelled_meta(call.meta) if cancelled else UNSET)

    def _account(self, id: str) -> _Account | None:
        account = self._open.get(id)
        if account is None:
            if id not in self._settled:
                raise ValueError(f"the tool call {id!r} was never announced")
            log.debug("an update of the settled tool call %s was dropped", id)
        return account

    def _add(self, account: _Account, output: ToolOutput) -> None:
        self._add_covered(account, self._cover.covered_output(output))

    def _add_covered(self, account: _Account, outputs: tuple[ToolOutput, ...]) -> None:
        for output in outputs:
            self._record(output)
            account.append(output)

    def _apply(self, account: _Account, update: ToolUpdate) -> None:
        *held_back, update = self._cover.covered_terminals(update)
        for each in held_back:
            self._report(each)
        if update.status is not UNSET and update.status not in OPEN_STATUSES:
            self._add_covered(account, self._cover.end_output(update.id))
        self._note(account, update)
        if account.call.is_open:
            self._report(update)
            return
        account.stop_waiting()
        del self._open[update.id]
        self._settled.add(update.id)
        if account.shown.has_news:
            self._show(account, update)
        else:
            self._report(update)

    def _note(self, account: _Account, update: ToolUpdate) -> None:
        _refuse_content(update)
        account.update(update)
        self._record(update)

    def _show_late(self, account: _Account) -> None:
        account.timer = None
        if account.could_be_shown():
            self._show(account, ToolUpdate(id=account.call.id))

    def _show(self, account: _Account, update: ToolUpdate) -> None:
        self._report(msgspec.structs.replace(update, content=account.state()))


class _Account(FoldedCall["Shown"]):
    """An open call, its content, and the time of its next update."""

    def __init__(self, id: str, shown: Shown) -> None:
        super().__init__(id, shown)
        self.next_statement = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def show_instead(self, outputs: Iterable[ToolOutput]) -> None:
        """Replace the content, but keep the count of what was sent."""
        self.shown.clear()
        for output in outputs:
            self.append(output)

    def is_ready(self) -> bool:
        """Return whether there is new content that may be sent now."""
        return self.could_be_shown() and time.monotonic() >= self.next_statement

    def could_be_shown(self) -> bool:
        """Return whether there is new content to send, now or soon, and no timer that will do it."""
        return self.timer is None and self.shown.has_news and self.shown.is_due()

    def state(self) -> tuple[ToolCallContent, ...]:
        """Return the whole content, and count it as sent now."""
        self.shown.sent()
        self.next_statement = time.monotonic() + PACE
        return self.shown.content()

    def wait(self, show: Callable[[_Account], None]) -> None:
        """Set a timer that shows the content when the next update is due."""
        seconds = max(self.next_statement - time.monotonic(), 0)
        self.timer = asyncio.get_running_loop().call_later(seconds, show, self)

    def stop_waiting(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def cancelled_meta(meta: dict[str, Any] | None) -> dict[str, Any]:
    """`CANCELLED_META`, added to the `_meta` that a call has already."""
    if not meta:
        return CANCELLED_META
    own = meta.get("coupler")
    told = {**own, **CANCELLED_META["coupler"]} if isinstance(own, dict) else CANCELLED_META["coupler"]
    return {**meta, "coupler": told}


def _refuse_content(update: ToolUpdate) -> None:
    if update.content is not UNSET:
        raise TypeError("what a tool call shows is added to with `append`, not replaced by an update")


HEAD = 16 * 1024
TAIL = 16 * 1024
"""Bytes at the beginning and at the end of a text that are shown, each."""

ALLOWANCE = 256 * 1024
"""Bytes that may be sent beyond twice the output: a call with less is shown without any delay."""

STATEMENT_BYTES = 256
"""Bytes of an update without its items, about."""

ITEM_BYTES = 64
"""Bytes of an item without its text, about."""


class Shown:
    """The content of one tool call as the client is shown it, and the limit on how often it is sent.

    Version 1 of the protocol replaces a call's content whole with every update. Long text is therefore shown
    as its head and its tail, and the content is sent again only while all updates together stay in
    proportion to the output. The whole output is in the store. Neighbouring texts are one item.
    """

    def __init__(self) -> None:
        self.has_news = False
        self._items: list[_Text | ToolCallContent] = []
        self._open_text: _Text | None = None
        # All sizes are bytes. What is stated of the open text changes, so it is not counted with the others.
        self._stated = STATEMENT_BYTES
        self._output = 0
        self._sent = 0

    def add(self, item: ToolCallContent, *, apart: bool = False) -> None:
        """Show something more. Text goes on where the text before it ended, unless it is to stand apart."""
        self.has_news = True
        text = plain_text_of(item)
        if text is None:
            self._close_text()
            self._add_whole(item)
            return
        if apart:
            self._close_text()
        self._output += self._text_to_go_on().add(text)
        if apart:
            self._close_text()

    def clear(self) -> None:
        """Remove all content, but keep the count of what was sent."""
        self.has_news = True
        self._items.clear()
        self._open_text = None
        self._stated = STATEMENT_BYTES

    def content(self) -> tuple[ToolCallContent, ...]:
        """Return the items as a client gets them."""
        return tuple(item.as_content() if isinstance(item, _Text) else item for item in self._items)

    def is_due(self) -> bool:
        """Return whether sending all of it once more keeps the bytes sent in proportion to the output."""
        return self._sent + self._size_of_statement() <= 2 * self._output + ALLOWANCE

    def sent(self) -> None:
        """Count the content as sent."""
        self.has_news = False
        self._sent += self._size_of_statement()

    def _text_to_go_on(self) -> _Text:
        if self._open_text is None:
            self._open_text = _Text()
            self._items.append(self._open_text)
        return self._open_text

    def _close_text(self) -> None:
        if self._open_text is not None:
            self._stated += self._open_text.size
            self._open_text = None

    def _add_whole(self, item: ToolCallContent) -> None:
        size = _size_of_item(item)
        self._items.append(item)
        self._stated += size
        self._output += size

    def _size_of_statement(self) -> int:
        return self._stated + (self._open_text.size if self._open_text is not None else 0)


class _Text:
    """A text of any length: its beginning, its end, and the number of bytes left out between them."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._head_size = 0
        self._head_is_full = False
        self._tail: deque[tuple[str, int]] = deque()
        self._tail_size = 0
        self._left_out = 0

    @property
    def size(self) -> int:
        """Bytes of the text in an update, about."""
        return ITEM_BYTES + self._head_size + min(self._tail_size, TAIL)

    def add(self, text: str) -> int:
        """Append text; returns its size."""
        size = _size_of_text(text)
        if self._head_is_full:
            self._add_to_tail(text, size)
        elif self._head_size + size <= HEAD:
            self._head.append(text)
            self._head_size += size
        else:
            self._fill_head(text, size)
        return size

    def as_content(self) -> Content:
        head, tail = "".join(self._head), "".join(piece for piece, _ in self._tail)
        left_out = self._left_out
        if self._tail_size > TAIL:
            tail = _last_bytes(tail, TAIL)
            left_out += self._tail_size - _size_of_text(tail)
        between = f"\n… {_readable(left_out)} left out …\n" if left_out else ""
        return Content(TextContent(f"{head}{between}{tail}"))

    def _fill_head(self, text: str, size: int) -> None:
        last_of_head = _first_bytes(text, HEAD - self._head_size)
        last_size = _size_of_text(last_of_head)
        self._head = ["".join(self._head), last_of_head]
        self._head_size += last_size
        self._head_is_full = True
        self._add_to_tail(text[len(last_of_head) :], size - last_size)

    def _add_to_tail(self, text: str, size: int) -> None:
        if size > TAIL:
            text = _last_bytes(text, TAIL)
            kept = _size_of_text(text)
            # What stood before it does not adjoin it any more, and a cut between characters leaves a gap.
            self._left_out += self._tail_size + size - kept
            self._tail.clear()
            self._tail_size, size = 0, kept
        self._tail.append((text, size))
        self._tail_size += size
        # Whole pieces are dropped as soon as those after them fill the tail.
        while self._tail_size - self._tail[0][1] >= TAIL:
            dropped = self._tail.popleft()[1]
            self._tail_size -= dropped
            self._left_out += dropped


def _size_of_item(item: ToolCallContent) -> int:
    try:
        return ITEM_BYTES + len(msgspec.json.encode(item))
    except UnicodeEncodeError:
        # Half a surrogate pair, which is replaced when it is sent.
        return ITEM_BYTES + _size_of_text(str(msgspec.to_builtins(item)))


def _size_of_text(text: str) -> int:
    return len(text) if text.isascii() else len(_encoded(text))


def _first_bytes(text: str, limit: int) -> str:
    """Return as many whole characters of the beginning as fit."""
    encoded = _encoded(text[:limit])
    end = min(limit, len(encoded))
    while end < len(encoded) and _is_inside_character(encoded[end]):
        end -= 1
    return encoded[:end].decode("utf-8", "surrogatepass")


def _last_bytes(text: str, limit: int) -> str:
    """Return as many whole characters of the end as fit."""
    encoded = _encoded(text[-limit:])
    start = max(len(encoded) - limit, 0)
    while start < len(encoded) and _is_inside_character(encoded[start]):
        start += 1
    return encoded[start:].decode("utf-8", "surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_inside_character(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _readable(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} KB" if size < 999_950 else f"{size / 1_000_000:.1f} MB"
