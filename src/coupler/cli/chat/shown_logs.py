"""The log of a conversation in a terminal: warnings are remarks, in their place among the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from coupler.cli.chat.front import Front
from coupler.cli.chat.parts import Remark
from coupler.cli.sessions.wording import one_line


class ShownLogs(logging.Handler):
    """Shows what is logged, from whichever thread."""

    def __init__(self, front: Front, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.WARNING)
        self._front = front
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        remark = Remark(one_line(record.getMessage()), severity="warning")
        with contextlib.suppress(RuntimeError):  # the conversation is over
            self._loop.call_soon_threadsafe(self._front.show, remark)
