"""What a graph takes and gives: how a prompt becomes its input, and what of its output is an answer.

Most graphs have `messages`. Others take the prompt's text: as their whole input, or as the one text that they
ask for. What they answer with is the text in their output, if no message said anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from langchain_core.messages import BaseMessage
from langgraph.constants import START
from langgraph.pregel import Pregel
from pydantic_core import to_json

from coupler.langchain.content import human_message

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

MESSAGES = "messages"
STRUCTURED = "structured_response"
ROOT = "__root__"
"""The key of a state that has no keys."""


class ShapeError(TypeError):
    """A graph takes something that a prompt is not."""


class Shape:
    """How one graph is spoken to."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        schema = _input_of(graph)
        fields = _fields_of(graph, schema)
        self.has_messages = MESSAGES in fields
        self._is_text = _is_text(schema)
        self._field = None if self.has_messages else _only_text(fields, schema)
        self.context = _context_of(graph)
        """What the graph is run with beside its input: a prompt brings nothing but what the author preset."""
        self._outputs = [name for name in _names(graph.output_channels) if name != self._field]
        if not (self.has_messages or self._is_text or self._field or _is_list(schema)):
            raise ShapeError(
                f"this graph takes {', '.join(fields) or schema}, and a prompt is text: "
                "give its state a key `messages`, or its input exactly one required key that is text; "
                "an @entrypoint may take a `str` or a list of messages as well"
            )

    def input(self, turn: Turn, before: Sequence[BaseMessage]) -> Any:
        """The prompt as the graph's input, behind messages that mend the conversation."""
        if self.has_messages:
            return {MESSAGES: [*before, human_message(turn.blocks)]}
        if self._field is not None:
            return {self._field: turn.text}
        if self._is_text:
            return turn.text
        return [*before, human_message(turn.blocks)]

    def messages(self, values: Any) -> list[BaseMessage]:
        """The conversation in a state."""
        found = values.get(MESSAGES) if isinstance(values, Mapping) else values
        return [each for each in found if isinstance(each, BaseMessage)] if isinstance(found, list) else []

    def answer(self, values: Any, prompt: str) -> str:
        """The text in what a graph has returned, for graphs whose nodes say nothing themselves."""
        if isinstance(values, str):
            return values
        if not isinstance(values, Mapping):
            return ""
        given = values.get(self._field) if self._field is not None else None
        texts = {name: values[name] for name in self._outputs if isinstance(values.get(name), str)}
        if not texts and isinstance(given, str) and given != prompt:
            return given
        if len(texts) == 1:
            return str(*texts.values())
        return "\n".join(f"{name}: {text}" for name, text in texts.items())

    def structured_answer(self, values: Any) -> str:
        """What an agent with a `response_format` has returned, as the JSON that other models would write."""
        given = values.get(STRUCTURED) if isinstance(values, Mapping) else None
        return "" if given is None else to_json(given, serialize_unknown=True).decode()


def _input_of(graph: Pregel[Any, Any, Any, Any]) -> Any:
    """The schema of the input's keys; or the type of the input, if it has none."""
    builder = getattr(graph, "builder", None)
    if builder is None:
        return _parameter_of(graph)
    root = builder.schemas[builder.input_schema].get(ROOT)
    return builder.input_schema if root is None else getattr(root, "ValueType", Any)


def _parameter_of(graph: Pregel[Any, Any, Any, Any]) -> Any:
    """What the function of an `@entrypoint` takes."""
    kind = getattr(graph.channels.get(START), "ValueType", Any)
    if not isinstance(kind, str):
        return kind
    # In a module that has its annotations as text LangGraph keeps no more than that.
    for node in graph.nodes.values():
        function: Any = getattr(node.bound, "func", None) or getattr(node.bound, "afunc", None)
        with contextlib.suppress(NameError, TypeError, StopIteration):
            return get_type_hints(function)[next(iter(inspect.signature(function).parameters))]
    return kind


def _fields_of(graph: Pregel[Any, Any, Any, Any], schema: Any) -> dict[str, Any]:
    """The types of the input's keys."""
    builder = getattr(graph, "builder", None)
    if builder is None:
        # Not asked of `typing`, which does not know the typed dictionaries of `typing_extensions`.
        return get_type_hints(schema, include_extras=True) if hasattr(schema, "__required_keys__") else {}
    channels = builder.schemas[builder.input_schema]
    return {name: getattr(channel, "ValueType", Any) for name, channel in channels.items() if name != ROOT}


def _context_of(graph: Pregel[Any, Any, Any, Any]) -> dict[str, Any] | None:
    """The context of the graph's own schema, if there are defaults for all that is in it."""
    schema = graph.context_schema
    has_keys = dataclasses.is_dataclass(schema) or any(
        hasattr(schema, mark) for mark in ("__required_keys__", "model_fields")
    )
    return {} if has_keys and not _required(schema, {}) else None


def _only_text(fields: Mapping[str, Any], schema: Any) -> str | None:
    """The one key that has to be given and is text; or the only text there is, if nothing else has to be."""
    texts = [name for name, kind in fields.items() if _is_text(kind)]
    required = [name for name in _required(schema, fields) if name in fields]
    if len(required) == 1 and required[0] in texts:
        return required[0]
    return texts[0] if len(texts) == 1 and not set(required) - set(texts) else None


def _required(schema: Any, fields: Mapping[str, Any]) -> list[str]:
    """The keys that have to be given, as far as the kind of the schema tells."""
    if (keys := getattr(schema, "__required_keys__", None)) is not None:
        return sorted(keys)
    if (models := getattr(schema, "model_fields", None)) is not None:
        return [name for name, field in models.items() if field.is_required()]
    if dataclasses.is_dataclass(schema):
        return [field.name for field in dataclasses.fields(schema) if _has_no_default(field)]
    return [*fields]


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_text(type: Any) -> bool:
    if get_origin(type) in (Union, UnionType, Annotated, Required, NotRequired):
        return any(_is_text(option) for option in get_args(type))
    return type is str


def _is_list(type: Any) -> bool:
    return type is Any or type is list or get_origin(type) in (list, Sequence)


def _names(channels: str | Sequence[str]) -> list[str]:
    return [channels] if isinstance(channels, str) else [*channels]
