"""Serializes the states of graphs, also those with values that nobody can write into a file.

A graph that nobody gave a checkpointer may hold anything in its state: a lock, a function, an open client.
Such a value lives in this process as long as the state has it, and a placeholder is stored for it. In another
process the placeholder leads nowhere: then the value is left out, and it is known what is missing.
"""

from __future__ import annotations

import copy
import itertools
import logging
import os
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde import jsonplus

from coupler.agent.content import json_value

log = logging.getLogger("coupler.langchain")

MOST_LEVELS = 6
"""Most levels of a state in which single values are replaced; what is deeper is replaced as a whole."""

MARK: Final = "coupler_value_in_process"
"""Key of a placeholder for the key of the value."""

_MARK_IN_BODY = MARK.encode()
_PLACEHOLDER = {MARK, "channel", "type"}

_PROCESS = os.urandom(8).hex()
_numbers = itertools.count()

LOST: Final[Any] = object()
"""Stands for a value that lived in another process."""


class LiveValues:
    """The values of one thread that cannot be serialized, by the keys of their placeholders."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._keys: dict[int, str] = {}
        self._used: set[str] = set()

    def key_of(self, value: Any) -> str:
        """Keep a value, and return its key, which stays the same."""
        key = self._keys.get(id(value))
        if key is None:
            key = self._keys[id(value)] = f"{_PROCESS}-{next(_numbers)}"
            self._values[key] = value
        self._used.add(key)
        return key

    def value_of(self, key: str) -> Any:
        """Return the value with this key; LOST if there is none."""
        self._used.add(key)
        return self._values.get(key, LOST)

    def begin_turn(self) -> None:
        """Forget the values that no state has had in the last turn: each turn reads the whole state."""
        self._values = {key: value for key, value in self._values.items() if key in self._used}
        self._keys = {id(value): key for key, value in self._values.items()}
        self._used = set()

    def copied(self) -> LiveValues:
        """Return the same values for a thread that begins as a copy."""
        other = LiveValues()
        other._values, other._keys, other._used = {**self._values}, {**self._keys}, {*self._values}
        return other


_live: dict[str, LiveValues] = {}
"""Live values by thread. They belong to the process: a session that is closed may be opened again."""

_told: set[tuple[str, str]] = set()
"""Keys of states, and types of values in them, that the log has told of."""


def copy_live_values(source: str, target: str) -> None:
    """Give a thread that is a copy of another the same values."""
    if source in _live:
        _live[target] = _live[source].copied()


def forget_live_values(thread_id: str) -> None:
    """Forget the values of a thread that is deleted."""
    _live.pop(thread_id, None)


class _AnyType(frozenset[tuple[str, ...]]):
    """Contains every type."""

    def __contains__(self, type: object) -> bool:
        return True


class StateSerializer(jsonplus.JsonPlusSerializer):
    """LangGraph's serializer, which also takes states with values that it refuses.

    For the values of a thread's state a placeholder is written. Parts of messages, such as a tool's artifact,
    are replaced by what they look like: models read them, and messages are remembered as they are besides.
    """

    def __init__(self) -> None:
        super().__init__()
        read_with = getattr(jsonplus, "_create_msgpack_ext_hook", None)
        if read_with is not None and getattr(self, "_allowed_msgpack_modules", None) is True:
            # LangGraph allows every type, but tells authors to list theirs here, where they cannot.
            self._unpack_ext_hook = read_with(_AnyType())
        self.thread_id: str | None = None
        self.channel = ""
        """The key of the state that is being written."""
        self.lost: dict[str, str] = {}
        """The types of values that lived in another process, by the keys of the state."""

    def of_thread(self, thread_id: str) -> StateSerializer:
        """Return a serializer for the state of one thread."""
        made = copy.copy(self)
        made.thread_id, made.channel, made.lost = thread_id, "", {}
        return made

    def begin_turn(self) -> None:
        """Forget the values that the thread does not use any more."""
        if self.thread_id in _live:
            _live[self.thread_id].begin_turn()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        try:
            return super().dumps_typed(obj)
        except (TypeError, ValueError, RecursionError):
            return super().dumps_typed(self._writable(obj, MOST_LEVELS))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        value = super().loads_typed(data)
        return self._revived(value) if _MARK_IN_BODY in data[1] else value

    def _writable(self, value: Any, depth: int, *, in_message: bool = False) -> Any:
        """Return the value with the parts replaced that cannot be serialized."""
        if self._can_be_written(value):
            return value
        if isinstance(value, BaseMessage):
            parts = vars(value).items()
            fields = {name: self._writable(each, depth - 1, in_message=True) for name, each in parts}
            return value.model_copy(update=fields)
        if depth > 0 and type(value) is dict and all(isinstance(key, str) for key in value):
            parts = value.items()
            return {key: self._writable(each, depth - 1, in_message=in_message) for key, each in parts}
        if depth > 0 and type(value) is list:
            return [self._writable(each, depth - 1, in_message=in_message) for each in value]
        return json_value(value) if in_message or self.thread_id is None else self._placeholder(value)

    def _placeholder(self, value: Any) -> dict[str, str]:
        assert self.thread_id is not None
        kind = type(value)
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        if (self.channel, name) not in _told and not self.channel.startswith("__"):
            _told.add((self.channel, name))
            log.warning(
                "`%s` in the graph's state holds a %s, which cannot be stored: it is kept as long as this "
                "process lives, and missing after a restart",
                self.channel,
                name,
            )
        key = _live.setdefault(self.thread_id, LiveValues()).key_of(value)
        return {MARK: key, "channel": self.channel, "type": name}

    def _revived(self, value: Any) -> Any:
        """Return the value with the live values in place of their placeholders, and without those lost."""
        if type(value) is dict:
            if value.keys() == _PLACEHOLDER:
                live = _live.get(self.thread_id or "")
                found = LOST if live is None else live.value_of(value[MARK])
                if found is LOST:
                    self.lost[str(value["channel"])] = str(value["type"])
                return found
            revived = {key: self._revived(each) for key, each in value.items()}
            return {key: each for key, each in revived.items() if each is not LOST}
        if type(value) is list:
            return [each for each in map(self._revived, value) if each is not LOST]
        return value

    def _can_be_written(self, value: Any) -> bool:
        try:
            super().dumps_typed(value)
        except (TypeError, ValueError, RecursionError):
            return False
        return True
