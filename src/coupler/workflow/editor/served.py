"""What `coupler serve flow.yaml` serves: one workflow, which every prompt runs.

Imports nothing of workflows, because an editor waits for the first answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coupler.__about__ import __version__
from coupler.agent.agent import Agent
from coupler.agent.capabilities import introduce
from coupler.agent.factory import Blueprint

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.startup.serve_options import ServeOptions

IDENTITY = "workflows"
"""What the sessions are found by in the store, with the path of the file behind."""


class Workflows:
    """The workflow in a file."""

    def __init__(self, file: str) -> None:
        self._file = str(Path(file).absolute())

    def blueprint(self, options: ServeOptions) -> Blueprint:
        """How each session gets its agent."""
        name = Path(self._file).stem
        told = options._replace(
            name=options.name or name,
            title=options.title or options.name or name,
            version=options.version or __version__,
        )

        async def agent_for(session: Session) -> Agent:
            from coupler.workflow.editor.workflow_agent import WorkflowAgent

            return WorkflowAgent(self._file, options.store)

        identity = f"{IDENTITY}:{self._file}"
        return Blueprint(introduce(Agent, told), agent_for, identity=identity, store=options.store)
