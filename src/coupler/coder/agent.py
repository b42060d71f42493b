"""One session of the coder: a prompt runs a workflow if it names one; any other is the model's.

What asks the model is in the making as soon as there is a session, and made again when what it was made of
has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.agent.agent import Agent
from coupler.agent.errors import TurnFailedError
from coupler.coder.making import Making
from coupler.coder.offered_modes import modes_of
from coupler.coder.profile import ProfileError
from coupler.coder.served import Described
from coupler.coder.setup import Setup, setup_of
from coupler.coder.workplace import Workplace
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.threads import in_thread
from coupler.workflow.editor.workflow_agent import WorkflowAgent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coupler.agent.agent import Command, Option
    from coupler.agent.session import Session
    from coupler.agent.startup.serve_options import ServeOptions
    from coupler.agent.turn import Turn
    from coupler.langchain.graph_agent import GraphAgent
    from coupler.schema.v1 import ContentBlock, StopReason

MODEL = "model"
"""The id of the option that the model is chosen by, which editors know."""

OWN_CLIENT = "coupler"
"""How Coupler's own client introduces itself."""

NO_MODEL = "No model is set: run `coupler login coder` in a terminal, or set COUPLER_MODEL."


class CoderAgent(Agent):
    """Of one session."""

    accepts = Described.accepts

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
        self._making: Making | None = None
        self._workplace: Workplace | None = None
        self._setup = self._looked_at(session)
        if self._setup is not None and self._setup.choice is not None:
            self.modes = modes_of(self._setup)
            self.options = _options(self._setup)

    async def opened(self, session: Session) -> None:
        if self._workflows is not None:
            await self._workflows.opened(session)
        if self._setup is None or self._setup.choice is None:
            return
        self._making = self._begun(self._setup, session)
        if session.mcp_servers or session.project.mcp_servers:
            self._making.begin()

    def hidden_in(self, session: Session, blocks: tuple[ContentBlock, ...]) -> Mapping[str, str]:
        return {} if self._workflows is None else self._workflows.hidden_in(session, blocks)

    async def moved(self, session: Session) -> None:
        if self._making is not None and (agent := self._making.agent) is not None:
            await agent.moved(session)

    async def closed(self, session: Session) -> None:
        if self._workflows is not None:
            await self._workflows.closed(session)
        if self._making is not None:
            await self._making.close()
        if self._workplace is not None:
            await self._workplace.close()

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
            return await self._answered(await self._made_for(setup, turn.session), setup, turn)
        except (ProfileError, ModelError, MissingExtraError) as error:
            # No refusal with words: editors take back what a refused prompt was answered with.
            raise TurnFailedError(str(error), kind="setup", retryable=False) from error

    async def _answered(self, agent: GraphAgent, setup: Setup, turn: Turn) -> StopReason | None:
        try:
            return await agent.perform(turn)
        except TurnFailedError as error:
            from coupler.coder.model.remedy import with_remedy

            choice = setup.models.get(str(turn.session.options.get(MODEL)), setup.choice)
            assert choice is not None, "a model was asked"
            raise with_remedy(error, choice) from error
        finally:
            if self._workplace is not None:
                self._workplace.remember()

    def _looked_at(self, session: Session) -> Setup | None:
        """How the session begins; what is wrong is told when the first prompt needs it."""
        from coupler.coder.model.errors import ModelError

        try:
            return setup_of(session, self._profile, self._model)
        except (ProfileError, ModelError, MissingExtraError):
            return None

    async def _made_for(self, setup: Setup, session: Session) -> GraphAgent:
        if self._making is not None and (self._making.setup != setup or self._making.has_failed):
            await self._making.close()
            self._making = None
        if self._making is None:
            self._making = self._begun(setup, session)
            session.declare(modes=modes_of(setup), options=_options(setup))
        return await self._making.made()

    def _begun(self, setup: Setup, session: Session) -> Making:
        if self._workplace is None:
            self._workplace = Workplace(session)
        return Making(setup, self._workplace, self._store, lambda commands: self._offer(session, commands))

    def _offer(self, session: Session, commands: Sequence[Command]) -> None:
        if self._workflows is not None:
            self._workflows.offer_besides(session, commands)
        else:
            session.set_commands(commands)

    async def _tell_how_to_set_up(self, turn: Turn) -> StopReason | None:
        from coupler.coder.model.setting_up import how_to_set_up

        if turn.text.startswith("/") and self._workflows is not None:
            return await self._workflows.perform(turn)
        await turn.say_apart(how_to_set_up(turn.session.env))
        if self._workflows is not None:
            await self._workflows.perform(turn)
        if _is_read_by_program(turn):
            raise TurnFailedError(NO_MODEL, kind="setup", retryable=False)
        return None


def _is_read_by_program(turn: Turn) -> bool:
    """Whether the answer may be a step's or a script's: these must not go on as if it were one."""
    client = turn.editor.info
    return client is not None and client.name == OWN_CLIENT


def _options(setup: Setup) -> tuple[Option, ...]:
    """The models that can be chosen."""
    from coupler.agent.agent import Select

    return (Select(MODEL, [*setup.models], name="Model", category="model"),)
