"""Gets typed answers: by the `structured_output` tool, or as JSON in the answer's text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from coupler.client.errors import AgentError
from coupler.client.reply import Reply
from coupler.client.tools import STRUCTURED_OUTPUT
from coupler.fields.json_types import JsonType, JsonTypeError, json_type_of
from coupler.mcp.functions import text_result
from coupler.mcp.tools import ToolResult
from coupler.schema.v1 import ContentBlock, TextContent

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession


MOST_REPAIRS = 2
"""Times that an answer whose text does not fit is sent back."""

MOST_VIOLATIONS = 5
"""Tool calls of one prompt that may not fit the schema; one more ends the turn."""

MOST_TRIES = 200
"""Positions of a text that are tried as the beginning of JSON."""

WRAPPER_KEY = "output"
"""The argument that wraps a type which is no object."""

_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")

_BY_TOOL = f"Finish by calling the tool `{STRUCTURED_OUTPUT}` with your answer."
_IN_TEXT = "Finish with your answer as JSON in a ```json block that fits this JSON Schema"


class OutputGoal:
    """The goal of a prompt with `output=`: the last call of the tool that fits, else JSON in the text."""

    def __init__(self, wanted: Any, session: RemoteSession, rounds: int, repairs: int = MOST_REPAIRS) -> None:
        self._described = output_schema_of(wanted)
        self._session = session
        self._rounds = rounds
        self._most_repairs = repairs
        self._repairs = 0
        self._violations = 0
        self._given: Any = UNSET

    @property
    def input_schema(self) -> dict[str, Any]:
        return self._described.input_schema

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        tools = self._session.tools
        if tools is None:
            return (*blocks, TextContent(self._asked_for_text()))
        tools.expect(self)
        if tools.has_shown(self):
            return (*blocks, TextContent(_BY_TOOL))
        return (*blocks, TextContent(self._asked_for_either()))

    def give(self, arguments: dict[str, Any]) -> ToolResult:
        try:
            self._given = self._described.read(arguments)
        except JsonTypeError as error:
            return self._violated(error)
        return text_result("The answer was taken. End your turn now.")

    async def judge(self, reply: Reply) -> Reply | str:
        if self._given is not UNSET:
            return msgspec.structs.replace(reply, output=self._given, output_way="tool")
        try:
            value = self._from_text(reply.text)
        except JsonTypeError as error:
            return self._feedback(reply, error)
        return msgspec.structs.replace(reply, output=value, output_way="text")

    def _violated(self, error: JsonTypeError) -> ToolResult:
        self._violations += 1
        if self._violations > MOST_VIOLATIONS and self._given is UNSET:
            message = f"the agent's answer did not fit {self._violations} times, {error}"
            self._session.end_turn(AgentError("output", message))
        message = f"the answer does not fit, {error}; call it again with one that does"
        return text_result(message, is_error=True)

    def _feedback(self, reply: Reply, error: JsonTypeError) -> str:
        if self._repairs >= self._most_repairs or reply.rounds >= self._rounds:
            message = f"the agent's answer is not what was asked for, {error}; its words are in `reply.text`"
            raise AgentError("output", message, reply=reply)
        self._repairs += 1
        asked = self._asked_for_text() if self._session.tools is None else self._asked_for_either()
        return f"Your answer does not fit, {error}. {asked}"

    def _from_text(self, text: str) -> Any:
        problem: JsonTypeError | None = None
        for value in json_values(text):
            try:
                return self._described.shape.read(value)
            except JsonTypeError as error:
                problem = problem or error
        raise problem or JsonTypeError("$", "there is no JSON in it")

    def _asked_for_text(self) -> str:
        return f"{_IN_TEXT}:\n{self._schema()}"

    def _asked_for_either(self) -> str:
        how = f" as its argument `{WRAPPER_KEY}`" if self._described.is_wrapped else ""
        tool = f"if you have the tool `{STRUCTURED_OUTPUT}`, call it with that{how}"
        return f"{_IN_TEXT}; {tool}:\n{self._schema()}"

    def _schema(self) -> str:
        return msgspec.json.encode(self._described.shape.schema).decode()


class OutputSchema(NamedTuple):
    """The type of an answer as tool arguments: these are an object, so other types are wrapped in one."""

    shape: JsonType
    is_wrapped: bool

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments."""
        schema = self.shape.schema
        if not self.is_wrapped:
            return schema
        inner = {key: value for key, value in schema.items() if key != "$defs"}
        wrapper = {"type": "object", "properties": {WRAPPER_KEY: inner}, "required": [WRAPPER_KEY]}
        return {**wrapper, "$defs": schema["$defs"]} if "$defs" in schema else wrapper

    def read(self, arguments: dict[str, Any]) -> Any:
        """Parse the tool's arguments; raises JsonTypeError."""
        if not self.is_wrapped:
            return self.shape.read(arguments)
        if arguments.keys() != {WRAPPER_KEY}:
            raise JsonTypeError("$", f"give one argument, `{WRAPPER_KEY}`")
        return self.shape.read(arguments[WRAPPER_KEY])


def output_schema_of(wanted: Any) -> OutputSchema:
    """Read a type or a JSON Schema; raises TypeError for a type that cannot be asked for."""
    try:
        shape = json_type_of(wanted)
    except TypeError as error:
        raise TypeError(f"output= is a type or a JSON Schema: {error}") from None
    return OutputSchema(shape, shape.schema.get("type") != "object")


def open_schema() -> dict[str, Any]:
    """Return the schema of the tool's arguments while the type is not known yet."""
    return {"type": "object", "additionalProperties": True}


def json_values(text: str) -> Iterator[Any]:
    """Return the JSON values that a text may give as its answer, the likeliest first.

    The whole text, fenced blocks, then bare values between words; later ones before earlier ones.
    """
    whole = _decoded(text.strip())
    if whole is not _NOTHING:
        yield whole
        return
    for block in reversed(_FENCED.findall(text)):
        value = _decoded(block.strip())
        if value is not _NOTHING:
            yield value
    yield from reversed(_bare(text))


def _bare(text: str) -> list[Any]:
    """Find objects and arrays in running text, but not those that are parts of others."""
    found: list[Any] = []
    at = 0
    for _ in range(MOST_TRIES):
        opening = _OPENING.search(text, at)
        if opening is None:
            break
        try:
            value, at = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            at = opening.end()
        else:
            found.append(value)
    return found


def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return _NOTHING


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_NOTHING = object()
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
