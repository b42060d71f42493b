"""The agents of a run: started when a step needs them, shared by those that want the same, ended with it.

Sessions that a later step goes on with are kept open. One that is gone is opened again where its agent can do
that; else there is a new one, which is told what was said.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from coupler.client.errors import AgentError
from coupler.client.kept import RESUME
from coupler.client.opening import OpeningOptions
from coupler.client.remote import RemoteAgent
from coupler.client.session import RemoteSession
from coupler.thread import in_thread
from coupler.workflow.agents.spending import Spending
from coupler.workflow.agents.start import Start, made
from coupler.workflow.agents.transcripts import Kept, told_to, transcript_of
from coupler.workflow.journal.result import Usage
from coupler.workflow.language.definition import Agent, Converse, Limits, Workflow, all_steps

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest
    from coupler.schema.v1 import McpServer
    from coupler.store.store import Store
    from coupler.workflow.agents.exchange import Exchange
    from coupler.workflow.agents.interception import Interception
    from coupler.workflow.language.bundle import Bundle

log = logging.getLogger("coupler.workflow")

MOST_IDLE = 4
"""Agents that nobody uses at the moment; the one that was used longest ago is ended first."""

CLOSE_LIMIT = 5.0
"""Seconds that an agent has to close a session that nobody needs any more."""


class Earlier(NamedTuple):
    """The session of an earlier step, as its result has it."""

    session_id: str
    agent: str


class Order(NamedTuple):
    """The session that a step wants."""

    start: Start
    options: OpeningOptions
    servers: tuple[McpServer, ...] = ()
    is_intercepted: bool = False
    earlier: Earlier | None = None
    is_kept: bool = False
    """Whether a later step may go on with it."""
    transcript: str | None = None
    """What was said in the earlier session, if that is not in the journal as steps have it."""


@dataclass(eq=False)
class Held:
    """A session that this process holds. It belongs to one step at a time."""

    session: RemoteSession
    start: Start
    connected: Connected
    told: str | None = None
    """What stands for the instructions that it has heard before a prompt."""
    after: str | None = None
    """The session in whose place it was opened."""
    transcript: str | None = None
    """What was said there, until it has been told."""
    reason: str | None = None
    """Why it is not the session that was wanted."""
    exchange: Exchange | None = None
    """The prompt that runs."""
    interception: Interception | None = None

    @property
    def key(self) -> Earlier:
        return Earlier(self.session.id, self.start.agent)


class Connected:
    """An agent's process, and the sessions that it has open for us."""

    def __init__(self) -> None:
        self.agent: RemoteAgent
        self.users = 0
        self.last_used = 0.0
        self.sessions: dict[str, Held] = {}

    async def start(self, start: Start) -> None:
        self.agent = await in_thread(lambda: made(start, self._fill_in))
        await self.agent.__aenter__()

    def release(self) -> None:
        """Somebody uses it no longer."""
        self.users -= 1
        self.last_used = time.monotonic()

    async def _fill_in(self, form: FormRequest) -> FormAnswer:
        """A form goes to the step whose prompt runs; nobody else can answer it."""
        held = self.sessions.get(form.session_id or "")
        return False if held is None or held.exchange is None else await held.exchange.fill_in(form)


