"""Makes tools of Python functions: a schema from the signature, descriptions from the docstring."""

from __future__ import annotations

import contextvars
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from coupler.fields.json_types import JsonType, Parameter, json_type_of_object, without_nulls
from coupler.mcp.tools import ToolResult
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""A tool's name that every provider of models takes."""

DONE = "done"
"""The result of a function that returns nothing."""

_BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SECTION = re.compile(r"(?:Args|Arguments|Parameters):\s*$")
_PARAMETER = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")


class ToolFunction(NamedTuple):
    """A function that models may call. `context` names the parameters that models do not give."""

    name: str
    description: str
    schema: dict[str, Any]
    callable: Callable[..., Any]
    context: tuple[str, ...]
    shape: JsonType

    def arguments(self, given: Any) -> dict[str, Any]:
        """Convert what a model gave to the types of the signature; raises JsonTypeError."""
        given = without_nulls(given, self.schema)
        read = self.shape.read(given)
        return {name: getattr(read, name) for name in given}

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function. A plain one runs in a thread, which a cancel leaves behind."""
        if inspect.iscoroutinefunction(_plain(self.callable)):
            return await self.callable(**arguments)
        outcome = await in_thread(_settled(self.callable, arguments))
        if isinstance(outcome, _Raised):
            raise outcome.error
        return await outcome if inspect.isawaitable(outcome) else outcome


def tool_functions(callables: Sequence[Any], context: type | None = None) -> dict[str, ToolFunction]:
    """Functions by their names; raises TypeError for two of one name, and as `tool_function` does."""
    found: dict[str, ToolFunction] = {}
    for each in callables:
        function = tool_function(each, context)
        if function.name in found:
            raise TypeError(f"there are two tools of the name `{function.name}`: rename one")
        found[function.name] = function
    return found


def tool_function(callable: Any, context: type | None = None) -> ToolFunction:
    """Read the signature of a function; raises TypeError for one that no model could call."""
    plain = _plain(callable)
    name = getattr(plain, "__name__", None)
    if not inspect.isroutine(plain) or not isinstance(name, str):
        raise TypeError(f"a tool is a function with a name, not {type(callable).__name__}")
    if not NAME.fullmatch(name):
        raise TypeError(f"{name!r} is no name for a tool: rename the function, with letters and digits")
    try:
        hints = typing.get_type_hints(plain, include_extras=True)
        parameters = inspect.signature(callable).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise TypeError(f"the signature of the tool `{name}` cannot be read: {error}") from None
    given = tuple(
        parameter.name
        for parameter in parameters
        if context is not None and hints.get(parameter.name) is context
    )
    fields = [_field(name, parameter, hints) for parameter in parameters if parameter.name not in given]
    try:
        shape = json_type_of_object(name, fields)
    except TypeError as error:
        raise TypeError(f"the parameters of the tool `{name}`: {error}") from None
    said = read_docstring(inspect.getdoc(plain))
    return ToolFunction(
        name, said.description, _described(shape.schema, said.parameters), callable, given, shape
    )


def tool_result(value: Any) -> ToolResult:
    """Convert what a function returned for a model; raises if it cannot be written as JSON."""
    match value:
        case ToolResult():
            return value
        case None:
            return text_result(DONE)
        case str():
            return text_result(value)
        case list() | tuple() if value and all(isinstance(item, _BLOCKS) for item in value):
            return ToolResult(tuple(value))
        case _ if isinstance(value, _BLOCKS):
            return ToolResult((value,))
    encoded = msgspec.json.encode(value, enc_hook=_as_builtins)
    decoded = msgspec.json.decode(encoded)
    # Before 2026, what is structured had to be an object.
    structured = decoded if isinstance(decoded, dict) else {"result": decoded}
    return ToolResult((TextContent(encoded.decode()),), structured)


def text_result(text: str, *, is_error: bool = False) -> ToolResult:
    """A result of text; what UTF-8 cannot hold is replaced."""
    clean = text.encode("utf-8", "replace").decode()
    content: ContentBlock = TextContent(clean)
    return ToolResult((content,), is_error=is_error)


class _Raised(NamedTuple):
    """Wraps an exception as a value, because some cannot be set on a future."""

    error: Exception


def _settled(callable: Callable[..., Any], arguments: Mapping[str, Any]) -> Callable[[], Any]:
    surroundings = contextvars.copy_context()

    def run() -> Any:
        try:
            return surroundings.run(callable, **arguments)
        except StopIteration as error:
            return _Raised(RuntimeError(f"StopIteration: {error}"))
        except Exception as error:
            return _Raised(error)
        except BaseException as error:
            return _Raised(RuntimeError(f"{type(error).__name__}: {error}"))

    return run


def _plain(callable: Any) -> Any:
    return _plain(callable.func) if isinstance(callable, functools.partial) else callable


def _field(tool: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
    if parameter.kind not in _NAMED:
        raise TypeError(f"the tool `{tool}` has the parameter `{parameter}`: models give arguments by name")
    is_required = parameter.default is inspect.Parameter.empty
    default = None if is_required else parameter.default
    return Parameter(parameter.name, hints.get(parameter.name, Any), is_required, default)


def _described(schema: dict[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    described = {key: value for key, value in schema.items() if key not in {"title", "description"}}
    described["properties"] = {
        name: {"description": parameters[name], **member} if name in parameters else member
        for name, member in schema.get("properties", {}).items()
    }
    return described


def _as_builtins(value: Any) -> Any:
    """Convert a pydantic model, which knows how to write itself."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: return text, or what JSON has")


class Docstring(NamedTuple):
    """A docstring without its section about parameters, and that section by their names."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Read a docstring whose section `Args:` has lines of the form `name: what it means`."""
    lines = inspect.cleandoc(text or "").splitlines()
    begin = next((at for at, line in enumerate(lines) if _SECTION.match(line)), None)
    if begin is None:
        return Docstring("\n".join(lines).strip(), {})
    end = next(
        (at for at in range(begin + 1, len(lines)) if lines[at].strip() and not lines[at][0].isspace()),
        len(lines),
    )
    rest = "\n".join(lines[:begin]).rstrip(), "\n".join(lines[end:]).strip()
    return Docstring("\n\n".join(filter(None, rest)), _parameters(lines[begin + 1 : end]))


def _parameters(lines: list[str]) -> dict[str, str]:
    """Parse the lines of `Args:`; a line that is indented further continues the one before it."""
    found: dict[str, str] = {}
    name: str | None = None
    indent = next((len(line) - len(line.lstrip()) for line in lines if line.strip()), 0)
    for line in filter(str.strip, lines):
        begins = len(line) - len(line.lstrip()) <= indent
        match = _PARAMETER.match(line.strip()) if begins else None
        if match is not None:
            name = match["name"]
            found[name] = match["text"].strip()
        elif name is not None:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
