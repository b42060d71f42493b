"""Turns for plain functions: the same words as `Turn`, without await, from a worker thread.

The thread is a daemon and is never waited for: a cancelled turn is answered at once, and the code it left
behind gets `CancelledError` from the next thing it reports.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import UNSET, UnsetType

from coupler.schema.v1 import ContentBlock, PlanEntry, PlanEntryPriority, StopReason, ToolKind

if TYPE_CHECKING:
    from coupler.agent.call import Call
    from coupler.agent.editor import Editor
    from coupler.agent.plan import Plan
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

T = TypeVar("T")

TIME_TO_ASK = 0.1
"""Seconds that a thread has to ask for permission before its call is reported as running."""


async def call_in_thread(
    function: Callable[[BlockingTurn], StopReason | None], turn: Turn
) -> StopReason | None:
    """Run the function in a thread of its own; cancelling the wait leaves the thread behind."""
    loop = _Loop(asyncio.get_running_loop())
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


class _Loop:
    """The connection's loop as a thread sees it, with everything that the thread waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: set[asyncio.Task[Any]] = set()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        # Once the loop is closed nobody is left to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.call_soon(self._loop.call_later, seconds, callback)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work on the loop; blocks until it is done."""
        tracked = self._tracked(work)
        try:
            future = asyncio.run_coroutine_threadsafe(tracked, self._loop)
        except RuntimeError:
            tracked.close()
            work.close()
            raise asyncio.CancelledError("the connection has ended") from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError("the turn was cancelled") from None

    async def stop_waiting(self) -> None:
        """Cancel what the thread still waits for: an open dialog must not outlive its turn."""
        while self._awaited:
            for task in self._awaited:
                task.cancel()
            await asyncio.wait(self._awaited)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._awaited.add(task)
        task.add_done_callback(self._awaited.discard)
        return await work


class _OnLoop:
    """Runs coroutines on the connection's loop and waits for them."""

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.wait_for(work)


class BlockingTurn(_OnLoop):
    """`Turn` for a plain function; every method waits until it is done."""

    def __init__(self, turn: Turn, loop: _Loop) -> None:
        super().__init__(loop)
        self._turn = turn

    @property
    def session(self) -> Session:
        return self._turn.session

    @property
    def editor(self) -> Editor:
        return self._turn.editor

    @property
    def blocks(self) -> tuple[ContentBlock, ...]:
        return self._turn.blocks

    @property
    def text(self) -> str:
        return self._turn.text

    def say(self, content: str | ContentBlock) -> None:
        self._wait(self._turn.say(content))

    def think(self, text: str) -> None:
        self._wait(self._turn.think(text))

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
    ) -> BlockingCall:
        call = self._turn.tool(title, kind=kind, name=name, path=path, line=line, input=input, id=id)
        return BlockingCall(call, self._loop)


class BlockingPlan(_OnLoop):
    """`Plan` for a plain function."""

    def __init__(self, plan: Plan, loop: _Loop) -> None:
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


class BlockingCall(_OnLoop):
    """`Call` for a plain function: an ordinary context manager."""

    def __init__(self, call: Call, loop: _Loop) -> None:
        super().__init__(loop)
        self._call = call

    def __enter__(self) -> Self:
        self._wait(self._call.open())
        self._loop.call_later(TIME_TO_ASK, self._call.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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

    def permitted(self, *, deadline: float | None = None) -> bool:
        return self._wait(self._call.permitted(deadline=deadline))
