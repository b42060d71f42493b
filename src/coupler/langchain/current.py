"""The prompt that a graph runs for: what nodes, tools and middleware can reach of it.

It is a context variable around the run of the graph, so it is seen in coroutines, in the threads that
LangChain runs plain functions in, and apart in each of two prompts that run at once. Which tool call is
running is another one, set for each call, so that calls side by side do not take each other's place.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args

from coupler import events
from coupler.agent.errors import describe
from coupler.schema.v1 import PlanEntry, PlanEntryPriority, PlanEntryStatus

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from coupler.agent.elicitation import Answer
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.langchain.presentation import Presentation
    from coupler.langchain.tool_calls import ToolCalls


T = TypeVar("T")

LOOP_PATIENCE = 5.0
"""Seconds that the event loop may take to show that it is not held up."""


class HeldUpError(RuntimeError):
    """Code waits for the event loop that waits for this code."""

    def __init__(self) -> None:
        super().__init__(
            "nobody can be asked while `invoke` holds up the event loop; "
            "its author should await `ainvoke`, or run it in a plain function"
        )


class Current:
    """One prompt in one session."""

    def __init__(
        self,
        turn: Turn,
        calls: ToolCalls,
        presentation: Presentation,
        tools: dict[str, BaseTool],
        sizes: Mapping[str | None, int] = MappingProxyType({}),
    ) -> None:
        self.turn = turn
        self.calls = calls
        self.presentation = presentation
        self.tools = tools
        """The tools by their names: those of the graph, and those that middleware adds."""
        self.sizes = {**sizes}
        """The tokens that models can read, by the names of the models, as far as that is known."""
        self.offers: Callable[[BaseTool], bool] | None = None
        """Whether the mode that the session is in has a tool; None if there are no modes."""
        self.namespaces: dict[str, str] = {}
        """The tool calls in which graphs run, by the name that LangGraph gives the place."""
        self.board = PlanBoard(turn)
        """What the user is shown of plans."""
        self.asked_in_chat: str | None = None
        """The id of the interrupt whose question was put into the chat: the next prompt may be its answer."""
        self.unanswered: set[str] = set()
        """The ids of interrupts whose questions the user has left without an answer."""
        self.when_retried: Callable[[float], None] | None = None
        """Called when a model is asked again in so many seconds, without LangChain's knowing of it."""
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked_in_vain: threading.Event | None = None
        """What the loop would set if it went on again."""

    @property
    def session(self) -> Session:
        """The session that was prompted."""
        return self.turn.session

    @property
    def call_id(self) -> str | None:
        """The key of the tool call whose code is running: what `calls` knows it by."""
        return running_call.get()

    def progress(self, text: str) -> Told:
        """Show a piece of output of the running tool call.

        It is shown at once, also from a plain function in a thread; a coroutine may await the result, and
        then waits while the client has too much to read.
        """
        call_id = self.call_id
        if call_id is None:
            raise RuntimeError("progress is that of a tool call: report it from a tool's code")
        self.call_on_loop(self.calls.append, call_id, text)
        return Told(self)

    def call_around(self, namespace: tuple[str, ...]) -> str | None:
        """The tool call that a graph runs in; None for one that runs in none."""
        around = (self.namespaces[place] for place in reversed(namespace) if place in self.namespaces)
        return next(around, None)

    async def ask(self, message: str, spec: Any) -> Answer[Any]:
        """Ask the user; see `Turn.ask`."""
        return await self.on_loop(self.turn.ask(message, spec))

    def ask_and_wait(self, message: str, spec: Any) -> Answer[Any]:
        """The same for plain functions, which run in threads."""
        if self.is_on_loop:
            raise RuntimeError("this would stop everything until the user answers: await `ask` instead")
        return self.wait_for(self.turn.ask(message, spec))

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something where the turn's events are told from, also for code in a loop of its own."""
        if self.is_on_loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._owned(work), self.loop))

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for plain functions in threads; raises `HeldUpError` where that would wait for ever."""
        if self.is_on_loop or not self._is_served():
            work.close()
            raise HeldUpError
        return asyncio.run_coroutine_threadsafe(self._owned(work), self.loop).result()

    async def _owned(self, work: Coroutine[Any, Any, T]) -> T:
        """A cancel waits for no thread, so what a thread waits for has to be ended with the turn."""
        try:
            self.turn.check_alive()
        except BaseException:
            work.close()
            raise
        return await self.turn.own(work)

    def _is_served(self) -> bool:
        """Whether the loop goes on; who waits for one that waits for them would wait for ever."""
        if self._asked_in_vain is not None and not self._asked_in_vain.is_set():
            return False
        goes_on = threading.Event()
        self.loop.call_soon_threadsafe(goes_on.set)
        is_served = goes_on.wait(LOOP_PATIENCE)
        self._asked_in_vain = None if is_served else goes_on
        return is_served

    @property
    def is_on_loop(self) -> bool:
        """Whether the caller runs where the turn's events are told from."""
        return threading.get_ident() == self._thread

    def call_on_loop(self, function: Any, *arguments: Any) -> None:
        """Call a function that tells something: now, or as soon as the loop can if this is a thread."""
        if self.is_on_loop:
            function(*arguments)
        else:
            self.loop.call_soon_threadsafe(_call_while_alive, self.turn, function, arguments)


