"""What an author takes out of the stream before anybody sees it, such as personal data.

LangGraph has a place for that: transformers that stand before all others and change what passes by, as
`PIIMiddleware` has one. They are asked about whole answers, because what is to be taken out may come in
pieces: where there are such transformers, nothing of an answer is shown before it is complete.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from coupler.bridges.langchain.stream.model_run import ModelRun

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

    from coupler.agent.turn import Turn
    from coupler.bridges.langchain.stream.model_run import Look
    from coupler.bridges.langchain.tool_calls.calls import ToolCalls

Factory = Callable[[tuple[str, ...]], Any]

log = logging.getLogger("coupler.bridges.langchain")

INTERNAL = "InternalCallTransformer"
"""LangChain's own for what middleware asks models beside the conversation, which is not shown anyway."""


def filters_in(graph: Any) -> tuple[Factory, ...]:
    """What makes the transformers of a graph that change what is shown; most have none."""
    return tuple(each for each in getattr(graph, "stream_transformers", ()) if _changes_stream(each))


class Filters:
    """The transformers of one prompt, which remember what has passed."""

    def __init__(self, factories: Iterable[Factory]) -> None:
        self._transformers = [factory(()) for factory in factories]

    def answer(self, message: AIMessage) -> AIMessage | None:
        """An answer as it may be shown; None if it may not."""
        told = self._passed("messages", (message, {}))
        return None if told is None else told[0]

    def result(self, message: ToolMessage) -> ToolMessage:
        """What a tool has returned, as it may be shown."""
        told = self._passed("tools", {**_event("tool-finished", message.tool_call_id), "output": message})
        return message.model_copy(update=_NOTHING) if told is None else told["output"]

    def output(self, id: str, delta: Any) -> Any:
        """A piece of what a tool puts out; the end of it is held back, because more may belong to it."""
        told = self._passed("tools", {**_event("tool-output-delta", id), "delta": delta})
        return "" if told is None else told["delta"]

    def arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a tool is called with, as it may be shown."""
        if not arguments:
            return arguments
        told = self._passed("tools", {**_event("tool-started", ""), "input": dict(arguments)})
        return {} if told is None else told["input"]

    def _passed(self, method: str, data: Any) -> Any:
        """What the transformers leave of an event's data; None if one of them lets nothing pass."""
        params = {"namespace": [], "timestamp": int(time.time() * 1000), "data": data}
        event = {"type": "event", "method": method, "params": params}
        for transformer in self._transformers:
            try:
                if transformer.process(event) is False:
                    return None
            except Exception as error:
                # Also a way to say no. What it says may hold just what nobody may see.
                log.info("%s lets nothing pass: %s", type(transformer).__name__, type(error).__name__)
                return None
        return params["data"]


class HeldRun(ModelRun):
    """An answer that is shown when it is complete, and as the filters leave it."""

    def __init__(
        self, turn: Turn, calls: ToolCalls, look: Look, parent: str | None, filters: Filters
    ) -> None:
        super().__init__(turn, calls, look, parent)
        self._filters = filters

    def take(self, message: BaseMessage) -> bool:
        """Wait for the rest."""
        return True

    def take_whole(self, message: BaseMessage) -> None:
        """Show what may be shown of it."""
        if (shown := self._filters.answer(message)) is not None:  # type: ignore[arg-type]
            super().take_whole(shown)


_NOTHING = {"content": "", "artifact": None}


def _event(kind: str, id: str) -> dict[str, Any]:
    return {"event": kind, "tool_call_id": id}


def _changes_stream(factory: Factory) -> bool:
    transformer = factory(())
    if not getattr(transformer, "before_builtins", False) or type(transformer).__name__ == INTERNAL:
        return False
    from langgraph.stream import StreamTransformer

    if type(transformer).process is not StreamTransformer.process:
        return True
    log.warning("%s has no `process`: what it would change is shown as it is", type(transformer).__name__)
    return False
