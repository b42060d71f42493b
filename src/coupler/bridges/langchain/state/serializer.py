"""How states are written into the saver's file: also those with something in them that cannot be.

Graphs that nobody gave a checkpointer may hold anything: a tool's artifact may be a picture that is open, or
refer to itself. That is no reason to fail; what can be written is kept, and of the rest what it looks like.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from coupler.agent.content import json_value

DEEPEST = 6
"""Levels of a state that are looked into; what is deeper is kept as it looks."""


class Written(dict[str, Any]):
    """Stands for a value that was written already; of a checkpoint, with the id that is asked for."""

    def __init__(self, typed: tuple[str, bytes], value: Any) -> None:
        super().__init__(id=value["id"] if isinstance(value, dict) and "id" in value else None)
        self.typed = typed


class Serializer(JsonPlusSerializer):
    """LangGraph's own, for values that it refuses as well."""

    def written(self, value: Any) -> Any:
        """The value as it is now, whatever becomes of it until it is kept."""
        return Written(self.dumps_typed(value), value)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if isinstance(obj, Written):
            return obj.typed
        try:
            return super().dumps_typed(obj)
        except (TypeError, ValueError, RecursionError):
            return super().dumps_typed(self._writable(obj, DEEPEST))

    def _writable(self, value: Any, depth: int) -> Any:
        """The value with only those parts replaced that cannot be written."""
        if self._can_be_written(value):
            return value
        if isinstance(value, BaseMessage):
            fields = {name: self._writable(each, depth - 1) for name, each in vars(value).items()}
            return value.model_copy(update=fields)
        if depth > 0 and isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: self._writable(each, depth - 1) for key, each in value.items()}
        if depth > 0 and isinstance(value, list):
            return [self._writable(each, depth - 1) for each in value]
        return json_value(value)

    def _can_be_written(self, value: Any) -> bool:
        try:
            super().dumps_typed(value)
        except (TypeError, ValueError, RecursionError):
            return False
        return True
