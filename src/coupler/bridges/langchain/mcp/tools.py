"""The tools of a session's MCP servers, for graphs: connected in the background, as the servers come.

A server has ten seconds before the first model call goes on without it; its tools are there from the call on
at which it is ready. One that fails is told to the user once, and costs only its own tools.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Collection
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from langchain_core.tools import BaseTool

from coupler.agent.turn import NOTICES
from coupler.bridges.langchain.current import current
from coupler.bridges.langchain.mcp.names import Names, Prefix, checked
from coupler.bridges.langchain.mcp.tool import McpTool
from coupler.mcp.tools import McpError, Tool, named
from coupler.runtime.extras import MissingExtraError
from coupler.schema.v1 import McpServer

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.bridges")

PATIENCE = 10.0
"""Seconds that a model call waits for servers that are still starting."""

FRESHNESS = 2.0
"""Seconds that a turn waits to hear whether a server, whose tools are known, has others by now."""


def begin(session: Session) -> None:
    """Connect to the session's servers, in the background; those that are known already stay connected."""
    if session.servers.names:
        _listing_of(session).begin()


async def mcp_tools(
    session: Session, prefix: Prefix = "collision", *, taken: Collection[str] = ()
) -> list[BaseTool]:
    """The tools that the session's servers have now. `taken` are names that they must not have."""
    if not session.servers.names:
        return []
    prompt = current()
    if prompt is None or prompt.session is not session:
        return await _found(session, checked(prefix), taken, None)
    return await prompt.on_loop(_found(session, checked(prefix), taken, prompt.turn))


async def _found(
    session: Session, prefix: Prefix, taken: Collection[str], turn: Turn | None
) -> list[BaseTool]:
    listing = _listing_of(session)
    listing.is_wanted = True
    await listing.until_ready(turn)
    if turn is not None:
        await listing.tell_failures(turn)
    return listing.tools(prefix, taken)


async def tell_if_unused(turn: Turn) -> None:
    """A turn is over: say once if its agent takes no notice of the session's servers."""
    session = turn.session
    listing = _listings.get(session)
    if listing is None or listing.is_wanted:
        return
    listing.is_wanted = True
    servers = ", ".join(named(name) for name in session.servers.names)
    log.warning("this agent does not use %s: give it the middleware acp.tools()", servers)
    if turn.editor.offers(NOTICES):  # to all others it would be a part of the answer
        remedy = "It was built without them; its author can add the middleware `acp.tools()`."
        await turn.notice(f"This agent does not use {servers}", remedy, severity="warning")


class Listing:
    """What the servers of one session have, as far as they have said. One task a server finds out."""

    def __init__(self, session: Session) -> None:
        # Weak: a listing is found by its session, and must not keep it.
        self._session = weakref.ref(session)
        self._servers = session.servers
        self._entries: dict[str, McpServer] = {}
        self._tools: dict[str, list[Tool]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._names: dict[Prefix, Names] = {}
        self._made: dict[str, tuple[Tool, McpTool]] = {}
        self._turn: Turn | None = None
        self.is_wanted = False
        """Whether anybody has asked for the tools."""
        self._is_late: set[str] = set()
        """Servers for which nobody waits any more, until they have tools."""

    def begin(self) -> None:
        """Ask each server that is new, or another than before."""
        entries = dict(self._servers.entries)
        for name in [*self._entries]:
            if entries.get(name) != self._entries[name]:
                self._forget(name)
        for name, entry in entries.items():
            if name not in self._entries:
                self._entries[name] = entry
                self._ask(name)

    async def until_ready(self, turn: Turn | None) -> None:
        """Wait for servers that are still starting, for some time; a new turn asks all of them again."""
        self.begin()
        known = {name for name in self._entries if name in self._tools}
        if turn is not None and turn is not self._turn:
            if self._turn is not None:
                for name in self._entries:
                    self._ask(name)
            self._turn = turn
        await self._wait([name for name in self._asking if name in known], FRESHNESS)
        awaited = [name for name in self._asking if name not in known | self._is_late]
        await self._wait(awaited, PATIENCE)
        self._is_late.update(name for name in awaited if name in self._asking)

    async def tell_failures(self, turn: Turn) -> None:
        """Tell the user of servers that have failed, each once for each reason."""
        for name, reason in [*self._failures.items()]:
            if self._told.get(name) != reason:
                self._told[name] = reason
                await turn.notice(f"The tools of {named(name)} are missing", reason, severity="warning")

    def tools(self, prefix: Prefix, taken: Collection[str]) -> list[BaseTool]:
        """The tools that are known by now, in the order of the servers."""
        found = [tool for name in self._entries for tool in self._tools.get(name, ())]
        names = self._names.setdefault(prefix, Names(prefix))
        return [self._tool(name, tool) for name, tool in names.of(found, taken).items()]

    def _tool(self, name: str, tool: Tool) -> McpTool:
        known, made = self._made.get(name, (None, None))
        if made is None or known != tool:
            made = McpTool(name, tool, self._servers, self._session)
            self._made[name] = tool, made
        return made

    def _ask(self, name: str) -> None:
        if name in self._asking:
            return
        task = asyncio.get_running_loop().create_task(self._list(name), name=f"tools of {name}")
        self._asking[name] = task
        task.add_done_callback(lambda done: self._end_asking(name, done))

    def _end_asking(self, name: str, done: asyncio.Task[None]) -> None:
        if self._asking.get(name) is done:
            del self._asking[name]

    async def _list(self, name: str) -> None:
        try:
            self._tools[name] = await self._servers.tools_of(name)
            self._failures.pop(name, None)
            self._is_late.discard(name)
        except (McpError, MissingExtraError) as error:
            log.warning("%s", error)
            self._tools.pop(name, None)
            self._failures[name] = str(error)
            self._is_late.add(name)

    async def _wait(self, names: list[str], seconds: float) -> None:
        tasks = [self._asking[name] for name in names if name in self._asking]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _forget(self, name: str) -> None:
        self._entries.pop(name)
        self._tools.pop(name, None)
        self._failures.pop(name, None)
        self._is_late.discard(name)
        if name in self._asking:
            self._asking.pop(name).cancel()


_listings: WeakKeyDictionary[Session, Listing] = WeakKeyDictionary()


def _listing_of(session: Session) -> Listing:
    listing = _listings.get(session)
    if listing is None:
        listing = _listings[session] = Listing(session)
    return listing
