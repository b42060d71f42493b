"""What a conversation needs of whatever people sit in front of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from coupler.cli.chat.parts import Numbered, Part
from coupler.cli.chat.transcript import Transcript


class Left(Exception):  # noqa: N818 - nothing has failed
    """Whoever sat there has left, by Ctrl-D or the end of the input."""


class Interrupted(Exception):  # noqa: N818 - nothing has failed
    """Ctrl-C, where something was to be typed."""


class Asking(Protocol):
    """What a dialog needs: somebody who sees, and who types."""

    async def ask(self, question: str) -> str:
        """An answer to something that stands on the screen; raises `Left` and `Interrupted`."""

    def show(self, part: Part) -> None:
        """Show a part after everything that is on the screen."""


class Front(Asking, Protocol):
    """Shows a transcript and reads what is typed."""

    transcript: Transcript
    can_ask: bool
    """Whether there is somebody to answer questions."""

    async def read(self) -> str:
        """The next line for the agent; raises `Left` and `Interrupted`."""

    def show_whole(self, part: Numbered) -> None:
        """Show all there is of a part that was collapsed."""

    def refresh(self) -> None:
        """The transcript has changed; a front may do so later, by itself."""

    def working(self, interrupt: Callable[[], None]) -> AbstractContextManager[None]:
        """The agent works meanwhile: show how it gets on, and pass on what interrupts it."""
