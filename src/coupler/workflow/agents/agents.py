"""Keeps the agents of a run: starts them when a step needs them, shares them between steps, ends them.

Sessions that a later step goes on with are kept open. One that is gone is opened again where its agent can do
that; else there is a new one, which is sent a transcript.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import msgspec

from coupler.client.errors import AgentError
from coupler.client.kept_sessions import LOAD_CAPABILITY, RESUME_CAPABILITY
from coupler.client.remote import OpeningOptions, RemoteAgent
from coupler.client.session import RemoteSession
from coupler.events.events import TurnUsage
from coupler.permission.offers import Choices
from coupler.relay.session import shortened, transcript_of_turns
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import ImageContent
from coupler.workflow.agents.agent_events import LONGEST_LINE, Spending
from coupler.workflow.agents.agent_start import AgentStart, image_steps, make_agent
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Noted, Place, Result
from coupler.workflow.language.model import (
    Agent,
    Converse,
    Json,
    Limits,
    SourcePosition,
    Workflow,
)
from coupler.workflow.steps.agents import agent_steps

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.schema.v1 import McpServer
    from coupler.store.store import Store
    from coupler.workflow.agents.editor_access import FileOperation
    from coupler.workflow.agents.permission import Interception
    from coupler.workflow.agents.prompts import PromptExchange
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.front import FrontEnd, OpenFiles
    from coupler.workflow.language.library import Bundle


log = logging.getLogger("coupler.workflow")

MOST_IDLE = 4
"""Most agents without users that are kept; the one that was used longest ago is ended first."""

MOST_WAITING = 8
"""Most agents that are kept only for sessions which later steps continue, if those can be reopened."""

CLOSE_LIMIT = 5.0
"""Seconds that an agent has to close a session that nobody needs any more."""

IMAGES = "images"
"""The decision about the run with the images of the prompt that started it; at a step, that it gets them."""

ASKED = "asked"
"""The decision with the session of a step, and what its agent was told."""


class AgentSessionJournal(Protocol):
    """The journal of a run, as far as sessions are concerned."""

    def decision(self, place: Place | None, what: str) -> Json:
        """Return the last decision of this name at a step, or about the run; UNSET if there was none."""
        ...

    def decisions(self, what: str) -> dict[Place, Json]:
        """Return the last decision of this name at each step that has one."""
        ...

    def result(self, place: Place) -> Result | None:
        """Return the result of a step, if it is over."""
        ...


class EarlierSession(NamedTuple):
    """The session of an earlier step, as its result has it."""

    session_id: str
    agent: str


class SessionRequest(NamedTuple):
    """The session that a step needs."""

    start: AgentStart
    options: OpeningOptions
    servers: tuple[McpServer, ...] = ()
    is_intercepted: bool = False
    earlier: EarlierSession | None = None
    is_kept: bool = False
    """True if a later step may continue it."""
    transcript: str | None = None
    """The text of the earlier session, if that is not in the journal as steps have it."""

    @property
    def opening(self) -> tuple[AgentStart, tuple[McpServer, ...], bool]:
        """The parts of the request that cannot be changed once the session is open."""
        return self.start, self.servers, self.is_intercepted


@dataclass(eq=False)
class HeldSession:
    """A session that this process holds. It belongs to one step at a time."""

    session: RemoteSession
    order: SessionRequest
    """The request that it was opened for."""
    connected: ConnectedAgent
    told: str | None = None
    """Digest of the instructions that were sent to it before a prompt."""
    after: str | None = None
    """The session that it replaces."""
    transcript: str | None = None
    """Transcript of the replaced session, until it has been sent."""
    reason: str | None = None
    """Reason why it is not the session that was wanted."""
    exchange: PromptExchange | None = None
    """The prompt that runs."""
    interception: Interception | None = None

    @property
    def start(self) -> AgentStart:
        return self.order.start

    @property
    def takes_images(self) -> bool:
        """True if its agent takes images in prompts."""
        return bool(self.connected.agent.capabilities.prompt_capabilities.image)

    @property
    def key(self) -> EarlierSession:
        return EarlierSession(self.session.id, self.start.agent)

    def serves(self, order: SessionRequest) -> bool:
        """Tell whether it fits a request as it is: what it was opened with cannot be changed."""
        return not self.session.is_over and self.order.opening == order.opening


class PromptImages:
    """The images of the prompt that started the run: for the first step whose agent takes images.

    They go with the first prompt to that agent, and again when the step is tried again or the run is resumed.
    """

    def __init__(self, bundle: Bundle, journal: AgentSessionJournal) -> None:
        kept = journal.decision(None, IMAGES)
        self._images = () if kept is msgspec.UNSET else images_of(kept)
        self._taken_at: Place | None = next(iter(journal.decisions(IMAGES)), None)
        self._steps = {step.position for step in image_steps(bundle)} if self._images else set()
        self._unable: set[SourcePosition] = set()

    @property
    def are_left(self) -> bool:
        """True if there are images that no agent got."""
        return bool(self._images) and self._taken_at is None

    async def for_prompt(
        self, step: Agent | Converse, attempt: Attempt, held: HeldSession
    ) -> tuple[ImageContent, ...]:
        """Return the images that go with a step's first prompt.

        Raises `StepError` if its agent takes none, and no other step is left whose agent may.
        """
        if not self._images or step.position not in self._steps:
            return ()
        if self._taken_at is not None:
            return self._images if self._taken_at == attempt.place else ()
        if held.takes_images:
            self._taken_at = attempt.place
            await attempt.decide(IMAGES, True)
            return self._images
        self._unable.add(step.position)
        if self._unable >= self._steps:
            raise StepError(
                "not_found",
                f"{held.start.name} takes no images, and the prompt that started the run has one: start it "
                "again without, or with an agent that takes images",
            )
        attempt.emit(Noted(text=f"{held.start.name} takes no images: the prompt's image is for a later step"))
        return ()


def image_values(images: Iterable[ImageContent]) -> Json:
    """Return images as a decision holds them."""
    return [msgspec.to_builtins(image) for image in images]


def images_of(values: Json) -> tuple[ImageContent, ...]:
    """Return the images that a decision holds."""
    return msgspec.convert(values, tuple[ImageContent, ...])


class ConnectedAgent:
    """An agent's process, and its open sessions; passes what it asks to the step whose prompt runs."""

    def __init__(self, front: FrontEnd) -> None:
        self.agent: RemoteAgent
        self.shows_forms = front.shows_forms
        self.shows_pages = front.shows_pages
        self.users = 0
        self.last_used = 0.0
        self.sessions: dict[str, HeldSession] = {}

    async def start(self, start: AgentStart) -> None:
        """Make and start the agent."""
        self.agent = await in_thread(lambda: make_agent(start, self))
        await self.agent.__aenter__()

    def release(self) -> None:
        """Note that a step does not use the agent any more."""
        self.users -= 1
        self.last_used = time.monotonic()

    async def fill_in(self, form: FormRequest) -> FormAnswer:
        """Pass a form to the step whose prompt runs; nobody else can answer it."""
        exchange = self._exchange(form.session_id)
        return False if exchange is None else await exchange.fill_in(form)

    async def open_page(self, page: UrlRequest) -> bool | None:
        """Pass a page to the step whose prompt runs."""
        exchange = self._exchange(page.session_id)
        return False if exchange is None else await exchange.open_page(page)

    async def may_touch(self, session_id: str, touch: FileOperation, path: str, text: str | None) -> bool:
        """Judge access to a file by the rules of the step whose prompt runs; else deny it."""
        exchange = self._exchange(session_id)
        return exchange is not None and await exchange.judging.may_touch(touch, path, text)

    def open_files(self, session_id: str) -> OpenFiles | None:
        """Return the files that are open in an editor, for the step whose prompt runs."""
        exchange = self._exchange(session_id)
        return None if exchange is None else exchange.files

    def _exchange(self, session_id: str | None) -> PromptExchange | None:
        held = self.sessions.get(session_id or "")
        return None if held is None else held.exchange


