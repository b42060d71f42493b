"""An agent's process in a run, the sessions that it has open for steps, and what those were opened for.

What an agent asks comes here, and goes to the step whose prompt runs in that session.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from coupler.client.remote import OpeningOptions, RemoteAgent
from coupler.client.session import RemoteSession
from coupler.runtime.threads import in_thread
from coupler.workflow.agents.start import Start, made

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.schema.v1 import McpServer
    from coupler.workflow.agents.exchange import Exchange
    from coupler.workflow.agents.files import Touch
    from coupler.workflow.agents.interception import Interception
    from coupler.workflow.engine.front import Front, OpenFiles


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

    @property
    def opening(self) -> tuple[Start, tuple[McpServer, ...], bool]:
        """What is settled when a session is opened."""
        return self.start, self.servers, self.is_intercepted


@dataclass(eq=False)
class Held:
    """A session that this process holds. It belongs to one step at a time."""

    session: RemoteSession
    order: Order
    """What it was opened for."""
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
    def start(self) -> Start:
        return self.order.start

    @property
    def key(self) -> Earlier:
        return Earlier(self.session.id, self.start.agent)

    def serves(self, order: Order) -> bool:
        """Whether it can go on for this order as it is: what it was opened with cannot be changed."""
        return not self.session.is_over and self.order.opening == order.opening


class Connected:
    """An agent's process, and the sessions that it has open for us."""

    def __init__(self, front: Front) -> None:
        self.agent: RemoteAgent
        self.shows_forms = front.shows_forms
        self.shows_pages = front.shows_pages
        self.users = 0
        self.last_used = 0.0
        self.sessions: dict[str, Held] = {}

    async def start(self, start: Start) -> None:
        self.agent = await in_thread(lambda: made(start, self))
        await self.agent.__aenter__()

    def release(self) -> None:
        """Somebody uses it no longer."""
        self.users -= 1
        self.last_used = time.monotonic()

    async def fill_in(self, form: FormRequest) -> FormAnswer:
        """A form goes to the step whose prompt runs; nobody else can answer it."""
        exchange = self._exchange(form.session_id)
        return False if exchange is None else await exchange.fill_in(form)

    async def open_page(self, page: UrlRequest) -> bool | None:
        """The same for a page."""
        exchange = self._exchange(page.session_id)
        return False if exchange is None else await exchange.open_page(page)

    async def may_touch(self, session_id: str, touch: Touch, path: str, text: str | None) -> bool:
        """Files are for the step whose prompt runs; outside of it there are no rules to judge by."""
        exchange = self._exchange(session_id)
        return exchange is not None and await exchange.judging.may_touch(touch, path, text)

    def open_files(self, session_id: str) -> OpenFiles | None:
        """The files that are not those on the disk."""
        exchange = self._exchange(session_id)
        return None if exchange is None else exchange.files

    def _exchange(self, session_id: str | None) -> Exchange | None:
        held = self.sessions.get(session_id or "")
        return None if held is None else held.exchange
