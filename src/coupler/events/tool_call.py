"""A tool call: its state, and what an agent reports of it.

The first update of an id announces the call. A field left UNSET is unchanged. What a call shows grows by one
output after the other, so that long output is never said twice.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from coupler.schema.v1 import Content, TextContent, ToolCallContent, ToolCallLocation

OPEN_STATUSES = frozenset({"pending", "in_progress"})


class ToolUpdate(Struct, frozen=True, kw_only=True):
    """What changed in a tool call."""

    id: str
    title: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    content: tuple[ToolCallContent, ...] | UnsetType = UNSET
    locations: tuple[ToolCallLocation, ...] | UnsetType = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET
    meta: dict[str, Any] | UnsetType = UNSET


class ToolOutput(Struct, frozen=True):
    """Something more that a tool call shows. Text goes on where the text before it ended, unless `apart`."""

    id: str
    item: ToolCallContent
    apart: bool = False

    @property
    def text(self) -> str | None:
        """What this adds to the text before it; None if it is an item of its own."""
        return None if self.apart else plain_text_of(self.item)


class ToolCall(Struct, frozen=True, kw_only=True):
    """A tool call as it stands. Kinds and statuses that this version does not know are kept as they came."""

    id: str
    title: str = ""
    kind: str = "other"
    status: str = "pending"
    name: str | None = None
    content: tuple[ToolCallContent, ...] = ()
    locations: tuple[ToolCallLocation, ...] = ()
    raw_input: Any = None
    raw_output: Any = None
    meta: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the call still waits or runs."""
        return self.status in OPEN_STATUSES

    def updated(self, update: ToolUpdate) -> ToolCall:
        """The call after the update."""
        changes = {name: value for name in CHANGEABLE if (value := getattr(update, name)) is not UNSET}
        return msgspec.structs.replace(self, **changes)


CHANGEABLE = tuple(name for name in ToolUpdate.__struct_fields__ if name != "id")
"""The fields that an update may carry."""


def plain_text_of(item: ToolCallContent) -> str | None:
    """The item's text if it is nothing but text; None for what has annotations or is something else."""
    if not isinstance(item, Content) or not isinstance(item.content, TextContent):
        return None
    has_more = item.meta or item.content.meta or item.content.annotations
    return None if has_more else item.content.text
