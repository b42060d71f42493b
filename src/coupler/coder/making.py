"""The making of a session's LangChain agent.

LangChain takes seconds to import. So that begins as soon as there is a session, in a thread, and then it is
known which commands there are. The agent itself is made for the first prompt, or when somebody says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from coupler.agent.agent import Select
from coupler.agent.startup.loading import import_in_thread
from coupler.coder.model.provider import client_package
from coupler.runtime.extras import need
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from coupler.agent.agent import Command
    from coupler.coder.context.skills import Skills
    from coupler.coder.setup import Setup
    from coupler.coder.workplace import Workplace
    from coupler.langchain.graph_agent import GraphAgent

ASSEMBLY = "coupler.coder.assembly"


class Making:
    """Of the agent of one setup. `offer` is told its commands."""

    def __init__(
        self,
        setup: Setup,
        workplace: Workplace,
        store: str | None,
        offer: Callable[[Sequence[Command]], None],
    ) -> None:
        self.setup = setup
        self._workplace = workplace
        self._store = store
        self._offer = offer
        self._preparing = asyncio.create_task(self._prepare())
        self._making: asyncio.Task[GraphAgent] | None = None

    @property
    def agent(self) -> GraphAgent | None:
        """The agent, if it is there."""
        making = self._making
        is_there = making is not None and making.done() and not making.cancelled() and not making.exception()
        return making.result() if making is not None and is_there else None

    @property
    def has_failed(self) -> bool:
        """Whether it could not be made; what was missing may be there by now."""
        return self._making is not None and self._making.done() and self.agent is None

    def begin(self) -> None:
        """Make it now: it may have servers to connect to."""
        if self._making is None:
            self._making = asyncio.create_task(self._make())

    async def made(self) -> GraphAgent:
        """The agent, when it is there. Raises why it is not."""
        self.begin()
        assert self._making is not None
        # Who waits may be cancelled; what is waited for goes on.
        await asyncio.wait([self._making])
        return self._making.result()

    async def close(self) -> None:
        """Let go of it."""
        tasks = [task for task in (self._preparing, self._making) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if (agent := self.agent) is not None:
            await agent.closed(self._workplace.session)

    async def _prepare(self) -> Skills:
        clients = {client_package(choice.provider) for choice in self.setup.models.values()}
        await import_in_thread([ASSEMBLY, *clients])
        need("langchain", extra="coder", feature="The coder")
        from coupler.coder.compaction.compaction import COMMAND
        from coupler.coder.context.skills import Skills

        skills = Skills(self._workplace.session, self.setup.profile.skills)
        await in_thread(skills.look)
        self._offer([COMMAND, *skills.commands(taken=(COMMAND.name,))])
        return skills

    async def _make(self) -> GraphAgent:
        await asyncio.wait([self._preparing])
        skills = self._preparing.result()
        from coupler.coder.assembly import assembled

        session, profile = self._workplace.session, self.setup.profile
        session.env.update(profile.env)
        await session.use_servers(profile.mcp)
        # LangChain looks at every tool and reads certificates: other sessions go on meanwhile.
        agent = await in_thread(lambda: assembled(self.setup, self._workplace, skills, self._store))
        offered = [value for option in agent.options if isinstance(option, Select) for value in option.values]
        if offered != [*self.setup.models]:
            # Some of the models cannot be used here: the log says why, and nobody can choose them.
            session.declare(options=agent.options)
        await agent.opened(session)
        return agent
