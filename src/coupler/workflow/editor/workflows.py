"""What `coupler serve` serves without an agent: the workflows of each session's project, or one file.

Imports nothing of workflows, because an editor waits for the first answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coupler.__about__ import __version__
from coupler.agent.agent import Agent
from coupler.agent.blueprint import Blueprint
from coupler.agent.introduction import introduce

if TYPE_CHECKING:
    from coupler.agent.serve_options import ServeOptions
    from coupler.agent.session import Session

IDENTITY = "workflows"
"""What the sessions are found by in the store; those of a file that is served alone have its path behind."""


class Workflows:
    """All workflows that a session's directory has, or the one in a file."""

    def __init__(self, file: str | None = None) -> None:
        self._file = None if file is None else str(Path(file).absolute())

    def blueprint(self, options: ServeOptions) -> Blueprint:
        """How each session gets its agent."""
        name = "coupler" if self._file is None else Path(self._file).stem
        title = "Coupler workflows" if self._file is None else name
        told = options._replace(
            name=options.name or name,
            title=options.title or options.name or title,
            version=options.version or __version__,
        )

        async def agent_for(session: Session) -> Agent:
            from coupler.workflow.editor.agent import WorkflowAgent

            return WorkflowAgent(self._file, options.store)

        identity = IDENTITY if self._file is None else f"{IDENTITY}:{self._file}"
        return Blueprint(introduce(Agent, told), agent_for, identity=identity, store=options.store)