class Told:
    """Something that was told; who awaits it waits for room for more."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def __await__(self) -> Generator[Any, None, None]:
        return self._current.on_loop(self._current.session.outlet.wait_for_room()).__await__()


def current() -> Current | None:
    """The prompt that the running code belongs to; None in a graph that is not served."""
    return _current.get()


def enter(value: Current) -> None:
    """The running task, and all that it starts, belongs to this prompt."""
    _current.set(value)


running_call: ContextVar[str | None] = ContextVar("coupler_running_tool_call", default=None)
"""The key of the tool call that the running code is in; tasks and threads that it starts are in it too."""

_current: ContextVar[Current | None] = ContextVar("coupler_current_prompt", default=None)


def _call_while_alive(turn: Turn, function: Any, arguments: tuple[Any, ...]) -> None:
    # A thread that a cancel has left behind has nothing more to tell.
    if turn.is_alive:
        function(*arguments)


# What the user is shown of an agent's plans: the entries of one prompt's plan, from whoever makes it.
#
# A plan comes from a todo list, a `plan` in the graph's state, the tool calls of a model, what it thinks or
# says, or from `acp.emit_plan(…)`. Each statement is the whole plan; the same one is not sent twice, but for
# the finished one, which ends the prompt.


log = logging.getLogger("coupler.langchain")

Source: TypeAlias = Literal["todos", "tool_calls", "reasoning", "manual"]
SOURCES: tuple[str, ...] = get_args(Source)
USUAL_SOURCES: frozenset[str] = frozenset({"todos", "manual"})

Entries: TypeAlias = Iterable[str | Mapping[str, Any] | PlanEntry]
Build: TypeAlias = Callable[[str, Any], Entries | None]
"""Makes the entries of what a source has: its name, and a todo list, tool calls, or a text."""

MOST_ENTRIES = 200
LONGEST_ENTRY = 500
"""Characters of one entry."""
FEWEST_STEPS = 2
"""A list with less is no plan."""

_STATUSES = frozenset(get_args(PlanEntryStatus))
_PRIORITIES = frozenset(get_args(PlanEntryPriority))
_DONE = {"done": "completed", "complete": "completed", "in progress": "in_progress", "doing": "in_progress"}
_STEP = re.compile(r"\s{0,3}(?:\d{1,3}[.)]|[-*+])\s+(?:\[(?P<mark>[ xX])\]\s+)?(?P<text>\S.*)")


class PlanBoard:
    """The plan of one prompt. All of it is synchronous, on the event loop."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._on: frozenset[str] = USUAL_SOURCES
        self._build: Build | None = None
        self._entries: tuple[PlanEntry, ...] = ()
        self._calls: dict[str, dict[str, Any]] = {}
        self._is_finished = False

    def listen(self, on: frozenset[str], build: Build | None) -> None:
        """Take plans from these sources only, and make their entries with `build`."""
        self._on, self._build = on, build

    def hears(self, source: Source) -> bool:
        """Whether plans of this source are shown."""
        return source in self._on

    def todos(self, value: Any) -> None:
        """The todo list has changed."""
        self._take("todos", value)

    def plan(self, value: Any) -> None:
        """The state of the graph has another `plan`; what is no list of entries is not meant for people."""
        if isinstance(value, str | list | tuple):
            self._show(steps_in(value) if isinstance(value, str) else value)

    def begin_call(self, call: dict[str, Any]) -> None:
        """The model calls a tool: a dictionary with `id`, `name`, `args` and `title`."""
        if "tool_calls" in self._on:
            self._calls[call["id"]] = {**call, "status": "in_progress"}
            self._take("tool_calls", [*self._calls.values()])

    def end_call(self, id: str) -> None:
        """A tool has returned, in whatever way."""
        if id in self._calls:
            self._calls[id] = {**self._calls[id], "status": "completed"}
            self._take("tool_calls", [*self._calls.values()])

    def reasoning(self, text: str) -> None:
        """What the model thinks."""
        self._take("reasoning", text)

    def answer(self, text: str) -> None:
        """What the model says in a mode that is for planning."""
        self._show(self._built("answer", text) if self._build is not None else steps_in(text))

    def emit(self, entries: Entries) -> None:
        """The agent's code shows a plan."""
        self._take("manual", entries)

    def finish(self) -> None:
        """The prompt is over: the plan as it stands is sent once more, for who lost sight of it."""
        if self._entries and not self._is_finished:
            self._is_finished = True
            self._send()

    def _take(self, source: Source, value: Any) -> None:
        if source in self._on:
            self._show(self._built(source, value))

    def _built(self, source: str, value: Any) -> Entries | None:
        if self._build is None:
            return _BUILT_FROM[source](value)
        try:
            return self._build(source, value)
        except Exception as error:
            log.warning("`build` of acp.plan(…) could not be used for %s: %s", source, describe(error))
            return None

    def _show(self, entries: Entries | None) -> None:
        if entries is None:
            return
        try:
            made = tuple(entry for each in entries if (entry := as_entry(each)) is not None)[:MOST_ENTRIES]
        except (TypeError, ValueError) as error:
            log.warning("a plan could not be shown: %s", describe(error))
            return
        if made and made != self._entries:
            self._entries, self._is_finished = made, False
            self._send()

    def _send(self) -> None:
        if self._turn.is_alive:
            self._turn.begin_new_message()
            self._turn.session.outlet.send(events.Plan(self._entries))


