"""What the coder of a session works with while it is open; its agent may be made anew meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.coder.commands.background import BackgroundJobs
from coupler.coder.commands.sandbox import Sandbox
from coupler.coder.outputs.outputs import Outputs
from coupler.coder.session_memory import keep, recalled

if TYPE_CHECKING:
    from coupler.agent.session import Session


FILES = "files"
"""Where the session's state has what the coder has seen in files."""

MOST_FILES = 500
"""Files that are remembered so, the last ones."""


class Workplace:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.outputs = Outputs(session)
        self.jobs = BackgroundJobs(session, self.outputs)
        self.sandbox = Sandbox(session, [self.outputs.directory])
        session.known_files.restore(recalled(session, FILES))

    def remember(self) -> None:
        """A turn is over: who goes on with the session elsewhere knows its files, too."""
        if files := self.session.known_files.saved(MOST_FILES):
            keep(self.session, FILES, files)

    async def close(self) -> None:
        """The session is left."""
        await self.jobs.close()
        self.sandbox.close()
