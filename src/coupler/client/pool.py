"""Pools agents and sessions: a request with equal options gets one that is already there.

An agent is equal if it is started with the same command, directory and settings; a session, if it is also
opened with the same options. A reused session remembers what was said in it; `fresh` asks for a new one. No
session is ever given to two users at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack, cast

import msgspec

from coupler.client.errors import AgentError
from coupler.client.policy import Policy
from coupler.client.remote import TEMPORARY, OpeningOptions, refuse_unknown
from coupler.client.reply import refuse_no_budget

if TYPE_CHECKING:
    from coupler.client.remote import RemoteAgent
    from coupler.client.session import RemoteSession


log = logging.getLogger("coupler.client")

MOST_AGENTS = 8
"""Agents that run at the same time."""

IDLE_SECONDS = 300.0
"""Seconds after which an unused agent or session is ended."""

Key: TypeAlias = tuple[Any, ...]


class SessionPool:
    """Runs agents and their sessions for many users; an async context manager that ends all of them.

    `connect` returns an agent for what `session` names. With `most` agents in use, others wait for one.
    """

    def __init__(
        self, connect: Callable[..., RemoteAgent], *, most: int = MOST_AGENTS, idle: float = IDLE_SECONDS
    ) -> None:
        if most < 1:
            raise ValueError(f"a pool has room for one agent at least, not for {most}")
        self._connect = connect
        self._most = most
        self._idle = idle
        self._agents: dict[Key, _Pooled] = {}
        self._starting: dict[Key, asyncio.Lock] = {}
        self._reserved = 0
        self._changed = asyncio.Event()
        self._reaper: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._reaper = asyncio.get_running_loop().create_task(self._reap())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closed = True
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.wait([self._reaper])
        agents, self._agents = [*self._agents.values()], {}
        self._tell()
        endings = (pooled.agent.close() for pooled in agents)
        failures = [each for each in await asyncio.gather(*endings, return_exceptions=True) if each]
        if failures:
            raise failures[0]

    @contextlib.asynccontextmanager
    async def session(
        self,
        agent: str | Sequence[str] | Any,
        *,
        fresh: bool = False,
        settings: Mapping[str, Any] | None = None,
        **options: Unpack[OpeningOptions],
    ) -> AsyncIterator[RemoteSession]:
        """Lend a session for the block. `settings` are those of `connect`, the options those of `new`."""
        refuse_unknown("session", options, OpeningOptions)
        refuse_no_budget(options.get("budget"))
        if options.get("cwd") == TEMPORARY:
            raise AgentError("session", "a pool has no temporary directories: make one and name it as `cwd`")
        cwd = _absolute(options.get("cwd", "."))
        options["cwd"] = cwd
        key = _agent_key(agent, cwd, settings or {})
        pooled = await self._lease(key, agent, {"cwd": cwd, **(settings or {})})
        session_key = _session_key(options, pooled.agent)
        session: RemoteSession | None = None
        try:
            session = None if fresh else pooled.take(session_key)
            if session is None:
                session = await pooled.agent.new(**options)
            session.policy = Policy.of(options.get("permissions"))
            session.budget = options.get("budget")
            yield session
        finally:
            await self._give_back(pooled, session_key, session)

    async def _lease(self, key: Key, agent: Any, settings: dict[str, Any]) -> _Pooled:
        """Return the agent of this key and mark it as used; concurrent users wait for one start."""
        async with self._starting.setdefault(key, asyncio.Lock()):
            pooled = self._agents.get(key)
            if pooled is not None and not pooled.agent.is_running:
                log.info("an agent of the pool has ended, and is started again")
                await self._end(key)
                pooled = None
            if pooled is None:
                pooled = await self._start(key, agent, settings)
            pooled.leases += 1
            return pooled

    async def _start(self, key: Key, agent: Any, settings: dict[str, Any]) -> _Pooled:
        await self._make_room()
        try:
            started = self._connect(agent, **settings)
            await started.__aenter__()
        finally:
            self._reserved -= 1
            self._tell()
        if self._is_closed:
            await started.close()
            raise AgentError("closed", "the pool was closed")
        pooled = self._agents[key] = _Pooled(started)
        return pooled

    async def _make_room(self) -> None:
        """Wait until another agent may run, and reserve its place; unused agents are ended for it."""
        while len(self._agents) + self._reserved >= self._most and not self._is_closed:
            unused = [key for key, pooled in self._agents.items() if not pooled.leases]
            if unused:
                await self._end(min(unused, key=lambda key: self._agents[key].since))
            else:
                await self._changed.wait()
        if self._is_closed or self._reaper is None:
            raise AgentError("closed", "the pool is not open: use `async with Pool() as pool`")
        self._reserved += 1

    async def _give_back(self, pooled: _Pooled, key: Key, session: RemoteSession | None) -> None:
        try:
            if session is not None and not session.is_over and not session.has_ended:
                await session.cancel()
                pooled.put(key, session)
        finally:
            pooled.leases -= 1
            pooled.since = time.monotonic()
            self._tell()

    def _tell(self) -> None:
        """Wake whoever waits for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _end(self, key: Key) -> None:
        """End an agent; its place is free once it has ended."""
        pooled = self._agents.pop(key)
        self._reserved += 1
        try:
            await pooled.agent.close()
        finally:
            self._reserved -= 1
            self._tell()

    async def _reap(self) -> None:
        """End what has been unused for too long, sleeping until the next one could be due."""
        while True:
            now = time.monotonic()
            for key, pooled in [*self._agents.items()]:
                if self._agents.get(key) is not pooled:  # while we waited, another one took its place
                    continue
                if not pooled.leases and now - pooled.since >= self._idle:
                    await self._end(key)
                    continue
                for session in pooled.expired(now - self._idle):
                    with contextlib.suppress(AgentError):
                        await session.close()
            last_used = [pooled.oldest() for pooled in self._agents.values()]
            due = min((since + self._idle for since in last_used), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(due - time.monotonic(), 0.01)):
                    await self._changed.wait()