class Agents:
    """Of one run; an async context manager that leaves no process behind."""

    def __init__(
        self, *, store: Store | None = None, bundle: Bundle, limits: Limits | None = None, journal: Kept
    ) -> None:
        """`limits` are those of the whole run; what was spent of them before is in the journal."""
        self.store = None if store is None or store.path == ":memory:" else store.path
        self.spending = Spending(limits, journal.decisions("usage"))
        self.journal = journal
        self._continued = {workflow.file: _continued_steps(workflow) for workflow in bundle.workflows}
        self._connected: dict[Start, Connected] = {}
        self._starting: dict[Start, asyncio.Lock] = {}
        self._held: dict[Earlier, Held] = {}
        self._turns: dict[Earlier, asyncio.Lock] = {}
        self._calls: set[str] = set()
        self._is_closed = False

    @property
    def usage(self) -> Usage | None:
        """What all steps of the run have used; None if no agent was asked."""
        return self.spending.total

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all agents and everything that they started; whoever cannot wait for that kills them."""
        self._is_closed = True
        self._held.clear()
        agents = [connected.agent for connected in self._connected.values()]
        self._connected.clear()
        ending = [asyncio.ensure_future(agent.close()) for agent in agents]
        if not ending:
            return
        try:
            await asyncio.wait(ending)
        except asyncio.CancelledError:
            for agent in agents:
                agent.kill()
            await asyncio.wait(ending)
            raise
        for ended in ending:
            if (failure := ended.exception()) is not None:
                log.warning("an agent did not end well: %s", failure)

    def is_continued(self, step: Agent | Converse, workflow: Workflow) -> bool:
        """Whether another step may go on with this one's session."""
        return step.id in self._continued.get(workflow.file, ())

    def name_call(self, id: str, place: str) -> str:
        """An agent's id for a tool call, or one made of it if the run has that already."""
        name, number = id, 1
        while name in self._calls:
            name = f"{place}:{id}" if number == 1 else f"{place}:{id}~{number}"
            number += 1
        self._calls.add(name)
        return name

    @asynccontextmanager
    async def session(self, order: Order) -> AsyncIterator[Held]:
        """A session for one step alone: a new one, or that of an earlier step. Raises `AgentError`."""
        async with self._alone(order.earlier):
            held = await self._open(order)
            try:
                yield held
            finally:
                if order.is_kept and not held.session.is_over and not self._is_closed:
                    self._held[held.key] = held
                else:
                    await self._let_go(held)

    @asynccontextmanager
    async def _alone(self, earlier: Earlier | None) -> AsyncIterator[None]:
        """Steps that go on with one session do so one after the other."""
        if earlier is None:
            yield
            return
        async with self._turns.setdefault(earlier, asyncio.Lock()):
            yield

    async def _open(self, order: Order) -> Held:
        if order.earlier is None:
            return await self._new(order)
        held = self._held.pop(order.earlier, None)
        if held is not None and not held.session.is_over and held.start == order.start:
            await _set(held.session, order.options)
            held.reason = None
            return held
        if held is not None:
            await self._let_go(held)
        return await self._again(order, order.earlier)

    async def _again(self, order: Order, earlier: Earlier) -> Held:
        """The session of an earlier step, opened again; or a new one that is told what was said in it."""
        if earlier.agent != order.start.agent:
            reason = f"its session is one of {earlier.agent}, which {order.start.agent} cannot open"
        else:
            try:
                held = await self._on(order, earlier.session_id)
                held.told = told_to(earlier.session_id, self.journal)
                return held
            except AgentError as error:
                if error.kind != "session":
                    raise
                reason = error.message
        held = await self._new(order)
        held.reason = reason
        held.after = earlier.session_id
        held.transcript = order.transcript or transcript_of(earlier.session_id, self.journal)
        return held

    async def _new(self, order: Order) -> Held:
        return await self._on(order, None)

    async def _on(self, order: Order, session_id: str | None) -> Held:
        """A session of the agent that the order wants: a new one, or one that it is to open again."""
        connected = await self._start(order.start)
        interception: Interception | None = None
        try:
            options = OpeningOptions(**order.options, mcp_servers=order.servers)
            if order.is_intercepted and order.servers:
                from coupler.workflow.agents.interception import Interception

                takes = connected.agent.capabilities.mcp_capabilities
                interception = Interception(order.servers, order.start.cwd, over_http=bool(takes.http))
                options["mcp_servers"] = await interception.open()
            session = await _opened(connected.agent, session_id, options)
        except BaseException:
            if interception is not None:
                await interception.close()
            connected.release()
            raise
        held = connected.sessions[session.id] = Held(
            session, order.start, connected, interception=interception
        )
        if interception is not None:
            interception.held = held
            session.at_end(interception.close)
        return held

    async def _start(self, start: Start) -> Connected:
        """The agent's process, which is counted as used from now on."""
        async with self._starting.setdefault(start, asyncio.Lock()):
            connected = self._connected.get(start)
            if connected is None:
                connected = Connected()
                await connected.start(start)
                self._connected[start] = connected
        connected.users += 1
        await self._end_idle()
        return connected

    async def _end_idle(self) -> None:
        idle = sorted(
            (start for start, connected in self._connected.items() if not connected.users),
            key=lambda start: self._connected[start].last_used,
        )
        for start in idle[: max(len(idle) - MOST_IDLE, 0)]:
            await self._connected.pop(start).agent.close()

    async def _let_go(self, held: Held) -> None:
        held.connected.sessions.pop(held.session.id, None)
        held.connected.release()
        with contextlib.suppress(AgentError, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT):
                await held.session.close()


async def _opened(agent: RemoteAgent, session_id: str | None, options: OpeningOptions) -> RemoteSession:
    if session_id is None:
        return await agent.new(**options)
    if agent.offers(RESUME):
        return await agent.resume(session_id, **options)
    return await agent.load(session_id, **options)


async def _set(session: RemoteSession, options: OpeningOptions) -> None:
    """Set a session that was open already to what the next step wants."""
    if (model := options.get("model")) is not None and model != session.model:
        await session.set_model(model)
    if (mode := options.get("mode")) is not None and mode != session.mode:
        await session.set_mode(mode)
    for name, value in options.get("options", {}).items():
        await session.set_option(name, value)


def _continued_steps(workflow: Workflow) -> frozenset[str]:
    """The ids of the steps that others go on with."""
    hooks = workflow.hooks
    lists = [workflow.steps, hooks.start, hooks.end, hooks.error, hooks.cancel]
    steps = [step for each in lists for step in all_steps(each) if isinstance(step, Agent | Converse)]
    return frozenset(step.set_up.continues for step in steps if step.set_up.continues is not None)
