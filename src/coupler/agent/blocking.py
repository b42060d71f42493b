"""Runs plain functions as turns, in worker threads: the methods of `Turn` and `Session` without await.

The thread is a daemon and is never waited for: a cancelled turn is answered at once, and the code it left
behind gets `CancelledError` from the next thing it reports.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import UNSET, UnsetType

from coupler.agent.mcp_servers import CALL_LIMIT
from coupler.agent.terminal import OUTPUT_LIMIT, Finished, Terminal
from coupler.agent.tool_call import Call, step_into, step_out_of
from coupler.runtime.threads import BlockingProxy, WorkerLoop
from coupler.schema.v1 import ContentBlock, McpServer, PlanEntry, PlanEntryPriority, StopReason, ToolKind

if TYPE_CHECKING:
    from coupler.agent.agent import Command, Invocation, Mode, Option
    from coupler.agent.editor import Editor
    from coupler.agent.elicitation import Answer
    from coupler.agent.files import Files
    from coupler.agent.mcp_servers import TurnMcp
    from coupler.agent.session import Session
    from coupler.agent.turn import Compacting, Plan, Turn
    from coupler.mcp.tools import McpError, Tool, ToolResult

T = TypeVar("T")

TIME_TO_ASK = 0.1
"""Seconds that a thread has to ask for permission before its call is reported as running."""


async def call_in_thread(
    function: Callable[[BlockingTurn], StopReason | None], turn: Turn
) -> StopReason | None:
    """Run the function in a thread of its own; cancelling the wait leaves the thread behind."""
    loop = WorkerLoop(asyncio.get_running_loop())
    finished: asyncio.Future[StopReason | None] = asyncio.get_running_loop().create_future()

    def run() -> None:
        result, error = None, None
        try:
            result = function(BlockingTurn(turn, loop))
        except BaseException as raised:
            error = raised
        loop.call_soon(_settle, finished, result, error)

    threading.Thread(target=run, name=f"turn-{turn.session.id[:8]}", daemon=True).start()
    try:
        return await finished
    finally:
        await loop.stop_waiting()


def _settle(finished: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if finished.done():
        return
    if error is None:
        finished.set_result(result)
    elif isinstance(error, asyncio.CancelledError):
        finished.cancel()
    elif isinstance(error, StopIteration):
        # A future takes every exception but this one.
        finished.set_exception(RuntimeError("the agent's code raised StopIteration"))
    else:
        finished.set_exception(error)


class BlockingTurn(BlockingProxy):
    """`Turn` for a plain function; every method waits until it is done."""

    def __init__(self, turn: Turn, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._turn = turn

    @property
    def session(self) -> BlockingSession:
        return BlockingSession(self._turn.session, self._loop)

    @property
    def editor(self) -> Editor:
        return self._turn.editor

    @property
    def blocks(self) -> tuple[ContentBlock, ...]:
        return self._turn.blocks

    @property
    def text(self) -> str:
        return self._turn.text

    @property
    def command(self) -> Invocation | None:
        return self._turn.command

    @property
    def meta(self) -> dict[str, Any] | None:
        return self._turn.meta

    @meta.setter
    def meta(self, meta: dict[str, Any] | None) -> None:
        self._turn.meta = meta

    @property
    def files(self) -> BlockingFiles:
        return BlockingFiles(self._turn.files, self._loop)

    @property
    def terminal(self) -> BlockingTerminal:
        return BlockingTerminal(self._turn.terminal, self._loop)

    @property
    def mcp(self) -> BlockingMcp:
        return BlockingMcp(self._turn.mcp, self._loop)

    def say(self, content: str | ContentBlock) -> None:
        self._wait(self._turn.say(content))

    def think(self, text: str) -> None:
        self._wait(self._turn.think(text))

    def ask(self, message: str, spec: Any) -> Answer[Any]:
        return self._wait(self._turn.ask(message, spec))

    def ask_url(self, message: str, url: str) -> Answer[None]:
        return self._wait(self._turn.ask_url(message, url))

    def complete_url(self, id: str) -> bool:
        return self._wait(self._turn.complete_url(id))

    def usage(self, used: int, size: int, *, cost: float | None = None, currency: str = "USD") -> None:
        self._wait(self._turn.usage(used, size, cost=cost, currency=currency))

    def count_tokens(
        self,
        input: int,
        output: int,
        *,
        cached_read: int | None = None,
        cached_write: int | None = None,
        thought: int | None = None,
        total: int | None = None,
    ) -> None:
        counted = self._turn.count_tokens(
            input,
            output,
            cached_read=cached_read,
            cached_write=cached_write,
            thought=thought,
            total=total,
        )
        self._wait(counted)

    def notice(self, title: str, description: str | None = None, *, severity: str = "info") -> None:
        self._wait(self._turn.notice(title, description, severity=severity))

    def compaction(self) -> BlockingCompacting:
        return BlockingCompacting(self._turn.compaction(), self._loop)

    def call_editor(self, request: Any, *, deadline: float | UnsetType | None = UNSET) -> Any:
        return self._wait(self._turn.call_editor(request, deadline=deadline))

    def plan(self, *entries: str) -> BlockingPlan:
        return BlockingPlan(self._wait(self._turn.plan(*entries)), self._loop)

    def tool(
        self,
        title: str,
        *,
        kind: ToolKind = "other",
        name: str | None = None,
        path: str | None = None,
        line: int | None = None,
        input: Any = None,
        id: str | None = None,
        command: str | Sequence[str] | None = None,
        url: str | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> BlockingCall:
        call = self._turn.tool(
            title,
            kind=kind,
            name=name,
            path=path,
            line=line,
            input=input,
            id=id,
            command=command,
            url=url,
            env=env,
            cwd=cwd,
        )
        return BlockingCall(call, self._loop)


class BlockingPlan(BlockingProxy):
    """`Plan` for a plain function."""

    def __init__(self, plan: Plan, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._plan = plan

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[PlanEntry]:
        return iter([*self._plan])

    def send(self) -> None:
        self._wait(self._plan.send())

    def add(self, content: str, *, priority: PlanEntryPriority = "medium") -> None:
        self._wait(self._plan.add(content, priority=priority))

    def start(self, entry: int | str) -> None:
        self._wait(self._plan.start(entry))

    def complete(self, entry: int | str) -> None:
        self._wait(self._plan.complete(entry))

    def prioritize(self, entry: int | str, priority: PlanEntryPriority) -> None:
        self._wait(self._plan.prioritize(entry, priority))


class BlockingCall(BlockingProxy):
    """`Call` for a plain function: an ordinary context manager."""

    def __init__(self, call: Call, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._call = call

    def __enter__(self) -> Self:
        self._wait(self._call.open())
        # In this thread's own context, which goes along with everything that it asks the loop to do.
        step_into(self._call)
        self._loop.call_later(TIME_TO_ASK, self._call.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        step_out_of(self._call)
        self._wait(self._call.__aexit__(kind, error, traceback))

    @property
    def id(self) -> str:
        return self._call.id

    @property
    def title(self) -> str:
        return self._call.title

    @property
    def kind(self) -> ToolKind:
        return self._call.kind

    def output(self, content: str | ContentBlock) -> None:
        self._wait(self._call.output(content))

    def describe(self, text: str) -> None:
        self._wait(self._call.describe(text))

    def diff(self, path: str, old: str | None, new: str) -> None:
        self._wait(self._call.diff(path, old, new))

    def locate(self, path: str, line: int | None = None) -> None:
        self._wait(self._call.locate(path, line))

    def retitle(self, title: str) -> None:
        self._wait(self._call.retitle(title))

    def input(self, value: Any) -> None:
        self._wait(self._call.input(value))

    def result(self, value: Any) -> None:
        self._wait(self._call.result(value))

    @property
    def refusal(self) -> str | None:
        return self._call.refusal

    def fail(self, reason: str) -> None:
        self._call.fail(reason)

    def permitted(self, *, deadline: float | None = None) -> bool:
        return self._wait(self._call.permitted(deadline=deadline))


class BlockingCompacting(BlockingProxy):
    """`Compacting` for a plain function: an ordinary context manager."""

    def __init__(self, compacting: Compacting, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._compacting = compacting

    def __enter__(self) -> Self:
        self._wait(self._compacting.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wait(self._compacting.__aexit__(kind, error, traceback))

    def summarize(self, text: str) -> None:
        self._wait(self._compacting.summarize(text))


class BlockingFiles(BlockingProxy):
    """`Files` for a plain function."""

    def __init__(self, files: Files, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._files = files

    def read(self, path: str | os.PathLike[str], *, line: int | None = None, limit: int | None = None) -> str:
        return self._wait(self._files.read(path, line=line, limit=limit))

    def read_bytes(self, path: str | os.PathLike[str]) -> bytes:
        return self._wait(self._files.read_bytes(path))

    def write(self, path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> None:
        self._wait(self._files.write(path, text, overwrite=overwrite))

    def remove(self, path: str | os.PathLike[str]) -> None:
        self._wait(self._files.remove(path))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return self._wait(self._files.exists(path))


class BlockingMcp(BlockingProxy):
    """`TurnMcp` for a plain function."""

    def __init__(self, mcp: TurnMcp, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._mcp = mcp

    @property
    def servers(self) -> tuple[str, ...]:
        return self._mcp.servers

    @property
    def broken(self) -> Mapping[str, McpError]:
        return self._mcp.broken

    def tools(self, server: str | None = None) -> list[Tool]:
        return self._wait(self._mcp.tools(server))

    def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = CALL_LIMIT,
        deadline: float | None = None,
    ) -> ToolResult:
        return self._wait(self._mcp.call(server, tool, arguments, timeout=timeout, deadline=deadline))


class BlockingTerminal(BlockingProxy):
    """`Terminal` for a plain function."""

    def __init__(self, terminal: Terminal, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._terminal = terminal

    def run(
        self,
        program: str | os.PathLike[str],
        *arguments: str | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> Finished:
        work = self._terminal.run(
            program,
            *arguments,
            cwd=cwd,
            env=env,
            timeout=timeout,
            input=input,
            output_limit=output_limit,
        )
        return self._wait(work)


class BlockingSession(BlockingProxy):
    """`Session` for a plain function."""

    def __init__(self, session: Session, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def cwd(self) -> str:
        return self._session.cwd

    @property
    def roots(self) -> tuple[str, ...]:
        return self._session.roots

    @property
    def env(self) -> dict[str, str]:
        return self._session.env

    @property
    def mcp_servers(self) -> tuple[McpServer, ...]:
        return self._session.mcp_servers

    @property
    def editor(self) -> Editor:
        return self._session.editor

    @property
    def title(self) -> str | None:
        return self._session.title

    @property
    def mode(self) -> str | None:
        return self._session.mode

    @property
    def options(self) -> Mapping[str, str | bool]:
        return self._session.options

    @property
    def commands(self) -> tuple[Command, ...]:
        return self._session.commands

    @property
    def state(self) -> Any:
        return self._session.state

    @state.setter
    def state(self, state: Any) -> None:
        self._session.state = state

    def set_mode(self, id: str) -> None:
        self._wait(_now(self._session.set_mode, id))

    def set_option(self, id: str, value: str | bool) -> None:
        self._wait(_now(self._session.set_option, id, value))

    def set_title(self, title: str | None) -> None:
        self._wait(_now(self._session.set_title, title))

    def add_secret(self, name: str, value: str) -> None:
        self._wait(_now(self._session.add_secret, name, value))

    def set_commands(self, commands: Sequence[Command]) -> None:
        self._wait(_now(self._session.set_commands, commands))

    def declare(
        self, *, modes: Sequence[Mode] | None = None, options: Sequence[Option] | None = None
    ) -> None:
        self._wait(_now(self._session.declare, modes=modes, options=options))


async def _now(function: Callable[..., None], *arguments: Any, **keywords: Any) -> None:
    """Call a function on the event loop: a thread must not touch what the loop owns."""
    function(*arguments, **keywords)
