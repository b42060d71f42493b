"""The one account of a session's tool calls.

It promises what clients rely on: an id is announced once, only announced ids are updated, nothing follows
a call's end, and `settle_all` leaves no call open, whichever way a turn ends. A client is told what a call
shows in statements of the whole, in proportion to the output; the journal gets every change once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from coupler.agent.shown import Shown
from coupler.events import ToolCall, ToolOutput, ToolUpdate
from coupler.events.events import OPEN_STATUSES
from coupler.schema.v1 import Content, Terminal, TextContent, ToolCallContent

log = logging.getLogger("coupler.agent")

CANCELLED_META = {"coupler": {"outcome": "cancelled"}}
"""v1 has no status for a cancelled call: it is reported as failed, and this says why."""

STARTED = "in_progress"

PACE = 0.05
"""Seconds between two statements of what one call shows, at least."""


def _forget(change: ToolUpdate | ToolOutput) -> None:
    """What a session without a journal records."""


class Cover(Protocol):
    """What a tool's output passes before anybody sees it: secrets are masked, also those in two pieces."""

    def covered_output(self, output: ToolOutput) -> tuple[ToolOutput, ...]:
        """What can be shown by now."""

    def end_output(self, id: str) -> tuple[ToolOutput, ...]:
        """What was held back, now that the call ends."""


class _NoCover:
    def covered_output(self, output: ToolOutput) -> tuple[ToolOutput, ...]:
        return (output,)

    def end_output(self, id: str) -> tuple[ToolOutput, ...]:
        return ()


class Ledger:
    """Every tool call of a session; `report` tells the client, `record` the journal."""

    def __init__(
        self,
        report: Callable[[ToolUpdate], None],
        record: Callable[[ToolUpdate | ToolOutput], None] = _forget,
        cover: Cover | None = None,
    ) -> None:
        self._report = report
        self._record = record
        self._cover = cover or _NoCover()
        self._open: dict[str, _Account] = {}
        self._settled: set[str] = set()

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that still wait or run, in the order of their announcement, without what they show."""
        return tuple(account.call for account in self._open.values())

    def content(self, id: str) -> tuple[ToolCallContent, ...]:
        """What an open call shows by now."""
        account = self._open.get(id)
        return account.shown.content() if account is not None else ()

    def knows(self, id: str) -> bool:
        """Whether a call of this session has the id; no other can get it then."""
        return id in self._open or id in self._settled

    def know(self, ids: Iterable[str]) -> None:
        """These calls were over before the session was opened again; their ids are taken."""
        self._settled.update(ids)

    def announce(self, title: str, *, id: str | None = None, **fields: Any) -> str:
        """Begin a call; returns its id, made here unless the agent's model has one."""
        call_id = id or f"call_{os.urandom(8).hex()}"
        if call_id in self._open or call_id in self._settled:
            raise ValueError(
                f"the tool call {call_id!r} was announced before: an id is used once in a session"
            )
        update = ToolUpdate(id=call_id, title=title, **fields)
        _refuse_content(update)
        self._open[call_id] = _Account(ToolCall(id=call_id).updated(update))
        self._record(update)
        self._report(update)
        return call_id

    def update(self, id: str, **fields: Any) -> None:
        """Report a change; after the call's end there is nothing left to report."""
        account = self._account(id)
        if account is not None:
            self._apply(account, ToolUpdate(id=id, **fields))

    def append(self, id: str, item: ToolCallContent, *, starts: bool = False) -> None:
        """Show something more, and report with it that the call runs if it starts with this.

        Text that streams is shown at once and then a few times a second; what would be too much to send
        waits for more output or for the call's end.
        """
        account = self._account(id)
        if account is None:
            return
        if starts:
            self._note(account, ToolUpdate(id=id, status=STARTED))
        self._add(account, ToolOutput(id, item))
        if account.is_ready():
            self._show(account, ToolUpdate(id=id, status=STARTED if starts else UNSET))
        elif starts:
            self._report(ToolUpdate(id=id, status=STARTED))
        if account.could_be_shown():
            account.wait(self._show_late)

    def replace(self, id: str, content: tuple[ToolCallContent, ...]) -> None:
        """Show this in place of all that was shown, for who is told of a call by others."""
        account = self._account(id)
        if account is None:
            return
        self._cover.end_output(id)
        covered: list[ToolOutput] = []
        for index, item in enumerate(content):
            # The first may go on later; texts that came apart stay apart.
            covered += self._cover.covered_output(ToolOutput(id, item, apart=index > 0))
            covered += self._cover.end_output(id)
        account.show_instead(covered)
        self._record(ToolUpdate(id=id, content=tuple(output.item for output in covered)))
        if account.is_ready():
            self._show(account, ToolUpdate(id=id))
        elif account.could_be_shown():
            account.wait(self._show_late)

    def show_terminal(self, id: str, terminal_id: str) -> None:
        """Show one of the client's terminals, at once: after its release it would be too late.

        It is not recorded, because no client will know it again; `record_output` is for what was in it.
        """
        account = self._account(id)
        if account is not None:
            account.shown.add(Terminal(terminal_id))
            self._show(account, ToolUpdate(id=id))

    def record_output(self, id: str, text: str) -> None:
        """Record a text that the client shows by itself."""
        account = self._account(id)
        if account is None:
            return
        self._add_covered(account, self._cover.end_output(id))
        output = ToolOutput(id, text_content(text))
        for covered in (*self._cover.covered_output(output), *self._cover.end_output(id)):
            self._record(covered)

    def settle(
        self,
        id: str,
        status: str,
        reason: str | None = None,
        content: Iterable[ToolCallContent] = (),
        **fields: Any,
    ) -> None:
        """End a call as completed or failed, with the last that it shows, and say why below all of it."""
        account = self._account(id)
        if account is None:
            return
        for item in content:
            self._add(account, ToolOutput(id, item))
        if reason is not None:
            self._add(account, ToolOutput(id, text_content(reason), apart=True))
        self._apply(account, ToolUpdate(id=id, status=status, **fields))

    def settle_all(self, status: str, reason: str | None = None, *, cancelled: bool = False) -> None:
        """End whatever is still open, and say why."""
        for call in self.open_calls:
            self.settle(call.id, status, reason, meta=cancelled_meta(call.meta) if cancelled else UNSET)

    def _account(self, id: str) -> _Account | None:
        account = self._open.get(id)
        if account is None:
            if id not in self._settled:
                raise ValueError(f"the tool call {id!r} was never announced")
            log.debug("an update of the settled tool call %s was dropped", id)
        return account

    def _add(self, account: _Account, output: ToolOutput) -> None:
        self._add_covered(account, self._cover.covered_output(output))

    def _add_covered(self, account: _Account, outputs: tuple[ToolOutput, ...]) -> None:
        for output in outputs:
            self._record(output)
            account.shown.add(output.item, apart=output.apart)

    def _apply(self, account: _Account, update: ToolUpdate) -> None:
        if update.status is not UNSET and update.status not in OPEN_STATUSES:
            self._add_covered(account, self._cover.end_output(update.id))
        self._note(account, update)
        if account.call.is_open:
            self._report(update)
            return
        account.stop_waiting()
        del self._open[update.id]
        self._settled.add(update.id)
        if account.shown.has_news:
            self._show(account, update)
        else:
            self._report(update)

    def _note(self, account: _Account, update: ToolUpdate) -> None:
        _refuse_content(update)
        account.call = account.call.updated(update)
        self._record(update)

    def _show_late(self, account: _Account) -> None:
        account.timer = None
        if account.could_be_shown():
            self._show(account, ToolUpdate(id=account.call.id))

    def _show(self, account: _Account, update: ToolUpdate) -> None:
        self._report(msgspec.structs.replace(update, content=account.state()))


