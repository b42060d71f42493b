"""The events of a session, as types to `match` on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from coupler.events.tool_call import ToolCall
from coupler.schema.v1 import AvailableCommand, ContentBlock, Cost, PlanEntry, SessionConfigOption

if TYPE_CHECKING:
    from coupler.schema.unstable import Usage as TokenUsage

Role: TypeAlias = Literal["agent", "thought", "user"]


class Text(Struct, frozen=True):
    """A piece of the agent's answer."""

    text: str
    message_id: str | None = None


class Thought(Struct, frozen=True):
    """A piece of the agent's reasoning."""

    text: str
    message_id: str | None = None


class Content(Struct, frozen=True):
    """A piece of a message that is not the agent's text: an image of its, or what the user said."""

    block: ContentBlock
    role: Role = "agent"
    message_id: str | None = None


class Plan(Struct, frozen=True):
    """The whole plan, in place of the one before."""

    entries: tuple[PlanEntry, ...]


class Usage(Struct, frozen=True):
    """How full the context is, and what the session has cost so far."""

    used: int
    size: int
    cost: Cost | None = None


class Commands(Struct, frozen=True):
    """The slash commands, in place of those before."""

    commands: tuple[AvailableCommand, ...]


class Mode(Struct, frozen=True):
    """The session's mode is now this one."""

    id: str


class Options(Struct, frozen=True):
    """All configuration options, with their values."""

    options: tuple[SessionConfigOption, ...]


class Info(Struct, frozen=True):
    """What changed in the session's description; None clears, UNSET leaves as it was."""

    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET


class Notice(Struct, frozen=True):
    """Something the user should know that is not part of the conversation."""

    severity: str
    title: str
    description: str | None = None


class Compaction(Struct, frozen=True):
    """The agent shortens its context, or has done so."""

    id: str
    status: str
    summary: tuple[ContentBlock, ...] | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET

    def updated(self, later: Compaction) -> Compaction:
        """The compaction after an update."""
        summary = self.summary if later.summary is UNSET else later.summary
        error = self.error if later.error is UNSET else later.error
        return Compaction(self.id, later.status, summary, error)

    def extended(self, block: ContentBlock) -> Compaction:
        """The compaction with another piece of its summary."""
        return Compaction(self.id, self.status, (*(self.summary or ()), block), self.error)


class CompactionSummary(Struct, frozen=True):
    """A piece of a compaction's summary."""

    id: str
    block: ContentBlock


class Other(Struct, frozen=True):
    """An update of a kind that this version does not know, as it came."""

    kind: str
    raw: dict[str, Any]


class Stop(Struct, frozen=True):
    """The turn is over. The reason is one of ACP's, or what a newer agent said."""

    reason: str
    usage: TokenUsage | None = None


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