class Agents:
    """The agents of one run; an async context manager that leaves no process behind."""

    def __init__(
        self,
        *,
        store: Store | None = None,
        bundle: Bundle,
        limits: Limits | None = None,
        journal: AgentSessionJournal,
        front: FrontEnd,
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
        self.images = PromptImages(bundle, journal)
        self.journal = journal
        self.mcp_servers = mcp_servers
        self.replaced_servers: set[str] = set()
        """Names of servers of which it was told that another one is used."""
        self._continued = {workflow.file: _continued_steps(workflow) for workflow in bundle.workflows}
        self._connected: dict[AgentStart, ConnectedAgent] = {}
        self._ending: dict[asyncio.Future[None], RemoteAgent] = {}
        self._starting: dict[AgentStart, asyncio.Lock] = {}
        self._held: dict[EarlierSession, HeldSession] = {}
        self._turns: dict[EarlierSession, asyncio.Lock] = {}
        self._calls: set[str] = set()
        self._is_closed = False

    @property
    def usage(self) -> TurnUsage | None:
        """The usage of all steps of the run; None if no agent was asked."""
        return self.spending.total

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all agents and everything that they started; if cancelled, kill them."""
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

    def _end(self, start: AgentStart) -> asyncio.Future[None]:
        """Start to end an agent; `close` waits for those that nobody else has waited for."""
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
        """Tell whether another step may go on with this one's session."""
        return step.id in self._continued.get(workflow.file, ())

    def choices_in(self, directory: str) -> Choices:
        """Return the permission choices that the user made for good in a directory."""
        if directory not in self._choices:
            self._choices[directory] = Choices(directory, self._choice_store)
        return self._choices[directory]

    def name_call(self, id: str, place: str) -> str:
        """Return an agent's id for a tool call, or one made of it if the run has that already."""
        short = name = _short(id)
        number = 1
        while name in self._calls:
            name = f"{place}:{short}" if number == 1 else f"{place}:{short}~{number}"
            number += 1
        self._calls.add(name)
        return name

    @asynccontextmanager
    async def session(self, order: SessionRequest) -> AsyncIterator[HeldSession]:
        """Open a session for one step alone: a new one, or that of an earlier step. Raises `AgentError`."""
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
    async def _alone(self, earlier: EarlierSession | None) -> AsyncIterator[None]:
        """Let steps that continue the same session do so one after the other."""
        if earlier is None:
            yield
            return
        async with self._turns.setdefault(earlier, asyncio.Lock()):
            yield

    async def _open(self, order: SessionRequest) -> HeldSession:
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

    async def _again(self, order: SessionRequest, earlier: EarlierSession) -> HeldSession:
        """Reopen the session of an earlier step; if that fails, open a new one with its transcript."""
        if earlier.agent != order.start.agent:
            reason = f"its session is one of {earlier.agent}, which {order.start.agent} cannot open"
        else:
            try:
                held = await self._on(order, earlier.session_id)
                held.told = instructions_heard(earlier.session_id, self.journal)
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

    async def _new(self, order: SessionRequest) -> HeldSession:
        return await self._on(order, None)

    async def _on(self, order: SessionRequest, session_id: str | None) -> HeldSession:
        """Open a session of the needed agent: a new one, or the one with this id."""
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
        held = connected.sessions[session.id] = HeldSession(
            session, order, connected, interception=interception
        )
        if interception is not None:
            interception.held = held
            session.at_end(interception.close)
        return held

    async def _start(self, start: AgentStart) -> ConnectedAgent:
        """Return the agent's process, which is counted as used from now on."""
        async with self._starting.setdefault(start, asyncio.Lock()):
            connected = self._connected.get(start)
            if connected is None:
                connected = ConnectedAgent(self._front)
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

    async def _end_waiting(self, last: HeldSession) -> None:
        """End agents whose sessions were used long ago: a loop may leave ever more processes."""
        last.connected.last_used = time.monotonic()
        kept: dict[ConnectedAgent, list[HeldSession]] = {}
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

    async def _let_go(self, held: HeldSession) -> None:
        held.connected.sessions.pop(held.session.id, None)
        held.connected.release()
        with contextlib.suppress(AgentError, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT):
                await held.session.close()


def _can_reopen(agent: RemoteAgent) -> bool:
    return agent.offers(RESUME_CAPABILITY) or agent.offers(LOAD_CAPABILITY)


async def _opened(agent: RemoteAgent, session_id: str | None, options: OpeningOptions) -> RemoteSession:
    if session_id is None:
        return await agent.new(**options)
    if agent.offers(RESUME_CAPABILITY):
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
    """Return an id that can be shown: a long one is cut, with a digest."""
    if len(id) <= LONGEST_LINE:
        return id
    return f"{id[:50]}…{hashlib.sha256(id.encode(errors='replace')).hexdigest()}"


def _continued_steps(workflow: Workflow) -> frozenset[str]:
    """The ids of the steps that others go on with."""
    steps = agent_steps(workflow)
    return frozenset(step.set_up.continues for step in steps if step.set_up.continues is not None)


def asked_decision(session_id: str, prompt: str | None, *, after: str | None, told: str | None) -> Json:
    """Return what is kept of a step's prompt; `after` is the session whose transcript this one began with.

    A conversation has no prompt: what was said in it is its result. `told` is the digest of the instructions
    that the session was given.
    """
    return {"session": session_id, "prompt": prompt and shortened(prompt), "after": after, "told": told}


def instructions_heard(session_id: str, kept: AgentSessionJournal) -> str | None:
    """Return the digest of the instructions that a session was given last; None if it has none."""
    told = [value["told"] for value in kept.decisions(ASKED).values() if value["session"] == session_id]
    return told[-1] if told else None


def transcript_of(session_id: str, kept: AgentSessionJournal) -> str | None:
    """Return the transcript of a session, and of those it replaced; None if nothing is known."""
    return transcript_of_turns(reversed([*_turns(session_id, kept)]))


def _turns(session_id: str, kept: AgentSessionJournal) -> Iterator[str]:
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
        return conversation_text(
            result.output if result is not None and isinstance(result.output, list) else []
        )
    answer = "" if result is None else result.text or ""
    return conversation_text([{"role": "user", "text": prompt}, {"role": "agent", "text": answer}])


def conversation_text(spoken: list[dict[str, str]]) -> str:
    """Return a conversation as lines of text."""
    names = {"user": "User", "agent": "You"}
    return "\n".join(f"{names[each['role']]}: {shortened(each['text'])}" for each in spoken if each["text"])
