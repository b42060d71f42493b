"""Gives nodes, tools and middleware access to the prompt that their graph runs for.

It is a context variable around the run of the graph, so it is seen in coroutines, in the threads that
LangChain runs plain functions in, and apart in each of two prompts that run at once. Which tool call is
running is another one, set for each call, so that calls side by side do not take each other's place.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from coupler.agent.turn import NOTICES
from coupler.events import Notice, Thought
from coupler.langchain.plan import PlanBoard

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.tools import BaseTool

    from coupler.agent.elicitation import Answer
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.langchain.presentation import Presentation
    from coupler.langchain.tool_calls import ToolCalls
    from coupler.permission.rules import Rule

T = TypeVar("T")

LOOP_PATIENCE = 5.0
"""Seconds that the event loop may take to show that it is not blocked."""

running_call: ContextVar[str | None] = ContextVar("coupler_running_tool_call", default=None)
"""Key of the tool call that the running code belongs to; inherited by tasks and threads that it starts."""

further_rules: ContextVar[tuple[Rule, ...]] = ContextVar("coupler_further_rules", default=())
"""Rules that hold for the running code besides those of the session, as those of a sub-agent's profile."""

_current: ContextVar[Current | None] = ContextVar("coupler_current_prompt", default=None)


def current() -> Current | None:
    """The prompt that the running code belongs to; None in a graph that is not served."""
    return _current.get()


def set_current(value: Current) -> None:
    """Make this the prompt of the running task and of all that it starts."""
    _current.set(value)


def send_warning(turn: Turn, title: str, description: str) -> None:
    """Warn the user of something that the agent does not say: as a notice, or as a thought.

    Not as a message: what the agent answers may be read by a program.
    """
    outlet = turn.session.outlet
    if turn.editor.offers(NOTICES):
        outlet.send(Notice("warning", title, description))
    else:
        turn.begin_new_message()
        outlet.send(Thought(f"{title}. {description}", outlet.new_message_id()))


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
        self.offers: Callable[[BaseTool | dict[str, Any]], bool] | None = None
        """Returns True if the session's mode has a tool; None if there are no modes."""
        self.namespaces: dict[str, str] = {}
        """Keys of the tool calls in which graphs run, by LangGraph's name of the place."""
        self.board = PlanBoard(turn)
        """Collects the plans of the prompt and shows them to the user."""
        self.asked_in_chat: str | dict[str, Any] | None = None
        """The id of the interrupt whose question was put into the chat, for the next prompt to answer it.

        Of reviews also what was decided about the calls: see `coupler.langchain.interrupts`.
        """
        self.chat_reviews: dict[str, dict[str, Any]] = {}
        """Reviews that the user will decide about in the chat, by the ids of their interrupts."""
        self.unanswered: set[str] = set()
        """The ids of interrupts whose questions the user has left without an answer."""
        self.when_retried: Callable[[float | None, BaseException | None, str], None] | None = None
        """Called when a model is asked again: after so many seconds, because of an error, with a remark."""
        self.when_restored: Callable[[Iterable[BaseMessage]], None] | None = None
        """Called with messages of before that come back into the conversation: they are not said again."""
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked_in_vain: threading.Event | None = None
        """Event that the loop sets once it is not blocked any more; None if it was not found blocked."""

    @property
    def session(self) -> Session:
        """The session that was prompted."""
        return self.turn.session

    @property
    def call_id(self) -> str | None:
        """The key of the tool call whose code is running: what `calls` knows it by."""
        return running_call.get()

    def progress(self, text: str) -> ProgressReport:
        """Show a piece of output of the running tool call.

        It is shown at once, also from a plain function in a thread; a coroutine may await the result, and
        then waits while the client has too much to read.
        """
        call_id = self.call_id
        if call_id is None:
            raise RuntimeError("progress is that of a tool call: report it from a tool's code")
        self.call_on_loop(self.calls.append, call_id, text)
        return ProgressReport(self)

    def call_around(self, namespace: tuple[str, ...]) -> str | None:
        """The tool call that a graph runs in; None for one that runs in none."""
        around = (self.namespaces[place] for place in reversed(namespace) if place in self.namespaces)
        return next(around, None)

    async def ask(self, message: str, spec: Any) -> Answer[Any]:
        """Ask the user; see `Turn.ask`."""
        return await self.on_loop(self.turn.ask(message, spec))

    def ask_and_wait(self, message: str, spec: Any) -> Answer[Any]:
        """Ask the user from a plain function, which runs in a thread; see `ask`."""
        if self.is_on_loop:
            raise RuntimeError("this would stop everything until the user answers: await `ask` instead")
        return self.wait_for(self.turn.ask(message, spec))

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the turn's event loop, also for code in a loop of its own."""
        if self.is_on_loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._owned(work), self.loop))

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `on_loop` from a plain function in a thread; raises HeldUpError if the loop is blocked."""
        if self.is_on_loop or not self._is_served():
            work.close()
            raise HeldUpError
        return asyncio.run_coroutine_threadsafe(self._owned(work), self.loop).result()

    async def _owned(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work as the turn's own, so that it ends with the turn: a cancel does not wait for threads."""
        try:
            self.turn.check_alive()
        except BaseException:
            work.close()
            raise
        return await self.turn.own(work)

    def _is_served(self) -> bool:
        """True if the event loop reacts; one that waits for this code would block it for ever."""
        if self._asked_in_vain is not None and not self._asked_in_vain.is_set():
            return False
        goes_on = threading.Event()
        self.loop.call_soon_threadsafe(goes_on.set)
        is_served = goes_on.wait(LOOP_PATIENCE)
        self._asked_in_vain = None if is_served else goes_on
        return is_served

    @property
    def is_on_loop(self) -> bool:
        """True if the caller runs in the thread of the turn's event loop."""
        return threading.get_ident() == self._thread

    def call_on_loop(self, function: Any, *arguments: Any) -> None:
        """Call a function that reports something: now, or from a thread as soon as the loop can."""
        if self.is_on_loop:
            function(*arguments)
        else:
            self.loop.call_soon_threadsafe(_call_while_alive, self.turn, function, arguments)


class ProgressReport:
    """Returned after output was shown; to await it waits until more can be sent."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def __await__(self) -> Generator[Any, None, None]:
        return self._current.on_loop(self._current.session.outlet.wait_for_room()).__await__()


class HeldUpError(RuntimeError):
    """Raised where code would wait for an event loop that is blocked by this code."""

    def __init__(self) -> None:
        super().__init__(
            "nobody can be asked while `invoke` holds up the event loop; "
            "its author should await `ainvoke`, or run it in a plain function"
        )


def _call_while_alive(turn: Turn, function: Any, arguments: tuple[Any, ...]) -> None:
    # A thread that a cancel has left behind has nothing more to tell.
    if turn.is_alive:
        function(*arguments)
