"""A tool call while it runs: what a turn reports of it, and the question whether it may."""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast, get_args

from msgspec import UNSET

from coupler.agent.errors import NotPermittedError, describe
from coupler.agent.json_value import json_value
from coupler.agent.ledger import CANCELLED_META, Ledger, text_content
from coupler.agent.text import block, chosen, plain_text
from coupler.schema.v1 import (
    Content,
    ContentBlock,
    Diff,
    PermissionToolCall,
    ToolCallContent,
    ToolCallLocation,
    ToolKind,
)

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.permission.action import Action

KINDS: tuple[str, ...] = get_args(ToolKind)
LAST_LINE = 2**32 - 1
UNANSWERED = "not permitted: the question was not answered"


class Call:
    """Announced as pending; runs once it is allowed or goes on without asking; ends with its block."""

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
            name=self._name or UNSET,
            locations=tuple(self._locations) or UNSET,
            raw_input=self._input,
        )
        self._is_open = True
        await self._turn.session.outlet.wait_for_room()

    def start(self) -> None:
        """Report that the call runs, unless it has been asked for or reported meanwhile."""
        if not self._started:
            self._started = True
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
        """Why the call may not go on, if it may not."""
        return self._refused

    async def permitted(self, *, deadline: float | None = None) -> bool:
        """Whether the call may go on: by the rules, by what was chosen before, or by asking the user.

        The user has `deadline` seconds to answer, or any time. Anything but a clear yes is a no, and
        leaving the block then fails the call.
        """
        if not self._is_open:
            raise RuntimeError("ask inside of the call's block: `async with turn.tool(…) as call`")
        self._started = True
        # As long as there is no answer, and if none can be had, it is a no.
        self._refused, self._is_permitted = UNANSWERED, False
        permitting = self._turn.session.project.permitting()
        permission = await permitting.decide(self._turn, self._as_asked(), self._action(), deadline)
        if not permission.is_given:
            self._refused = permission.reason
            return False
        self._refused, self._is_permitted = None, True
        self._go_on()
        return True

    def _go_on(self) -> None:
        self._ledger.update(self.id, status="in_progress")

    # What a call yields starts it; what only describes it does not, because the user may be asked next.

    async def _show(self, item: ToolCallContent, *, starts: bool) -> None:
        self._turn.check_alive()
        starts = starts and not self._started
        self._started = self._started or starts
        self._ledger.append(self.id, item, starts=starts)
        await self._turn.session.outlet.wait_for_room()

    async def _report(self, *, starts: bool = False, **fields: Any) -> None:
        self._turn.check_alive()
        if starts and not self._started:
            self._started = True
            fields["status"] = "in_progress"
        self._ledger.update(self.id, **fields)
        await self._turn.session.outlet.wait_for_room()

    def _fail(self, reason: str, **fields: Any) -> None:
        self._ledger.settle(self.id, "failed", reason, **fields)

    def _with_judged(self, shown: Any) -> Any:
        """What the tool is called with, always with the command, variables and address that are judged."""
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
        """The call as it is judged: what was reported of it by now."""
        from coupler.permission.action import Action

        session = self._turn.session
        return Action(
            kind=self.kind,
            name=self._name,
            server=self._server,
            paths=tuple(dict.fromkeys((*(location.path for location in self._locations), *self._paths))),
            command=self._command,
            urls=self._urls,
            env=tuple(self._env),
            cwd=self._cwd,
            roots=session.roots,
        )

    def _as_asked(self) -> PermissionToolCall:
        return PermissionToolCall(
            self.id,
            kind=self.kind,
            status="pending",
            title=self.title,
            name=self._name or UNSET,
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
    """The variables of a command; they are shown to who is asked, but not the secrets among them."""
    given = {plain_text(name, "a variable's name"): value for name, value in env.items()}
    values = {
        name: plain_text(value, f"the variable {name}") for name, value in given.items() if value is not None
    }
    turn.session.secrets.notice(values)
    return given


_innermost: ContextVar[Call | None] = ContextVar("innermost_call", default=None)


def innermost_call(turn: Turn) -> Call | None:
    """The open call whose block the running code is in: tasks that it starts are in it too."""
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
    """Where a command runs: in the session's directory, or in one that may be relative to it."""
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
    from coupler.permission.command_words import is_harmless

    for name in env:
        is_judged = name in call._env and call._env[name] == env[name]
        if not is_judged and not is_harmless(name):
            raise NotPermittedError(
                f"the tool call {call.title!r} was permitted without the variable {name}, which may change "
                "what a command does: give it to `turn.tool(…, env=…)` too, so that it is judged"
            )


def step_into(call: Call) -> None:
    """The running code is in the call's block from now on."""
    call._outer = innermost_call(call._turn)
    _innermost.set(call)


def step_out_of(call: Call) -> None:
    """The running code has left the call's block."""
    if _innermost.get() is call:
        _innermost.set(call._outer)


def _open_one(call: Call | None, turn: Turn) -> Call | None:
    # Calls end in any order, and a task may outlive the block, or even the turn, that it was started in.
    while call is not None and not (call._is_open and call._turn is turn):
        call = call._outer
    return call