class _Account:
    """An open call, what it shows, and when that is shown next."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.shown = Shown()
        self.next_statement = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def show_instead(self, outputs: Iterable[ToolOutput]) -> None:
        """Forget what was shown, but not how much was sent of it."""
        self.shown.clear()
        for output in outputs:
            self.shown.add(output.item, apart=output.apart)

    def is_ready(self) -> bool:
        """Whether there is something that can be shown now."""
        return self.could_be_shown() and time.monotonic() >= self.next_statement

    def could_be_shown(self) -> bool:
        """Whether there is something to show, now or soon, and no timer that will do it."""
        return self.timer is None and self.shown.has_news and self.shown.is_due()

    def state(self) -> tuple[ToolCallContent, ...]:
        """All that the call shows, to be reported now."""
        self.shown.sent()
        self.next_statement = time.monotonic() + PACE
        return self.shown.content()

    def wait(self, show: Callable[[_Account], None]) -> None:
        """Show what is there when it is time."""
        seconds = max(self.next_statement - time.monotonic(), 0)
        self.timer = asyncio.get_running_loop().call_later(seconds, show, self)

    def stop_waiting(self) -> None:
        """Show nothing any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def cancelled_meta(meta: dict[str, Any] | None) -> dict[str, Any]:
    """The same of a call that has a `_meta` already."""
    if not meta:
        return CANCELLED_META
    own = meta.get("coupler")
    told = {**own, **CANCELLED_META["coupler"]} if isinstance(own, dict) else CANCELLED_META["coupler"]
    return {**meta, "coupler": told}


def text_content(text: str) -> Content:
    """Text as tool calls carry it."""
    return Content(TextContent(text))


def _refuse_content(update: ToolUpdate) -> None:
    if update.content is not UNSET:
        raise TypeError("what a tool call shows is added to with `append`, not replaced by an update")