class _Pooled:
    """An agent of the pool, with its unused sessions."""

    def __init__(self, agent: RemoteAgent) -> None:
        self.agent = agent
        self.leases = 0
        self.since = time.monotonic()
        self._unused: dict[Key, list[tuple[RemoteSession, float]]] = {}

    def take(self, key: Key) -> RemoteSession | None:
        """Return an unused session with these options, the most recently used one."""
        unused = self._unused.get(key, [])
        while unused:
            session, _ = unused.pop()
            if not session.is_over:
                return session
        return None

    def put(self, key: Key, session: RemoteSession) -> None:
        """Take a session back, with a policy that allows nothing."""
        session.policy = Policy.deny_all()
        self._unused.setdefault(key, []).append((session, time.monotonic()))

    def oldest(self) -> float:
        """Return the last use of the least recently used thing; for an agent in use, of its sessions."""
        times = [since for unused in self._unused.values() for _, since in unused]
        return min(times if self.leases else [*times, self.since], default=time.monotonic())

    def expired(self, before: float) -> list[RemoteSession]:
        """Remove and return the sessions that were not used since then."""
        gone: list[RemoteSession] = []
        for key, unused in self._unused.items():
            gone += [session for session, since in unused if since <= before]
            self._unused[key] = [entry for entry in unused if entry[1] > before]
        return gone


def _agent_key(agent: Any, cwd: str, settings: Mapping[str, Any]) -> Key:
    words = agent if isinstance(agent, str) else tuple(agent) if isinstance(agent, Sequence) else id(agent)
    return (words, cwd, *sorted((name, _comparable(value)) for name, value in settings.items()))


def _session_key(options: OpeningOptions, agent: RemoteAgent) -> Key:
    """Return what a session was opened with, as a key.

    The permission policy and the budget can change and are no part of it; but the policy is one for an agent
    that asks for no permission, whose sessions keep to the policy that they were opened under.
    """
    given = cast("dict[str, Any]", {**options})
    policy = given.pop("permissions", None)
    given.pop("reason", None)
    given.pop("budget", None)
    if agent.confinement is not None and policy is not None:
        given["permissions"] = Policy.of(policy).name
    return tuple((name, _comparable(given[name])) for name in sorted(given))


def _absolute(directory: str | os.PathLike[str]) -> str:
    return os.path.abspath(directory)  # noqa: PTH100 - as sessions are opened: links stay


def _comparable(value: Any) -> str:
    """Convert a value to a hashable form; functions and other objects equal only themselves."""
    match value:
        case None | str() | bool() | int() | float():
            return repr(value)
        case os.PathLike():
            return _absolute(value)
        case Mapping():
            return repr(sorted((str(name), _comparable(each)) for name, each in value.items()))
        case msgspec.Struct():
            return msgspec.json.encode(value).decode()
        case Sequence():
            return repr([_comparable(each) for each in value])
        case _:
            return f"{type(value).__name__} {id(value)}"
