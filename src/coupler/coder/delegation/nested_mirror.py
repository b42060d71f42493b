"""What another agent says and does, shown below the tool call that it works for.

Its text is output of that call, its tool calls are nested in it. Its plan, its thoughts and how full its
context is are nobody's: the session shows those of its own agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Notice,
    Plan,
    Text,
    Thought,
    ToolCall,
    Usage,
)
from coupler.relay.mirror import Mirror

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.client.errors import AgentError
    from coupler.langchain.tool_calls import ToolCalls
    from coupler.schema.v1 import ToolCallContent


class NestedMirror(Mirror):
    """Shows one turn of another agent in the call with the key `key`."""

    def __init__(
        self,
        turn: Turn,
        calls: ToolCalls,
        key: str,
        *,
        terminal: Callable[[str], ToolCallContent],
        overflowed: Callable[[AgentError], None],
    ) -> None:
        super().__init__(turn, terminal=terminal, overflowed=overflowed)
        self.turns = 0
        """How often the agent has begun to speak or to act, at first and after tools had ended."""
        self._model_calls = calls
        self._key = key
        self._is_in_turn = False
        self._has_spoken = False

    def settle(self, reason: str) -> None:
        """End what the agent has left open."""
        for shown in self._calls.values():
            if self._is_open(shown.id):
                self._ledger.settle(shown.id, "failed", reason)

    def _show(self, event: Event) -> None:
        self._count(event)
        match event:
            case Content(block, "agent"):
                self._model_calls.append(self._key, block)
            case Text() | ToolCall() | Notice() | Compaction() | CompactionSummary():
                super()._show(event)
            case Thought() | Plan() | Usage() | Content():
                pass

    def _count(self, event: Event) -> None:
        is_beginning = isinstance(event, Text | Thought | Content) or (
            isinstance(event, ToolCall) and event.id not in self._calls
        )
        if is_beginning and not self._is_in_turn:
            self._is_in_turn = True
            self.turns += 1
        if isinstance(event, ToolCall) and not event.is_open:
            self._is_in_turn = False

    def _say(self, kind: type[Text | Thought], text: str, message_id: str | None) -> None:
        message = ("agent", message_id, "")
        if self._has_spoken and self._message != message:
            self._model_calls.append(self._key, "\n\n")
        self._message, self._has_spoken = message, True  # type: ignore[assignment]
        self._model_calls.append(self._key, text)

    def _aside(self, event: Notice | Compaction | CompactionSummary, gate: str, spoken: str) -> None:
        """A notice, in words: the editor takes others for the session's own."""
        if spoken:
            self._message = None
            self._say(Text, spoken, None)
            self._message = None

    def _show_call(self, call: ToolCall) -> None:
        super()._show_call(msgspec.structs.replace(call, meta=self._nested(call.meta)))

    def _nested(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """The call's own `_meta`, with the call that it is made in: one of the agent's, or ours."""
        own = (meta or {}).get("coupler")
        own = own if isinstance(own, dict) else {}
        parent = own.get("parent")
        known = self.known(parent) if isinstance(parent, str) else None
        return {**(meta or {}), "coupler": {**own, "parent": known or self._model_calls.client_id(self._key)}}
