"""The agents of a run: started when a step needs them, shared by those that want the same, ended with it.

Sessions that a later step goes on with are kept open. One that is gone is opened again where its agent can do
that; else there is a new one, which is told what was said.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from coupler.client.errors import AgentError
from coupler.client.kept_sessions import LOAD, RESUME
from coupler.client.remote import OpeningOptions, RemoteAgent
from coupler.client.session import RemoteSession
from coupler.permission.engine import Choices
from coupler.relay.session import shortened, transcript_of_turns
from coupler.workflow.agents.agent_events import LONGEST_LINE, Spending
from coupler.workflow.agents.agent_start import Connected, Earlier, Held, Order, Start
from coupler.workflow.journal.run_events import Place, Result, Usage
from coupler.workflow.language.model import Agent, Converse, Json, Limits, Workflow, all_steps, lists_of

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer
    from coupler.store.store import Store
    from coupler.workflow.agents.permission import Interception
    from coupler.workflow.engine.front import Front
    from coupler.workflow.language.library import Bundle


log = logging.getLogger("coupler.workflow")

MOST_IDLE = 4
"""Agents that nobody uses at the moment; the one that was used longest ago is ended first."""

MOST_WAITING = 8
"""Agents that only have sessions for later steps, where they can open these again."""

CLOSE_LIMIT = 5.0
"""Seconds that an agent has to close a session that nobody needs any more."""


class Agents:
    """Of one run; an async context manager that leaves no process behind."""

    def __init__(
        self,
        *,
        store: Store | None = None,
        bundle: Bundle,
        limits: Limits | None = None,
        journal: Kept,
        front: Front,
        mcp_servers: tuple[McpServer, ...] = (),
        choices: Mapping[str, Choices] | None = None,
    ) -> None:
        """`limits` are those of the whole run; what was spent of them before is in the journal.

        `mcp_servers` are for all agents, and of two with one name these count. `choices` are those that were
        made before, by their directories.
        """
        self.store = None if store is None or store.path == ":memory:" else store.path
        self._front = front
        self._choice_store = store
        self._choices = dict(choices or {})
        self.spending = Spending(limits, journal)
        self.journal = journal
        self.mcp_servers = mcp_servers
        self.replaced_servers: set[str] = set()
        """Names of servers of which it was told that another one is used."""
        self._continued = {workflow.file: _continued_steps(workflow) for workflow in bundle.workflows}
        self._connected: dict[Start, Connected] = {}
        self._ending: dict[asyncio.Future[None], RemoteAgent] = {}
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
        for start in [*self._connected]:
            self._end(start)
        if not self._ending:
            return
        ending = [*self._ending]
        try:
            await asyncio.wait(ending)
        except asyncio.CancelledError:
            self.kill()
            await asyncio.wait(ending)
            raise

    def kill(self) -> None:
        """End all agents at once, without asking them."""
        for agent in (*(connected.agent for connected in self._connected.values()), *self._ending.values()):
            agent.kill()

    def _end(self, start: Start) -> asyncio.Future[None]:
        """End an agent; whoever does not wait for that until the end leaves it to `close`."""
        agent = self._connected.pop(start).agent
        ending = asyncio.ensure_future(agent.close())
        self._ending[ending] = agent
        ending.add_done_callback(self._ended)
        return ending

    def _ended(self, ending: asyncio.Future[None]) -> None:
        del self._ending[ending]
        if not ending.cancelled() and (failure := ending.exception()) is not None:
            log.warning("an agent did not end well: %s", failure)

    def is_continued(self, step: Agent | Converse, workflow: Workflow) -> bool:
        """Whether another step may go on with this one's session."""
        return step.id in self._continued.get(workflow.file, ())

    def choices_in(self, directory: str) -> Choices:
        """What the user has chosen for good about what agents do there."""
        if directory not in self._choices:
            self._choices[directory] = Choices(directory, self._choice_store)
        return self._choices[directory]

    def name_call(self, id: str, place: str) -> str:
        """An agent's id for a tool call, or one made of it if the run has that already."""
        short = name = _short(id)
        number = 1
        while name in self._calls:
            name = f"{place}:{short}" if number == 1 else f"{place}:{short}~{number}"
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
                    await self._end_waiting(held)
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
        if held is not None and held.serves(order):
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
                self.spending.tell_cost_of_before(held.session)
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
                from coupler.workflow.agents.permission import Interception

                takes = connected.agent.capabilities.mcp_capabilities
                interception = Interception(order.servers, order.start.cwd, over_http=bool(takes.http))
                options["mcp_servers"] = await interception.open()
            session = await _opened(connected.agent, session_id, options)
        except BaseException:
            if interception is not None:
                await interception.close()
            connected.release()
            raise
        held = connected.sessions[session.id] = Held(session, order, connected, interception=interception)
        if interception is not None:
            interception.held = held
            session.at_end(interception.close)
        return held

    async def _start(self, start: Start) -> Connected:
        """The agent's process, which is counted as used from now on."""
        async with self._starting.setdefault(start, asyncio.Lock()):
            connected = self._connected.get(start)
            if connected is None:
                connected = Connected(self._front)
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
        ending = [self._end(start) for start in idle[: max(len(idle) - MOST_IDLE, 0)]]
        if ending:
            await asyncio.wait(ending)

    async def _end_waiting(self, last: Held) -> None:
        """A loop may leave sessions in ever more processes: those of long ago are opened again if needed."""
        last.connected.last_used = time.monotonic()
        kept: dict[Connected, list[Held]] = {}
        for held in self._held.values():
            kept.setdefault(held.connected, []).append(held)
        waiting = sorted(
            (each for each in kept if each.users == len(kept[each]) and _can_reopen(each.agent)),
            key=lambda connected: connected.last_used,
        )
        left = [held for each in waiting[: max(len(waiting) - MOST_WAITING, 0)] for held in kept[each]]
        for held in left:
            del self._held[held.key]
        for held in left:
            await self._let_go(held)
        await self._end_idle()

    async def _let_go(self, held: Held) -> None:
        held.connected.sessions.pop(held.session.id, None)
        held.connected.release()
        with contextlib.suppress(AgentError, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT):
                await held.session.close()


