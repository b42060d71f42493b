"""A tool call: its state, and the change to it that an agent reports.

The first update of an id announces the call. A field left UNSET is unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from coupler.schema.v1 import ToolCallContent, ToolCallLocation

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
