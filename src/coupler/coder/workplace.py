"""What the coder of a session works with while it is open; its agent may be made anew meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.coder.commands.background import BackgroundJobs
from coupler.coder.commands.sandbox import Sandbox
from coupler.coder.outputs.outputs import Outputs

if TYPE_CHECKING:
    from coupler.agent.session import Session


class Workplace:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.outputs = Outputs(session)
        self.jobs = BackgroundJobs(session, self.outputs)
        self.sandbox = Sandbox(session, [self.outputs.directory])

    async def close(self) -> None:
        """The session is left."""
        await self.jobs.close()
        self.sandbox.close()