def as_entry(value: object) -> PlanEntry | None:
    """An entry, of a text or a dictionary as todo lists have them; None if there is nothing in it."""
    if isinstance(value, PlanEntry):
        return value
    if isinstance(value, str):
        value = {"content": value}
    if not isinstance(value, Mapping):
        raise TypeError(f"a plan's entry is text or has a `content`, and is not {type(value).__name__}")
    text = value.get("content") or value.get("step") or value.get("title") or value.get("description")
    if not isinstance(text, str) or not text.strip():
        return None
    status = str(value.get("status") or "pending").lower()
    status = status if status in _STATUSES else _DONE.get(status, "pending")
    priority = value.get("priority")
    return PlanEntry(
        " ".join(text.split())[:LONGEST_ENTRY],
        cast(PlanEntryPriority, priority if priority in _PRIORITIES else "medium"),
        cast(PlanEntryStatus, status),
    )


def steps_in(text: Any) -> list[dict[str, str]] | None:
    """The steps of the last list in a text; None if there is none worth the name."""
    found: list[dict[str, str]] = []
    is_list = False
    for line in str(text).splitlines():
        step = _STEP.fullmatch(line.rstrip())
        if step is not None:
            found = [*(found if is_list else ()), _as_step(step)]
            is_list = True
        elif line.strip() and not line.startswith((" ", "\t")):
            is_list = False
    return found if len(found) >= FEWEST_STEPS else None


def _as_step(step: re.Match[str]) -> dict[str, str]:
    done = (step["mark"] or " ").lower() == "x"
    return {"content": step["text"].replace("**", ""), "status": "completed" if done else "pending"}


def _from_todos(value: Any) -> Entries | None:
    return value if isinstance(value, list | tuple) else None


def _from_tool_calls(value: Any) -> Entries | None:
    return [{"content": call["title"], "status": call["status"]} for call in value]


_BUILT_FROM: dict[str, Callable[[Any], Entries | None]] = {
    "todos": _from_todos,
    "tool_calls": _from_tool_calls,
    "reasoning": steps_in,
    "manual": lambda value: value,
    "answer": steps_in,
}
