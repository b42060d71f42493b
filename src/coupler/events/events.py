"""The events of a session, as types to `match` on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from coupler.schema.v1 import (
    AvailableCommand,
    ContentBlock,
    Cost,
    PlanEntry,
    SessionConfigOption,
    TextContent,
    ToolCallContent,
    ToolCallLocation,
)
from coupler.schema.v1 import Content as ToolContent

if TYPE_CHECKING:
    from coupler.schema.unstable import Usage as TokenUsage

Role: TypeAlias = Literal["agent", "thought", "user"]

OPEN_STATUSES = frozenset({"pending", "in_progress"})

CANCELLED_META = {"coupler": {"outcome": "cancelled"}}
"""`_meta` of a cancelled call: v1 has no status for it, so it is reported as failed."""


class Text(Struct, frozen=True):
    """A piece of the agent's answer."""

    text: str
    message_id: str | None = None
    meta: dict[str, Any] | None = None


class Thought(Struct, frozen=True):
    """A piece of the agent's reasoning."""

    text: str
    message_id: str | None = None
    meta: dict[str, Any] | None = None


class Content(Struct, frozen=True):
    """A piece of a message that is not the agent's text: an image of its, or what the user said."""

    block: ContentBlock
    role: Role = "agent"
    message_id: str | None = None
    meta: dict[str, Any] | None = None


class Plan(Struct, frozen=True):
    """The whole plan, in place of the one before."""

    entries: tuple[PlanEntry, ...]
    meta: dict[str, Any] | None = None


class Usage(Struct, frozen=True):
    """The context usage, and the cost of the session so far."""

    used: int
    size: int
    cost: Cost | None = None
    meta: dict[str, Any] | None = None


class Commands(Struct, frozen=True):
    """The slash commands, in place of those before."""

    commands: tuple[AvailableCommand, ...]


class Mode(Struct, frozen=True):
    """A change of the session's mode."""

    id: str


class Options(Struct, frozen=True):
    """All configuration options, with their values."""

    options: tuple[SessionConfigOption, ...]


class Info(Struct, frozen=True):
    """A change of the session's description; None clears, UNSET leaves as it was."""

    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET


class Notice(Struct, frozen=True):
    """Something the user should know that is not part of the conversation."""

    severity: str
    title: str
    description: str | None = None
    meta: dict[str, Any] | None = None


class Compaction(Struct, frozen=True):
    """A compaction of the agent's context, running or over."""

    id: str
    status: str
    summary: tuple[ContentBlock, ...] | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    meta: dict[str, Any] | None = None

    def updated(self, later: Compaction) -> Compaction:
        """The compaction after an update."""
        summary = self.summary if later.summary is UNSET else later.summary
        error = self.error if later.error is UNSET else later.error
        return Compaction(self.id, later.status, summary, error, later.meta or self.meta)

    def extended(self, block: ContentBlock) -> Compaction:
        """The compaction with another piece of its summary."""
        return msgspec.structs.replace(self, summary=(*(self.summary or ()), block))


class CompactionSummary(Struct, frozen=True):
    """A piece of a compaction's summary."""

    id: str
    block: ContentBlock
    meta: dict[str, Any] | None = None


class Other(Struct, frozen=True):
    """An update of a kind that this version does not know, as it came."""

    kind: str
    raw: dict[str, Any]


class Stop(Struct, frozen=True):
    """The end of a turn. The reason is one of ACP's, or a newer agent's."""

    reason: str
    usage: TokenUsage | None = None
    meta: dict[str, Any] | None = None


class TurnUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens and cost of one prompt. `is_estimated` says that the tokens were estimated from the text."""

    input: int = field(default=0, name="input_tokens")
    output: int = field(default=0, name="output_tokens")
    cached_read: int = field(default=0, name="cached_tokens")
    cached_write: int = field(default=0, name="cached_write_tokens")
    thought: int = field(default=0, name="thought_tokens")
    total: int = field(default=0, name="total_tokens")
    is_estimated: bool = False
    context_used: int | None = None
    context_size: int | None = None
    cost: float | None = None
    currency: str | None = None

    def __add__(self, later: TurnUsage) -> TurnUsage:
        """Add a later turn; the context is that of the later one."""
        return TurnUsage(
            input=self.input + later.input,
            output=self.output + later.output,
            cached_read=self.cached_read + later.cached_read,
            cached_write=self.cached_write + later.cached_write,
            thought=self.thought + later.thought,
            total=self.total + later.total,
            is_estimated=self.is_estimated or later.is_estimated,
            context_used=self.context_used if later.context_used is None else later.context_used,
            context_size=self.context_size if later.context_size is None else later.context_size,
            cost=_sum(self.cost, later.cost),
            currency=later.currency or self.currency,
        )


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


class TurnEnded(Struct, frozen=True):
    """The end of a turn, with what it used, as clients and runs record it."""

    stop_reason: str | None
    """None if it is not known, as of runs that an earlier version stored."""
    usage: TurnUsage


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
        """True while the call waits or runs."""
        return self.status in OPEN_STATUSES

    def updated(self, update: ToolUpdate) -> ToolCall:
        """The call after the update."""
        changes = {name: value for name in UPDATABLE_FIELDS if (value := getattr(update, name)) is not UNSET}
        return msgspec.structs.replace(self, **changes)


class ToolUpdate(Struct, frozen=True, kw_only=True):
    """A change of a tool call; UNSET is unchanged. The first update of an id announces the call."""

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
    """An addition to a tool call's content. Text continues the text before it, unless `apart`."""

    id: str
    item: ToolCallContent
    apart: bool = False

    @property
    def text(self) -> str | None:
        """The text that this adds to the text before it; None if it is an item of its own."""
        return None if self.apart else plain_text_of(self.item)


Event: TypeAlias = (
    Text
    | Thought
    | Content
    | ToolCall
    | Plan
    | Usage
    | Commands
    | Mode
    | Options
    | Info
    | Notice
    | Compaction
    | CompactionSummary
    | Other
    | Stop
)


UPDATABLE_FIELDS = tuple(name for name in ToolUpdate.__struct_fields__ if name != "id")
"""The fields that an update may carry."""


def plain_text_of(item: ToolCallContent) -> str | None:
    """The item's text if it is nothing but text; None for what has annotations or is something else."""
    if not isinstance(item, ToolContent) or not isinstance(item.content, TextContent):
        return None
    has_more = item.meta or item.content.meta or item.content.annotations
    return None if has_more else item.content.text
