"""Tools as servers describe them, and what they return. Both are a stranger's words."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from coupler.schema.v1 import ContentBlock, TextContent


class Annotations(Struct, frozen=True):
    """What a server claims of its tool; None where it says nothing. For people: it permits nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Tool(Struct, frozen=True):
    """One tool of one server."""

    server: str
    name: str
    description: str
    input_schema: dict[str, Any]
    """The JSON Schema of its arguments."""
    title: str | None = None
    annotations: Annotations = Annotations()


class ToolResult(Struct, frozen=True):
    """What a tool has returned."""

    content: tuple[ContentBlock, ...]
    structured: Any = None
    """The same as data, if the tool has it."""
    is_error: bool = False
    """Whether the tool says that it has failed; the content then says why."""

    @property
    def text(self) -> str:
        """The text in it, for a model to read."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))
