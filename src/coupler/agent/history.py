"""What a client is shown of a session's earlier turns.

Messages come whole, tool calls once and in their final state, and of plans the last. A turn that has no end
was cut off by a crash: what it left open is shown as failed. Dialogs and notices were for that moment only.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from coupler.agent.ledger import text_content
from coupler.agent.shown import Shown
from coupler.events import Compaction, CompactionSummary, Content, Plan, Text, Thought, ToolCall, ToolUpdate
from coupler.events.record import JOINED, End, Recorded, UserMessage, from_record
from coupler.events.tool_call import CHANGEABLE, ToolOutput
from coupler.store.journal import Entry, joined

INTERRUPTED = "interrupted"
"""What is said of a call that no end was recorded for."""

Told = Recorded | UserMessage


class Past:
    """The conversation so far, turn by turn; afterwards it knows what still holds."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.call_ids: set[str] = set()

    def tell(self, turn: list[Entry]) -> list[Told]:
        """What happened in one turn, in order."""
        telling = _Telling()
        for event in _events(turn):
            if isinstance(event, Plan):
                self.plan = event
            else:
                telling.add(event)
        self.call_ids |= telling.calls.keys()
        return telling.told()


class _Telling:
    """One turn being put together."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[ToolCall, Shown]] = {}
        self._compactions: dict[str, Compaction] = {}
        self._order: list[Told | str] = []

    def add(self, event: Recorded | UserMessage | End) -> None:
        match event:
            case ToolUpdate(id=id):
                call, shown = self.calls.get(id) or self._begin(id)
                self.calls[id] = (call.updated(event), shown)
            case ToolOutput(id, item, apart):
                if id in self.calls:
                    self.calls[id][1].add(item, apart=apart)
            case Compaction(id):
                self._compact(event)
            case CompactionSummary(id, block):
                before = self._compactions.get(id)
                if before is not None:
                    summary = before.summary or ()
                    self._compactions[id] = Compaction(id, before.status, (*summary, block), before.error)
            case Text() | Thought() | Content() | UserMessage():
                self._order.append(event)

    def told(self) -> list[Told]:
        return [self._final(each) if isinstance(each, str) else each for each in self._order]

    def _begin(self, id: str) -> tuple[ToolCall, Shown]:
        self._order.append(id)
        return ToolCall(id=id), Shown()

    def _compact(self, event: Compaction) -> None:
        before = self._compactions.get(event.id)
        if before is None:
            self._order.append(event.id)
            self._compactions[event.id] = event
            return
        summary = before.summary if event.summary is UNSET else event.summary
        error = before.error if event.error is UNSET else event.error
        self._compactions[event.id] = Compaction(event.id, event.status, summary, error)

    def _final(self, id: str) -> Told:
        if id in self._compactions:
            compaction = self._compactions[id]
            if compaction.status != "in_progress":
                return compaction
            return Compaction(id, "failed", UNSET, INTERRUPTED)
        call, shown = self.calls[id]
        if call.is_open:
            shown.add(text_content(INTERRUPTED), apart=True)
            call = call.updated(ToolUpdate(id=id, status="failed"))
        content = shown.content()
        call = call.updated(ToolUpdate(id=id, content=content)) if content else call
        return ToolUpdate(id=id, **{name: getattr(call, name) for name in CHANGEABLE if getattr(call, name)})


def _events(turn: list[Entry]) -> Iterator[Recorded | UserMessage | End]:
    for entry in joined(turn, JOINED):
        event = from_record(entry.kind, entry.key, entry.body)
        if event is not None:
            yield event