def _can_reopen(agent: RemoteAgent) -> bool:
    return agent.offers(RESUME) or agent.offers(LOAD)


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


def _short(id: str) -> str:
    """An id that can be shown; agents may make theirs of anything."""
    if len(id) <= LONGEST_LINE:
        return id
    return f"{id[:50]}…{hashlib.sha256(id.encode(errors='replace')).hexdigest()}"


def _continued_steps(workflow: Workflow) -> frozenset[str]:
    """The ids of the steps that others go on with."""
    lists = lists_of(workflow)
    steps = [step for each in lists for step in all_steps(each) if isinstance(step, Agent | Converse)]
    return frozenset(step.set_up.continues for step in steps if step.set_up.continues is not None)


# What was said in the sessions of a run's agents, for an agent that cannot open such a session again.


ASKED = "asked"
"""The decision that has the session of a step, and what its agent was told."""


class Kept(Protocol):
    """The journal of a run, as far as sessions are concerned."""

    def decisions(self, what: str) -> dict[Place, Json]:
        """The last decision of this name at each step that has one."""
        ...

    def result(self, place: Place) -> Result | None:
        """What became of a step, if it is over."""
        ...


def asked(session_id: str, prompt: str | None, *, after: str | None, told: str | None) -> Json:
    """What a step keeps of its prompt; `after` is the session whose transcript this one began with.

    A conversation has no prompt: what was said in it is its result. `told` stands for the instructions that
    the session has heard.
    """
    return {"session": session_id, "prompt": prompt and shortened(prompt), "after": after, "told": told}


def told_to(session_id: str, kept: Kept) -> str | None:
    """What stands for the instructions that a session has heard last; None if it has heard none."""
    told = [value["told"] for value in kept.decisions(ASKED).values() if value["session"] == session_id]
    return told[-1] if told else None


def transcript_of(session_id: str, kept: Kept) -> str | None:
    """What was said in a session, and in those before whose place it took; None if nothing is known."""
    return transcript_of_turns(reversed([*_turns(session_id, kept)]))


def _turns(session_id: str, kept: Kept) -> Iterator[str]:
    decided = kept.decisions(ASKED)
    after = {value["session"]: value["after"] for value in decided.values() if value["after"]}
    sessions = [session_id]
    while (before := after.get(sessions[-1])) is not None and before not in sessions:
        sessions.append(before)
    for each in reversed(sessions):
        for place, value in decided.items():
            if value["session"] == each:
                yield _told(value["prompt"], kept.result(place))


def _told(prompt: str | None, result: Result | None) -> str:
    if prompt is None:
        return told_turns(result.output if result is not None and isinstance(result.output, list) else [])
    answer = "" if result is None else result.text or ""
    return told_turns([{"role": "user", "text": prompt}, {"role": "agent", "text": answer}])


def told_turns(spoken: list[dict[str, str]]) -> str:
    """A conversation as lines of text."""
    names = {"user": "User", "agent": "You"}
    return "\n".join(f"{names[each['role']]}: {shortened(each['text'])}" for each in spoken if each["text"])
