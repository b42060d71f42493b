"""The one account of a session's tool calls.

It promises what clients rely on: an id is announced once, only announced ids are updated, nothing follows
a call's end, and `settle_all` leaves no call open, whichever way a turn ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from coupler.events import ToolCall, ToolUpdate
from coupler.schema.v1 import Content, TextContent

log = logging.getLogger("coupler.agent")

CANCELLED_META = {"coupler": {"outcome": "cancelled"}}
"""v1 has no status for a cancelled call: it is reported as failed, and this says why."""


class Ledger:
    """Every tool call of a session; `report` sends what changed."""

    def __init__(self, report: Callable[[ToolUpdate], None]) -> None:
        self._report = report
        self._open: dict[str, ToolCall] = {}
        self._settled: set[str] = set()

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that still wait or run, in the order of their announcement."""
        return tuple(self._open.values())

    def announce(self, title: str, *, id: str | None = None, **fields: Any) -> str:
        """Begin a call; returns its id, made here unless the agent's model has one."""
        call_id = id or f"call_{os.urandom(8).hex()}"
        if call_id in self._open or call_id in self._settled:
            raise ValueError(
                f"the tool call {call_id!r} was announced before: an id is used once in a session"
            )
        update = ToolUpdate(id=call_id, title=title, **fields)
        self._open[call_id] = ToolCall(id=call_id).updated(update)
        self._report(update)
        return call_id

    def update(self, id: str, **fields: Any) -> None:
        """Report a change; after the call's end there is nothing left to report."""
        self._apply(ToolUpdate(id=id, **fields))

    def settle(self, id: str, status: str, **fields: Any) -> None:
        """End a call as completed or failed."""
        self._apply(ToolUpdate(id=id, status=status, **fields))

    def settle_all(self, status: str, reason: str | None = None, *, cancelled: bool = False) -> None:
        """End whatever is still open, and say why."""
        for call in self.open_calls:
            content = (*call.content, text_content(reason)) if reason else UNSET
            self.settle(call.id, status, content=content, meta=CANCELLED_META if cancelled else UNSET)

    def _apply(self, update: ToolUpdate) -> None:
        call = self._open.get(update.id)
        if call is None:
            if update.id not in self._settled:
                raise ValueError(f"the tool call {update.id!r} was never announced")
            log.debug("an update of the settled tool call %s was dropped", update.id)
            return
        call = call.updated(update)
        if call.is_open:
            self._open[call.id] = call
        else:
            del self._open[call.id]
            self._settled.add(call.id)
        self._report(update)


def text_content(text: str) -> Content:
    """Text as tool calls carry it."""
    return Content(TextContent(text))
