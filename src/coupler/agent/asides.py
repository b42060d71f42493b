"""What an agent tells beside the conversation: usage, notices, and that its context is being shortened.

Only some clients can show notices and compactions. To the others they are said as messages.
"""

from __future__ import annotations

import asyncio
import os
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET

from coupler.agent.errors import describe
from coupler.agent.text import chosen, plain_text
from coupler.events import Compaction, CompactionSummary, Notice, Text, Usage
from coupler.schema.v1 import Cost, TextContent

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.schema.unstable import Usage as TokenUsage

NOTICES = "session.notices"
COMPACTION = "session.compaction"
"""What a client advertises if it can show these."""

SEVERITIES = ("info", "warning", "error")

MOST_TOKENS = 2**63 - 1


def usage(used: int, size: int, cost: float | None, currency: str) -> Usage:
    """The report, checked."""
    for name, value in (("used", used), ("size", size)):
        if not 0 <= index(value) <= MOST_TOKENS:
            raise ValueError(f"`{name}` is a number of tokens from 0 on, not {value}")
    if cost is None:
        return Usage(index(used), index(size))
    if not 0 <= cost < float("inf"):
        raise ValueError(f"a cost is an amount from 0 on, not {cost}")
    return Usage(index(used), index(size), Cost(float(cost), plain_text(currency, "a currency")))


def tokens(
    input: int,
    output: int,
    cached_read: int | None,
    cached_write: int | None,
    thought: int | None,
    total: int | None,
) -> TokenUsage:
    """What a turn has used, checked; without a total it is the sum."""
    # Imported on use: most agents count nothing.
    from coupler.schema.unstable import Usage as TokenUsage

    kinds = {
        "input_tokens": input,
        "output_tokens": output,
        "cached_read_tokens": cached_read,
        "cached_write_tokens": cached_write,
        "thought_tokens": thought,
    }
    known: dict[str, Any] = {name: index(count) for name, count in kinds.items() if count is not None}
    known["total_tokens"] = sum(known.values()) if total is None else index(total)
    for name, count in known.items():
        if not 0 <= count <= MOST_TOKENS:
            raise ValueError(f"`{name}` is a number of tokens from 0 on, not {count}")
    return TokenUsage(**known)


def make_notice(title: str, description: str | None, severity: str) -> Notice:
    """The notice, checked."""
    title = plain_text(title, "a notice's title")
    if not title:
        raise ValueError("a notice needs a title")
    text = plain_text(description, "a notice's description") if description is not None else None
    return Notice(chosen(severity, SEVERITIES, "a notice's severity"), title, text)


def spoken_notice(notice: Notice) -> str:
    """A notice for clients that show messages only."""
    label = "" if notice.severity == "info" else f"{notice.severity.capitalize()}: "
    return f"{label}{notice.title}" + (f"\n\n{notice.description}" if notice.description else "")


def spoken_compaction(compaction: Compaction) -> str:
    """How a compaction ended, for clients that show messages only."""
    match compaction.status:
        case "completed":
            blocks = compaction.summary or ()
            summary = "".join(block.text for block in blocks if isinstance(block, TextContent))
            return "The earlier conversation was summarized" + (f":\n\n{summary}" if summary else ".")
        case "cancelled":
            return "Summarizing the earlier conversation was cancelled."
        case _:
            return (
                f"The earlier conversation could not be summarized: {compaction.error or 'no reason given'}"
            )


class Compacting:
    """A compaction while it runs; leaving the block completes it, an exception fails it.

    What `summarize` is given is shown to the user: the summary that the agent goes on with.
    """

    def __init__(self, turn: Turn) -> None:
        self.id = f"compaction_{os.urandom(8).hex()}"
        self._turn = turn
        self._summary: list[str] = []

    async def __aenter__(self) -> Self:
        self._turn.begin_new_message()
        await self._report(Compaction(self.id, "in_progress"))
        return self

    async def summarize(self, text: str) -> None:
        """Add a piece of the summary."""
        self._summary.append(plain_text(text, "a summary"))
        if self._is_shown and text:
            await self._turn.report(CompactionSummary(self.id, TextContent(text)))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._settle(Compaction(self.id, "cancelled"))
        elif error is not None:
            self._settle(Compaction(self.id, "failed", UNSET, describe(error)))
        else:
            await self._report(Compaction(self.id, "completed"))

    @property
    def _is_shown(self) -> bool:
        return self._turn.editor.offers(COMPACTION)

    async def _report(self, compaction: Compaction) -> None:
        if self._is_shown:
            await self._turn.report(compaction)
        elif compaction.status == "in_progress":
            await self._turn.say_apart("Summarizing the earlier conversation…")
        else:
            summary = (TextContent("".join(self._summary)),)
            await self._turn.say_apart(spoken_compaction(Compaction(self.id, compaction.status, summary)))

    def _settle(self, compaction: Compaction) -> None:
        """Without waiting for room: the turn is being cancelled, or fails."""
        if not self._turn.is_alive:
            return
        if self._is_shown:
            self._turn.session.outlet.send(compaction)
        else:
            session = self._turn.session
            session.outlet.send(Text(spoken_compaction(compaction), session.outlet.new_message_id()))
            self._turn.begin_new_message()
