"""What a client is shown of a session's earlier turns.

Messages come as they were said, tool calls once and in their final state, and of plans the last. A turn that
has no end was cut off by a crash: what it left open is shown as failed. Dialogs and notices were for that
moment only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import UNSET

from coupler.agent.ledger import text_content
from coupler.agent.shown import Shown
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Plan,
    Text,
    Thought,
    ToolCall,
    ToolOutput,
    ToolUpdate,
)
from coupler.events.events import CHANGEABLE
from coupler.events.records import End, Recorded, UserMessage, from_record

if TYPE_CHECKING:
    from coupler.schema.v1 import ToolCallContent
    from coupler.store.journal import Entry

INTERRUPTED = "interrupted"
"""What is said of a call that no end was recorded for."""

Scene = Text | Thought | Content | UserMessage | ToolUpdate | Compaction
"""Something of the past that a client is shown."""


class History:
    """Takes entries one by one and tells each turn when it is whole. Of output it holds what is shown."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self._number: int | None = None
        self._turn = _Turn()

    def take(self, entry: Entry) -> Iterator[Scene]:
        """Take the next entry; the turn before it is told if this one begins another."""
        if entry.turn != self._number:
            yield from self.rest()
            self._number = entry.turn
        event = from_record(entry.kind, entry.key, entry.body)
        if isinstance(event, Plan):
            self.plan = event
        elif event is not None:
            self._turn.add(event)

    def rest(self) -> Iterator[Scene]:
        """What was not told yet."""
        turn, self._turn = self._turn, _Turn()
        return turn.scenes()


class _Turn:
    """One turn being put together."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[ToolCall, Shown]] = {}
        self._compactions: dict[str, Compaction] = {}
        self._order: list[Scene | str] = []

    def add(self, event: Recorded | UserMessage | End) -> None:
        match event:
            case ToolUpdate(id=id):
                call, shown = self._calls.get(id) or self._begin(id)
                if event.content is not UNSET:
                    shown = _shown_whole(event.content)
                self._calls[id] = (call.updated(event), shown)
            case ToolOutput(id, item, apart) if id in self._calls:
                self._calls[id][1].add(item, apart=apart)
            case Compaction(id):
                before = self._compactions.get(id)
                if before is None:
                    self._order.append(id)
                self._compactions[id] = before.updated(event) if before is not None else event
            case CompactionSummary(id, block) if id in self._compactions:
                self._compactions[id] = self._compactions[id].extended(block)
            case Text() | Thought() | Content() | UserMessage():
                self._order.append(event)

    def scenes(self) -> Iterator[Scene]:
        return (self._final(each) if isinstance(each, str) else each for each in self._order)

    def _begin(self, id: str) -> tuple[ToolCall, Shown]:
        self._order.append(id)
        return ToolCall(id=id), Shown()

    def _final(self, id: str) -> Scene:
        if id in self._compactions:
            compaction = self._compactions[id]
            is_over = compaction.status != "in_progress"
            return compaction if is_over else Compaction(id, "failed", UNSET, INTERRUPTED)
        call, shown = self._calls[id]
        if call.is_open:
            shown.add(text_content(INTERRUPTED), apart=True)
            call = call.updated(ToolUpdate(id=id, status="failed"))
        content = shown.content()
        call = call.updated(ToolUpdate(id=id, content=content)) if content else call
        return ToolUpdate(id=id, **{name: getattr(call, name) for name in CHANGEABLE if getattr(call, name)})


def _shown_whole(content: tuple[ToolCallContent, ...]) -> Shown:
    """What a call shows that was told whole."""
    shown = Shown()
    for index, item in enumerate(content):
        shown.add(item, apart=index > 0)
    return shown
