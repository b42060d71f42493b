"""One session of the coder: a prompt runs a workflow if it names one; any other is the model's.

LangChain takes seconds to import, so that happens in the background as soon as there is a session. Its agent
is made for the first prompt, or at once if there are MCP servers to connect to, and made again when what it
was made of has changed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from coupler.agent.agent import Agent
from coupler.agent.loading import import_in_thread
from coupler.coder.offered_modes import beginning_with
from coupler.coder.profile import ProfileError
from coupler.coder.setup import Setup, setup_of
from coupler.extras import MissingExtraError
from coupler.thread import in_thread
from coupler.workflow.editor.agent import WorkflowAgent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coupler.agent.option import Option
    from coupler.agent.serve_options import ServeOptions
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.bridges.langchain.graph_agent import GraphAgent
    from coupler.schema.v1 import ContentBlock, StopReason

MODEL = "model"
"""The id of the option that the model is chosen by, which editors know."""

ASSEMBLY = "coupler.coder.assembly"


class CoderAgent(Agent):
    """Of one session."""

    accepts = ("image", "resource")

    def __init__(
        self,
        session: Session,
        profile: str,
        model: str | None,
        options: ServeOptions,
        *,
        has_workflows: bool,
    ) -> None:
        self._profile = profile
        self._model = model
        self._store = options.store
        self._workflows = WorkflowAgent(None, options.store) if has_workflows else None
        self._made: _Made | None = None
        self._importing: asyncio.Task[None] | None = None
        self._setup = self._looked_at(session)
        if self._setup is not None and self._setup.choice is not None:
            self.modes = beginning_with(self._setup.mode)
            self.options = _options(self._setup)

    async def opened(self, session: Session) -> None:
        if self._workflows is not None:
            await self._workflows.opened(session)
        if self._setup is None or self._setup.choice is None:
            return
        if session.mcp_servers or session.project.mcp_servers:
            self._made = _Made(self._setup, session, self._store)
        elif ASSEMBLY not in sys.modules:
            self._importing = asyncio.create_task(import_in_thread([ASSEMBLY]))

    def hidden_in(self, session: Session, blocks: tuple[ContentBlock, ...]) -> Mapping[str, str]:
        return {} if self._workflows is None else self._workflows.hidden_in(session, blocks)

    async def moved(self, session: Session) -> None:
        if self._made is not None and (agent := self._made.agent) is not None:
            await agent.moved(session)

    async def closed(self, session: Session) -> None:
        if self._workflows is not None:
            await self._workflows.closed(session)
        if self._importing is not None:
            self._importing.cancel()
        if self._made is not None:
            await self._made.close()

    async def perform(self, turn: Turn) -> StopReason | None:
        """Give the prompt to a workflow, or to the model if there is one."""
        if self._workflows is not None and await self._workflows.is_for_workflows(turn):
            return await self._workflows.perform(turn)
        # Imported on use: who has no model may have none of its packages either.
        from coupler.coder.model.errors import ModelError

        try:
            setup = await in_thread(lambda: setup_of(turn.session, self._profile, self._model))
            if setup.choice is None:
                return await self._tell_how_to_set_up(turn)
            return await (await self._made_for(setup, turn.session)).perform(turn)
        except (ProfileError, ModelError, MissingExtraError) as error:
            await turn.say_apart(str(error))
            return "refusal"

    def _looked_at(self, session: Session) -> Setup | None:
        """How the session begins; what is wrong is told when the first prompt needs it."""
        from coupler.coder.model.errors import ModelError

        try:
            return setup_of(session, self._profile, self._model)
        except (ProfileError, ModelError, MissingExtraError):
            return None

    async def _made_for(self, setup: Setup, session: Session) -> GraphAgent:
        if self._made is not None and (self._made.setup != setup or self._made.has_failed):
            await self._made.close()
            self._made = None
        if self._made is None:
            self._made = _Made(setup, session, self._store)
            session.declare(modes=beginning_with(setup.mode), options=_options(setup))
        return await self._made.ready()

    async def _tell_how_to_set_up(self, turn: Turn) -> StopReason | None:
        from coupler.coder.model.setting_up import how_to_set_up

        if turn.text.startswith("/") and self._workflows is not None:
            return await self._workflows.perform(turn)
        await turn.say_apart(how_to_set_up(turn.session.env))
        return None if self._workflows is None else await self._workflows.perform(turn)


class _Made:
    """The LangChain agent of a session, on its way or there."""

    def __init__(self, setup: Setup, session: Session, store: str | None) -> None:
        self.setup = setup
        self._session = session
        self._store = store
        self._making = asyncio.create_task(self._make())

    @property
    def agent(self) -> GraphAgent | None:
        """The agent, if it is there."""
        return self._making.result() if self._is_there else None

    @property
    def has_failed(self) -> bool:
        """Whether it could not be made, and may be made by now."""
        return self._making.done() and not self._is_there

    async def ready(self) -> GraphAgent:
        """The agent, when it is there. Raises why it is not."""
        # Who waits may be cancelled; what is waited for goes on.
        await asyncio.wait([self._making])
        return self._making.result()

    async def close(self) -> None:
        """Let go of it."""
        self._making.cancel()
        await asyncio.wait([self._making])
        if (agent := self.agent) is not None:
            await agent.closed(self._session)

    @property
    def _is_there(self) -> bool:
        making = self._making
        return making.done() and not making.cancelled() and making.exception() is None

    async def _make(self) -> GraphAgent:
        from coupler.extras import need

        await import_in_thread([ASSEMBLY])
        need("langchain", extra="coder", feature="the coder")
        from coupler.coder.assembly import assembled

        agent = assembled(self.setup, self._session, self._store)
        await agent.opened(self._session)
        return agent


def _options(setup: Setup) -> tuple[Option, ...]:
    """The models, if there is more than one to choose from."""
    from coupler.agent.option import Select

    return (Select(MODEL, [*setup.models], name="Model", category="model"),)
