"""The agent that `coupler serve` serves without a target: each project's workflows, and the coder.

Imports next to nothing, because an editor waits for the first answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coupler.__about__ import __version__
from coupler.agent.agent import Agent
from coupler.agent.capabilities import initialize_response
from coupler.agent.factory import AgentFactory

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.startup.serve_options import ServeOptions

IDENTITY = "coder"
"""Identity of the sessions in the store, in the editor as in a terminal."""


class CoderCapabilities(Agent):
    """The coder's capabilities, which are advertised before there is a session."""

    accepts = ("image", "resource")


class Coder:
    """The coder in one of its profiles, with the workflows of its sessions' projects or without."""

    def __init__(
        self, profile: str = IDENTITY, *, model: str | None = None, has_workflows: bool = True
    ) -> None:
        self._profile = profile
        self._model = model
        self._has_workflows = has_workflows

    def make_factory(self, options: ServeOptions) -> AgentFactory:
        """Make the factory of the sessions' agents."""
        is_profile = self._profile != IDENTITY
        told = options._replace(
            name=options.name or "coupler",
            title=options.title or options.name or (f"Coupler {self._profile}" if is_profile else "Coupler"),
            version=options.version or __version__,
        )

        async def agent_for(session: Session) -> Agent:
            from coupler.coder.agent import CoderAgent

            return CoderAgent(session, self._profile, self._model, options, has_workflows=self._has_workflows)

        async def forget(session_id: str, state: Any) -> None:
            from coupler.coder.tools.outputs import delete_outputs
            from coupler.runtime.threads import in_thread

            await in_thread(lambda: delete_outputs(session_id))

        identity = f"{IDENTITY}:{self._profile}" if is_profile else IDENTITY
        return AgentFactory(
            initialize_response(CoderCapabilities, told),
            agent_for,
            identity=identity,
            store=options.store,
            forget=forget,
        )
