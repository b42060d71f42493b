"""Serves one workflow file as an agent: `coupler serve flow.yaml`, where every prompt runs it.

Imports nothing else of workflows, because an editor waits for the first answer.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.__about__ import __version__
from coupler.agent.agent import Agent
from coupler.agent.capabilities import initialize_response
from coupler.agent.factory import AgentFactory

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.startup.serve_options import ServeOptions


IDENTITY = "workflows"
"""Prefix of the identity of stored sessions, before the path of the file."""


class ServedWorkflow:
    """A workflow file to be served; `accepts` are the blocks that its prompts may hold besides text."""

    def __init__(self, file: str, accepts: Collection[str]) -> None:
        self._file = str(Path(file).absolute())
        self._accepts = (*accepts,)

    def make_factory(self, options: ServeOptions) -> AgentFactory:
        """Return the factory that makes an agent for each session."""
        name = Path(self._file).stem
        told = options._replace(
            name=options.name or name,
            title=options.title or options.name or name,
            version=options.version or __version__,
        )

        async def agent_for(session: Session) -> Agent:
            from coupler.workflow.editor.workflow_agent import WorkflowAgent

            return WorkflowAgent(self._file, options.store, self._accepts)

        described = Agent()
        described.accepts = self._accepts
        identity = f"{IDENTITY}:{self._file}"
        return AgentFactory(
            initialize_response(described, told), agent_for, identity=identity, store=options.store
        )
