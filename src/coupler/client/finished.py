"""Which tool calls have ended: each is told once, whoever reports it first and however often."""

from __future__ import annotations

from coupler.events import ToolCall


class FinishedCalls:
    """The ids of calls that have ended, as the agent reports them and as our own tools know them."""

    def __init__(self) -> None:
        self._reported: set[str] = set()
        self._bridged: set[str] = set()

    def is_news(self, call: ToolCall) -> bool:
        """Whether what the agent reports of a call is that it has ended, and nobody knows yet."""
        if call.is_open:
            self._reported.discard(call.id)
            return False
        is_news = call.id not in self._reported and call.id not in self._bridged
        self._reported.add(call.id)
        return is_news

    def is_news_of_ours(self, ids: frozenset[str]) -> bool:
        """Whether nobody knows yet that a call of our own has ended; the agent may know it by `ids`."""
        is_news = self._reported.isdisjoint(ids)
        self._bridged |= ids
        return is_news
