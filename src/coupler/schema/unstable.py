"""The drafts of ACP version 1 that Coupler uses. Made by scripts/generate_schema.py: do not edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import UNSET, UnsetType

from coupler.schema import v1
from coupler.schema.base import Extensible, Uint64, Unknown

__all__ = [
    "AgentCapabilities",
    "ClientCapabilities",
    "ForkSessionRequest",
    "ForkSessionResponse",
    "IdleStateUpdate",
    "InitializeRequest",
    "InitializeResponse",
    "OtherStateUpdate",
    "PlanCapabilities",
    "PlanFile",
    "PlanId",
    "PlanItems",
    "PlanMarkdown",
    "PlanRemoved",
    "PlanUpdate",
    "PlanUpdateContent",
    "PromptResponse",
    "RequiresActionStateUpdate",
    "RunningStateUpdate",
    "SessionCancelCapabilities",
    "SessionCapabilities",
    "SessionForkCapabilities",
    "SessionNotification",
    "SessionUpdate",
    "StateUpdate",
    "SubagentCapabilities",
    "SubagentSessionCapabilities",
    "SubagentUpdate",
    "UnknownStateUpdate",
    "Usage",
]


class ForkSessionRequest(Extensible, frozen=True):
    session_id: v1.SessionId
    cwd: str
    additional_directories: Sequence[str] | UnsetType = UNSET
    mcp_servers: Sequence[v1.McpServer] | UnsetType = UNSET


class ForkSessionResponse(Extensible, frozen=True):
    session_id: v1.SessionId
    modes: v1.SessionModeState | UnsetType | None = UNSET
    config_options: Sequence[v1.SessionConfigOption] | UnsetType | None = UNSET


PlanId: TypeAlias = str


class PlanItems(Extensible, frozen=True, tag_field="type", tag="items"):
    plan_id: PlanId
    entries: Sequence[v1.PlanEntry]


class PlanFile(Extensible, frozen=True, tag_field="type", tag="file"):
    plan_id: PlanId
    uri: str


class PlanMarkdown(Extensible, frozen=True, tag_field="type", tag="markdown"):
    plan_id: PlanId
    content: str


if TYPE_CHECKING:
    PlanUpdateContent: TypeAlias = PlanItems | PlanFile | PlanMarkdown | Unknown
else:
    PlanUpdateContent = PlanItems | PlanFile | PlanMarkdown


class PlanUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="plan_update"):
    plan: PlanUpdateContent


class PlanRemoved(Extensible, frozen=True, tag_field="sessionUpdate", tag="plan_removed"):
    plan_id: PlanId


class SessionCancelCapabilities(Extensible, frozen=True):
    pass


class SubagentSessionCapabilities(Extensible, frozen=True):
    cancel: SessionCancelCapabilities | UnsetType | None = UNSET


class StateUpdate:
    __slots__ = ()


class RunningStateUpdate(Extensible, StateUpdate, frozen=True, tag_field="state", tag="running"):
    pass


class Usage(Extensible, frozen=True):
    total_tokens: Uint64
    input_tokens: Uint64
    output_tokens: Uint64
    thought_tokens: Uint64 | UnsetType | None = UNSET
    cached_read_tokens: Uint64 | UnsetType | None = UNSET
    cached_write_tokens: Uint64 | UnsetType | None = UNSET


class IdleStateUpdate(Extensible, StateUpdate, frozen=True, tag_field="state", tag="idle"):
    usage: Usage | UnsetType | None = UNSET
    stop_reason: str | UnsetType | None = UNSET
    error: v1.Error | UnsetType | None = UNSET


class RequiresActionStateUpdate(
    Extensible,
    StateUpdate,
    frozen=True,
    tag_field="state",
    tag="requires_action",
):
    pass


class UnknownStateUpdate(Extensible, StateUpdate, frozen=True, tag_field="state", tag="unknown"):
    pass


class OtherStateUpdate(Unknown, StateUpdate):
    __slots__ = ()


class SubagentUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="subagent_update"):
    session_id: v1.SessionId
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    capabilities: SubagentSessionCapabilities | UnsetType | None = UNSET
    state: StateUpdate | UnsetType | None = UNSET
    cwd: str | UnsetType | None = UNSET
    additional_directories: Sequence[str] | UnsetType | None = UNSET


if TYPE_CHECKING:
    SessionUpdate: TypeAlias = v1.SessionUpdate | PlanUpdate | PlanRemoved | SubagentUpdate | Unknown
else:
    SessionUpdate = v1.SessionUpdate | PlanUpdate | PlanRemoved | SubagentUpdate


class SessionNotification(Extensible, frozen=True):
    session_id: v1.SessionId
    update: SessionUpdate


class PromptResponse(v1.PromptResponse, frozen=True):
    usage: Usage | UnsetType | None = UNSET


class PlanCapabilities(Extensible, frozen=True):
    pass


class SubagentCapabilities(Extensible, frozen=True):
    pass


class ClientCapabilities(v1.ClientCapabilities, frozen=True):
    plan: PlanCapabilities | UnsetType | None = UNSET
    subagents: SubagentCapabilities | UnsetType | None = UNSET


class SessionForkCapabilities(Extensible, frozen=True):
    pass


class SessionCapabilities(v1.SessionCapabilities, frozen=True):
    fork: SessionForkCapabilities | UnsetType | None = UNSET


class AgentCapabilities(v1.AgentCapabilities, frozen=True):
    session_capabilities: SessionCapabilities = SessionCapabilities()


class InitializeRequest(v1.InitializeRequest, frozen=True):
    client_capabilities: ClientCapabilities = ClientCapabilities()


class InitializeResponse(v1.InitializeResponse, frozen=True):
    agent_capabilities: AgentCapabilities = AgentCapabilities()
