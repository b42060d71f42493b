"""The stable types of ACP version 1. Made by scripts/generate_schema.py: do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from coupler.schema.base import (
    Extensible,
    Int32,
    Int64,
    Message,
    NonEmptyString,
    Scoped,
    Uint16,
    Uint32,
    Uint64,
    UniformOptions,
    Unknown,
)

__all__ = [
    "AcceptElicitationResponse",
    "AgentAuthCapabilities",
    "AgentCapabilities",
    "AgentMessageChunk",
    "AgentThoughtChunk",
    "Annotations",
    "AudioContent",
    "AuthCapabilities",
    "AuthMethod",
    "AuthMethodAgent",
    "AuthMethodId",
    "AuthMethodTerminal",
    "AuthenticateRequest",
    "AuthenticateResponse",
    "AvailableCommand",
    "AvailableCommandInput",
    "AvailableCommandsUpdate",
    "BlobResourceContents",
    "BooleanConfigOptionCapabilities",
    "BooleanPropertySchema",
    "CancelElicitationResponse",
    "CancelNotification",
    "CancelRequestNotification",
    "CancelledPermissionOutcome",
    "ClientCapabilities",
    "ClientSessionCapabilities",
    "CloseSessionRequest",
    "CloseSessionResponse",
    "CompactionCapabilities",
    "CompactionId",
    "CompactionStatus",
    "CompactionSummaryChunk",
    "CompactionUpdate",
    "CompleteElicitationNotification",
    "ConfigOptionUpdate",
    "Content",
    "ContentBlock",
    "ContentChunk",
    "Cost",
    "CreateElicitationRequest",
    "CreateElicitationResponse",
    "CreateFormElicitationRequest",
    "CreateTerminalRequest",
    "CreateTerminalResponse",
    "CreateUrlElicitationRequest",
    "CurrentModeUpdate",
    "DeclineElicitationResponse",
    "DeleteSessionRequest",
    "DeleteSessionResponse",
    "Diff",
    "ElicitationCapabilities",
    "ElicitationContentValue",
    "ElicitationFormCapabilities",
    "ElicitationId",
    "ElicitationPropertySchema",
    "ElicitationSchema",
    "ElicitationSchemaType",
    "ElicitationUrlCapabilities",
    "EmbeddedResource",
    "EmbeddedResourceResource",
    "EnumOption",
    "EnvVariable",
    "Error",
    "ErrorCode",
    "FileSystemCapabilities",
    "HttpHeader",
    "ImageContent",
    "Implementation",
    "InitializeRequest",
    "InitializeResponse",
    "IntegerPropertySchema",
    "KillTerminalRequest",
    "KillTerminalResponse",
    "ListSessionsRequest",
    "ListSessionsResponse",
    "LoadSessionRequest",
    "LoadSessionResponse",
    "LogoutCapabilities",
    "LogoutRequest",
    "LogoutResponse",
    "McpCapabilities",
    "McpServer",
    "McpServerHttp",
    "McpServerSse",
    "McpServerStdio",
    "MessageId",
    "MultiSelectItems",
    "MultiSelectPropertySchema",
    "NewSessionRequest",
    "NewSessionResponse",
    "Notice",
    "NoticeCapabilities",
    "NoticeSeverity",
    "NumberPropertySchema",
    "OtherElicitationRequest",
    "OtherElicitationResponse",
    "OtherMultiSelectItems",
    "OtherPropertySchema",
    "PermissionOption",
    "PermissionOptionId",
    "PermissionOptionKind",
    "PermissionToolCall",
    "Plan",
    "PlanEntry",
    "PlanEntryPriority",
    "PlanEntryStatus",
    "PromptCapabilities",
    "PromptRequest",
    "PromptResponse",
    "ProtocolVersion",
    "ReadTextFileRequest",
    "ReadTextFileResponse",
    "ReleaseTerminalRequest",
    "ReleaseTerminalResponse",
    "RequestId",
    "RequestPermissionOutcome",
    "RequestPermissionRequest",
    "RequestPermissionResponse",
    "ResourceLink",
    "ResumeSessionRequest",
    "ResumeSessionResponse",
    "Role",
    "SelectedPermissionOutcome",
    "SessionAdditionalDirectoriesCapabilities",
    "SessionCapabilities",
    "SessionCloseCapabilities",
    "SessionConfigBoolean",
    "SessionConfigGroupId",
    "SessionConfigId",
    "SessionConfigOption",
    "SessionConfigOptionCategory",
    "SessionConfigOptionsCapabilities",
    "SessionConfigSelect",
    "SessionConfigSelectGroup",
    "SessionConfigSelectItem",
    "SessionConfigSelectOption",
    "SessionConfigSelectOptions",
    "SessionConfigValueId",
    "SessionDeleteCapabilities",
    "SessionId",
    "SessionInfo",
    "SessionInfoUpdate",
    "SessionListCapabilities",
    "SessionMode",
    "SessionModeId",
    "SessionModeState",
    "SessionNotification",
    "SessionResumeCapabilities",
    "SessionUpdate",
    "SetSessionConfigBooleanRequest",
    "SetSessionConfigOptionRequest",
    "SetSessionConfigOptionResponse",
    "SetSessionConfigSelectRequest",
    "SetSessionModeRequest",
    "SetSessionModeResponse",
    "StopReason",
    "StringFormat",
    "StringMultiSelectItems",
    "StringPropertySchema",
    "Terminal",
    "TerminalExitStatus",
    "TerminalId",
    "TerminalOutputRequest",
    "TerminalOutputResponse",
    "TextContent",
    "TextResourceContents",
    "TitledMultiSelectItems",
    "ToolCall",
    "ToolCallContent",
    "ToolCallId",
    "ToolCallLocation",
    "ToolCallStatus",
    "ToolCallUpdate",
    "ToolKind",
    "UnstructuredCommandInput",
    "UsageUpdate",
    "UserMessageChunk",
    "WaitForTerminalExitRequest",
    "WaitForTerminalExitResponse",
    "WriteTextFileRequest",
    "WriteTextFileResponse",
]

AuthMethodId: TypeAlias = str


class AuthenticateRequest(Extensible, frozen=True):
    method_id: AuthMethodId


class AuthenticateResponse(Extensible, frozen=True):
    pass


SessionId: TypeAlias = str


class CancelNotification(Extensible, frozen=True):
    session_id: SessionId


RequestId: TypeAlias = Int64 | str | None


class CancelRequestNotification(Extensible, frozen=True):
    request_id: RequestId


class CloseSessionRequest(Extensible, frozen=True):
    session_id: SessionId


class CloseSessionResponse(Extensible, frozen=True):
    pass


ElicitationId: TypeAlias = str


class CompleteElicitationNotification(Extensible, frozen=True):
    elicitation_id: ElicitationId


class CreateElicitationRequest:
    __slots__ = ()


ElicitationSchemaType: TypeAlias = Literal["object"]


class ElicitationPropertySchema:
    __slots__ = ()


StringFormat: TypeAlias = Literal["email", "uri", "date", "date-time"]


class EnumOption(Extensible, frozen=True):
    const: str
    title: str
    description: str | UnsetType | None = UNSET


class StringPropertySchema(
    Extensible,
    ElicitationPropertySchema,
    frozen=True,
    tag_field="type",
    tag="string",
):
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    min_length: Uint32 | UnsetType | None = UNSET
    max_length: Uint32 | UnsetType | None = UNSET
    pattern: str | UnsetType | None = UNSET
    format: StringFormat | UnsetType | None = UNSET
    default: str | UnsetType | None = UNSET
    enum: Sequence[str] | UnsetType | None = UNSET
    one_of: Sequence[EnumOption] | UnsetType | None = UNSET


class NumberPropertySchema(
    Extensible,
    ElicitationPropertySchema,
    frozen=True,
    tag_field="type",
    tag="number",
):
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    minimum: float | UnsetType | None = UNSET
    maximum: float | UnsetType | None = UNSET
    default: float | UnsetType | None = UNSET


class IntegerPropertySchema(
    Extensible,
    ElicitationPropertySchema,
    frozen=True,
    tag_field="type",
    tag="integer",
):
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    minimum: Int64 | UnsetType | None = UNSET
    maximum: Int64 | UnsetType | None = UNSET
    default: Int64 | UnsetType | None = UNSET


class BooleanPropertySchema(
    Extensible,
    ElicitationPropertySchema,
    frozen=True,
    tag_field="type",
    tag="boolean",
):
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    default: bool | UnsetType | None = UNSET


class MultiSelectItems:
    __slots__ = ()


class StringMultiSelectItems(Extensible, MultiSelectItems, frozen=True, tag_field="type", tag="string"):
    enum: Sequence[str]


class OtherMultiSelectItems(Unknown, MultiSelectItems):
    __slots__ = ()


class TitledMultiSelectItems(Extensible, MultiSelectItems, frozen=True):
    any_of: Sequence[EnumOption]


class MultiSelectPropertySchema(
    Extensible,
    ElicitationPropertySchema,
    frozen=True,
    tag_field="type",
    tag="array",
):
    items: MultiSelectItems
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    min_items: Uint64 | UnsetType | None = UNSET
    max_items: Uint64 | UnsetType | None = UNSET
    default: Sequence[str] | UnsetType | None = UNSET


class OtherPropertySchema(Unknown, ElicitationPropertySchema):
    __slots__ = ()


class ElicitationSchema(Extensible, frozen=True):
    type: ElicitationSchemaType = "object"
    title: str | UnsetType | None = UNSET
    properties: Mapping[str, ElicitationPropertySchema] = field(default_factory=dict)
    required: Sequence[str] | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET


ToolCallId: TypeAlias = str


class CreateFormElicitationRequest(
    Extensible,
    CreateElicitationRequest,
    Scoped,
    frozen=True,
    tag_field="mode",
    tag="form",
):
    message: str
    requested_schema: ElicitationSchema
    session_id: SessionId | UnsetType = UNSET
    tool_call_id: ToolCallId | UnsetType | None = UNSET
    request_id: RequestId | UnsetType = UNSET


class CreateUrlElicitationRequest(
    Extensible,
    CreateElicitationRequest,
    Scoped,
    frozen=True,
    tag_field="mode",
    tag="url",
):
    message: str
    elicitation_id: ElicitationId
    url: str
    session_id: SessionId | UnsetType = UNSET
    tool_call_id: ToolCallId | UnsetType | None = UNSET
    request_id: RequestId | UnsetType = UNSET


class OtherElicitationRequest(Unknown, CreateElicitationRequest):
    __slots__ = ()


class CreateElicitationResponse:
    __slots__ = ()


ElicitationContentValue: TypeAlias = str | Int64 | float | bool | Sequence[str]


class AcceptElicitationResponse(
    Extensible,
    CreateElicitationResponse,
    frozen=True,
    tag_field="action",
    tag="accept",
):
    content: Mapping[str, ElicitationContentValue] | UnsetType | None = UNSET


class DeclineElicitationResponse(
    Extensible,
    CreateElicitationResponse,
    frozen=True,
    tag_field="action",
    tag="decline",
):
    pass


class CancelElicitationResponse(
    Extensible,
    CreateElicitationResponse,
    frozen=True,
    tag_field="action",
    tag="cancel",
):
    pass


class OtherElicitationResponse(Unknown, CreateElicitationResponse):
    __slots__ = ()


class EnvVariable(Extensible, frozen=True):
    name: str
    value: str


class CreateTerminalRequest(Extensible, frozen=True):
    session_id: SessionId
    command: str
    args: Sequence[str] | UnsetType = UNSET
    env: Sequence[EnvVariable] | UnsetType = UNSET
    cwd: str | UnsetType | None = UNSET
    output_byte_limit: Uint64 | UnsetType | None = UNSET


TerminalId: TypeAlias = str


class CreateTerminalResponse(Extensible, frozen=True):
    terminal_id: TerminalId


class DeleteSessionRequest(Extensible, frozen=True):
    session_id: SessionId


class DeleteSessionResponse(Extensible, frozen=True):
    pass


ProtocolVersion: TypeAlias = Uint16


class FileSystemCapabilities(Extensible, frozen=True):
    read_text_file: bool = False
    write_text_file: bool = False


class CompactionCapabilities(Message, frozen=True):
    pass


class BooleanConfigOptionCapabilities(Extensible, frozen=True):
    pass


class SessionConfigOptionsCapabilities(Extensible, frozen=True):
    boolean: BooleanConfigOptionCapabilities | UnsetType | None = UNSET


class NoticeCapabilities(Message, frozen=True):
    pass


class ClientSessionCapabilities(Extensible, frozen=True):
    compaction: CompactionCapabilities | UnsetType | None = UNSET
    config_options: SessionConfigOptionsCapabilities | UnsetType | None = UNSET
    notices: NoticeCapabilities | UnsetType | None = UNSET


class AuthCapabilities(Extensible, frozen=True):
    terminal: bool = False


class ElicitationFormCapabilities(Extensible, frozen=True):
    pass


class ElicitationUrlCapabilities(Extensible, frozen=True):
    pass


class ElicitationCapabilities(Extensible, frozen=True):
    form: ElicitationFormCapabilities | UnsetType | None = UNSET
    url: ElicitationUrlCapabilities | UnsetType | None = UNSET


class ClientCapabilities(Extensible, frozen=True):
    fs: FileSystemCapabilities = FileSystemCapabilities()
    terminal: bool = False
    session: ClientSessionCapabilities | UnsetType | None = UNSET
    auth: AuthCapabilities = AuthCapabilities()
    elicitation: ElicitationCapabilities | UnsetType | None = UNSET


class Implementation(Extensible, frozen=True):
    name: str
    version: str
    title: str | UnsetType | None = UNSET


class InitializeRequest(Extensible, frozen=True):
    protocol_version: ProtocolVersion
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | UnsetType | None = UNSET


class PromptCapabilities(Extensible, frozen=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(Extensible, frozen=True):
    http: bool = False
    sse: bool = False


class SessionListCapabilities(Extensible, frozen=True):
    pass


class SessionDeleteCapabilities(Extensible, frozen=True):
    pass


class SessionAdditionalDirectoriesCapabilities(Extensible, frozen=True):
    pass


class SessionResumeCapabilities(Extensible, frozen=True):
    pass


class SessionCloseCapabilities(Extensible, frozen=True):
    pass


class SessionCapabilities(Extensible, frozen=True):
    list: SessionListCapabilities | UnsetType | None = UNSET
    delete: SessionDeleteCapabilities | UnsetType | None = UNSET
    additional_directories: SessionAdditionalDirectoriesCapabilities | UnsetType | None = UNSET
    resume: SessionResumeCapabilities | UnsetType | None = UNSET
    close: SessionCloseCapabilities | UnsetType | None = UNSET


class LogoutCapabilities(Extensible, frozen=True):
    pass


class AgentAuthCapabilities(Extensible, frozen=True):
    logout: LogoutCapabilities | UnsetType | None = UNSET


class AgentCapabilities(Extensible, frozen=True):
    load_session: bool = False
    prompt_capabilities: PromptCapabilities = PromptCapabilities()
    mcp_capabilities: McpCapabilities = McpCapabilities()
    session_capabilities: SessionCapabilities = SessionCapabilities()
    auth: AgentAuthCapabilities = AgentAuthCapabilities()


class AuthMethod:
    __slots__ = ()


class AuthMethodTerminal(Extensible, AuthMethod, frozen=True, tag_field="type", tag="terminal"):
    id: AuthMethodId
    name: str
    description: str | UnsetType | None = UNSET
    args: Sequence[str] | UnsetType = UNSET
    env: Mapping[str, str] | UnsetType = UNSET


class AuthMethodAgent(Extensible, AuthMethod, frozen=True):
    id: AuthMethodId
    name: str
    description: str | UnsetType | None = UNSET


class InitializeResponse(Extensible, frozen=True):
    protocol_version: ProtocolVersion
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    auth_methods: Sequence[AuthMethod] = field(default_factory=list)
    agent_info: Implementation | UnsetType | None = UNSET


class KillTerminalRequest(Extensible, frozen=True):
    session_id: SessionId
    terminal_id: TerminalId


class KillTerminalResponse(Extensible, frozen=True):
    pass


class ListSessionsRequest(Extensible, frozen=True):
    cwd: str | UnsetType | None = UNSET
    cursor: str | UnsetType | None = UNSET


class SessionInfo(Extensible, frozen=True):
    session_id: SessionId
    cwd: str
    additional_directories: Sequence[str] | UnsetType = UNSET
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET


class ListSessionsResponse(Extensible, frozen=True):
    sessions: Sequence[SessionInfo]
    next_cursor: str | UnsetType | None = UNSET


class McpServer:
    __slots__ = ()


class HttpHeader(Extensible, frozen=True):
    name: str
    value: str


class McpServerHttp(Extensible, McpServer, frozen=True, tag_field="type", tag="http"):
    name: str
    url: str
    headers: Sequence[HttpHeader]


class McpServerSse(Extensible, McpServer, frozen=True, tag_field="type", tag="sse"):
    name: str
    url: str
    headers: Sequence[HttpHeader]


class McpServerStdio(Extensible, McpServer, frozen=True):
    name: str
    command: str
    args: Sequence[str]
    env: Sequence[EnvVariable]


class LoadSessionRequest(Extensible, frozen=True):
    mcp_servers: Sequence[McpServer]
    cwd: str
    session_id: SessionId
    additional_directories: Sequence[str] | UnsetType = UNSET


SessionModeId: TypeAlias = str


class SessionMode(Extensible, frozen=True):
    id: SessionModeId
    name: str
    description: str | UnsetType | None = UNSET


class SessionModeState(Extensible, frozen=True):
    current_mode_id: SessionModeId
    available_modes: Sequence[SessionMode]


SessionConfigId: TypeAlias = str
SessionConfigValueId: TypeAlias = str


class SessionConfigSelectItem:
    __slots__ = ()


class SessionConfigSelectOption(Extensible, SessionConfigSelectItem, frozen=True):
    value: SessionConfigValueId
    name: str
    description: str | UnsetType | None = UNSET


SessionConfigGroupId: TypeAlias = str


class SessionConfigSelectGroup(Extensible, SessionConfigSelectItem, frozen=True):
    group: SessionConfigGroupId
    name: str
    options: Sequence[SessionConfigSelectOption]


SessionConfigSelectOptions: TypeAlias = Sequence[SessionConfigSelectItem]
SessionConfigOptionCategory: TypeAlias = str


class SessionConfigSelect(Extensible, UniformOptions, frozen=True, tag_field="type", tag="select"):
    id: SessionConfigId
    name: str
    current_value: SessionConfigValueId
    options: SessionConfigSelectOptions
    description: str | UnsetType | None = UNSET
    category: SessionConfigOptionCategory | UnsetType | None = UNSET


class SessionConfigBoolean(Extensible, frozen=True, tag_field="type", tag="boolean"):
    id: SessionConfigId
    name: str
    current_value: bool
    description: str | UnsetType | None = UNSET
    category: SessionConfigOptionCategory | UnsetType | None = UNSET


if TYPE_CHECKING:
    SessionConfigOption: TypeAlias = SessionConfigSelect | SessionConfigBoolean | Unknown
else:
    SessionConfigOption = SessionConfigSelect | SessionConfigBoolean


class LoadSessionResponse(Extensible, frozen=True):
    modes: SessionModeState | UnsetType | None = UNSET
    config_options: Sequence[SessionConfigOption] | UnsetType | None = UNSET


class LogoutRequest(Extensible, frozen=True):
    pass


class LogoutResponse(Extensible, frozen=True):
    pass


class NewSessionRequest(Extensible, frozen=True):
    cwd: str
    mcp_servers: Sequence[McpServer]
    additional_directories: Sequence[str] | UnsetType = UNSET


class NewSessionResponse(Extensible, frozen=True):
    session_id: SessionId
    modes: SessionModeState | UnsetType | None = UNSET
    config_options: Sequence[SessionConfigOption] | UnsetType | None = UNSET


Role: TypeAlias = Literal["assistant", "user"]


class Annotations(Extensible, frozen=True):
    audience: Sequence[Role] | UnsetType | None = UNSET
    last_modified: str | UnsetType | None = UNSET
    priority: float | UnsetType | None = UNSET


class TextContent(Extensible, frozen=True, tag_field="type", tag="text"):
    text: str
    annotations: Annotations | UnsetType | None = UNSET


class ImageContent(Extensible, frozen=True, tag_field="type", tag="image"):
    data: str
    mime_type: str
    annotations: Annotations | UnsetType | None = UNSET
    uri: str | UnsetType | None = UNSET


class AudioContent(Extensible, frozen=True, tag_field="type", tag="audio"):
    data: str
    mime_type: str
    annotations: Annotations | UnsetType | None = UNSET


class ResourceLink(Extensible, frozen=True, tag_field="type", tag="resource_link"):
    name: str
    uri: str
    annotations: Annotations | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    mime_type: str | UnsetType | None = UNSET
    size: Int64 | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET


class EmbeddedResourceResource:
    __slots__ = ()


class TextResourceContents(Extensible, EmbeddedResourceResource, frozen=True):
    text: str
    uri: str
    mime_type: str | UnsetType | None = UNSET


class BlobResourceContents(Extensible, EmbeddedResourceResource, frozen=True):
    blob: str
    uri: str
    mime_type: str | UnsetType | None = UNSET


class EmbeddedResource(Extensible, frozen=True, tag_field="type", tag="resource"):
    resource: EmbeddedResourceResource
    annotations: Annotations | UnsetType | None = UNSET


if TYPE_CHECKING:
    ContentBlock: TypeAlias = (
        TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | Unknown
    )
else:
    ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class PromptRequest(Extensible, frozen=True):
    session_id: SessionId
    prompt: Sequence[ContentBlock]


StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class PromptResponse(Extensible, frozen=True):
    stop_reason: StopReason


class ReadTextFileRequest(Extensible, frozen=True):
    session_id: SessionId
    path: str
    line: Uint32 | UnsetType | None = UNSET
    limit: Uint32 | UnsetType | None = UNSET


class ReadTextFileResponse(Extensible, frozen=True):
    content: str


class ReleaseTerminalRequest(Extensible, frozen=True):
    session_id: SessionId
    terminal_id: TerminalId


class ReleaseTerminalResponse(Extensible, frozen=True):
    pass


ToolKind: TypeAlias = Literal[
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
]
ToolCallStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]


class Content(Extensible, frozen=True, tag_field="type", tag="content"):
    content: ContentBlock


class Diff(Extensible, frozen=True, tag_field="type", tag="diff"):
    path: str
    new_text: str
    old_text: str | UnsetType | None = UNSET


class Terminal(Extensible, frozen=True, tag_field="type", tag="terminal"):
    terminal_id: TerminalId


if TYPE_CHECKING:
    ToolCallContent: TypeAlias = Content | Diff | Terminal | Unknown
else:
    ToolCallContent = Content | Diff | Terminal


class ToolCallLocation(Extensible, frozen=True):
    path: str
    line: Uint32 | UnsetType | None = UNSET


class PermissionToolCall(Extensible, frozen=True):
    tool_call_id: ToolCallId
    kind: ToolKind | UnsetType | None = UNSET
    status: ToolCallStatus | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    content: Sequence[ToolCallContent] | UnsetType | None = UNSET
    locations: Sequence[ToolCallLocation] | UnsetType | None = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET


PermissionOptionId: TypeAlias = str
PermissionOptionKind: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PermissionOption(Extensible, frozen=True):
    option_id: PermissionOptionId
    name: str
    kind: PermissionOptionKind


class RequestPermissionRequest(Extensible, frozen=True):
    session_id: SessionId
    tool_call: PermissionToolCall
    options: Sequence[PermissionOption]


class CancelledPermissionOutcome(Message, frozen=True, tag_field="outcome", tag="cancelled"):
    pass


class SelectedPermissionOutcome(Extensible, frozen=True, tag_field="outcome", tag="selected"):
    option_id: PermissionOptionId


if TYPE_CHECKING:
    RequestPermissionOutcome: TypeAlias = CancelledPermissionOutcome | SelectedPermissionOutcome | Unknown
else:
    RequestPermissionOutcome = CancelledPermissionOutcome | SelectedPermissionOutcome


class RequestPermissionResponse(Extensible, frozen=True):
    outcome: RequestPermissionOutcome


class ResumeSessionRequest(Extensible, frozen=True):
    session_id: SessionId
    cwd: str
    additional_directories: Sequence[str] | UnsetType = UNSET
    mcp_servers: Sequence[McpServer] | UnsetType = UNSET


class ResumeSessionResponse(Extensible, frozen=True):
    modes: SessionModeState | UnsetType | None = UNSET
    config_options: Sequence[SessionConfigOption] | UnsetType | None = UNSET


MessageId: TypeAlias = str


class ContentChunk(Extensible, frozen=True):
    content: ContentBlock
    message_id: MessageId | UnsetType | None = UNSET


class UserMessageChunk(ContentChunk, frozen=True, tag_field="sessionUpdate", tag="user_message_chunk"):
    pass


class AgentMessageChunk(ContentChunk, frozen=True, tag_field="sessionUpdate", tag="agent_message_chunk"):
    pass


class AgentThoughtChunk(ContentChunk, frozen=True, tag_field="sessionUpdate", tag="agent_thought_chunk"):
    pass


class ToolCall(Extensible, frozen=True, tag_field="sessionUpdate", tag="tool_call"):
    tool_call_id: ToolCallId
    title: str
    name: str | UnsetType | None = UNSET
    kind: ToolKind = "other"
    status: ToolCallStatus = "pending"
    content: Sequence[ToolCallContent] | UnsetType = UNSET
    locations: Sequence[ToolCallLocation] | UnsetType = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET


class ToolCallUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="tool_call_update"):
    tool_call_id: ToolCallId
    kind: ToolKind | UnsetType | None = UNSET
    status: ToolCallStatus | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    content: Sequence[ToolCallContent] | UnsetType | None = UNSET
    locations: Sequence[ToolCallLocation] | UnsetType | None = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET


PlanEntryPriority: TypeAlias = Literal["high", "medium", "low"]
PlanEntryStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


class PlanEntry(Extensible, frozen=True):
    content: str
    priority: PlanEntryPriority
    status: PlanEntryStatus


class Plan(Extensible, frozen=True, tag_field="sessionUpdate", tag="plan"):
    entries: Sequence[PlanEntry]


class UnstructuredCommandInput(Extensible, frozen=True):
    hint: str


AvailableCommandInput: TypeAlias = UnstructuredCommandInput


class AvailableCommand(Extensible, frozen=True):
    name: str
    description: str
    input: AvailableCommandInput | UnsetType | None = UNSET


class AvailableCommandsUpdate(
    Extensible,
    frozen=True,
    tag_field="sessionUpdate",
    tag="available_commands_update",
):
    available_commands: Sequence[AvailableCommand]


class CurrentModeUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="current_mode_update"):
    current_mode_id: SessionModeId


class ConfigOptionUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="config_option_update"):
    config_options: Sequence[SessionConfigOption]


class SessionInfoUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="session_info_update"):
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET


class Cost(Extensible, frozen=True):
    amount: float
    currency: str


class UsageUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="usage_update"):
    used: Uint64
    size: Uint64
    cost: Cost | UnsetType | None = UNSET


NoticeSeverity: TypeAlias = str


class Notice(Extensible, frozen=True, tag_field="sessionUpdate", tag="notice"):
    severity: NoticeSeverity
    title: NonEmptyString
    description: str | UnsetType | None = UNSET


CompactionId: TypeAlias = str
CompactionStatus: TypeAlias = str


class CompactionUpdate(Extensible, frozen=True, tag_field="sessionUpdate", tag="compaction_update"):
    compaction_id: CompactionId
    status: CompactionStatus
    summary: Sequence[ContentBlock] | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET


class CompactionSummaryChunk(
    Extensible,
    frozen=True,
    tag_field="sessionUpdate",
    tag="compaction_summary_chunk",
):
    compaction_id: CompactionId
    content: ContentBlock


if TYPE_CHECKING:
    SessionUpdate: TypeAlias = (
        UserMessageChunk
        | AgentMessageChunk
        | AgentThoughtChunk
        | ToolCall
        | ToolCallUpdate
        | Plan
        | AvailableCommandsUpdate
        | CurrentModeUpdate
        | ConfigOptionUpdate
        | SessionInfoUpdate
        | UsageUpdate
        | Notice
        | CompactionUpdate
        | CompactionSummaryChunk
        | Unknown
    )
else:
    SessionUpdate = (
        UserMessageChunk
        | AgentMessageChunk
        | AgentThoughtChunk
        | ToolCall
        | ToolCallUpdate
        | Plan
        | AvailableCommandsUpdate
        | CurrentModeUpdate
        | ConfigOptionUpdate
        | SessionInfoUpdate
        | UsageUpdate
        | Notice
        | CompactionUpdate
        | CompactionSummaryChunk
    )


class SessionNotification(Extensible, frozen=True):
    session_id: SessionId
    update: SessionUpdate


class SetSessionConfigOptionRequest:
    __slots__ = ()


class SetSessionConfigBooleanRequest(
    Extensible,
    SetSessionConfigOptionRequest,
    frozen=True,
    tag_field="type",
    tag="boolean",
):
    session_id: SessionId
    config_id: SessionConfigId
    value: bool


class SetSessionConfigSelectRequest(Extensible, SetSessionConfigOptionRequest, frozen=True):
    session_id: SessionId
    config_id: SessionConfigId
    value: SessionConfigValueId


class SetSessionConfigOptionResponse(Extensible, frozen=True):
    config_options: Sequence[SessionConfigOption]


class SetSessionModeRequest(Extensible, frozen=True):
    session_id: SessionId
    mode_id: SessionModeId


class SetSessionModeResponse(Extensible, frozen=True):
    pass


class TerminalOutputRequest(Extensible, frozen=True):
    session_id: SessionId
    terminal_id: TerminalId


class TerminalExitStatus(Extensible, frozen=True):
    exit_code: Uint32 | UnsetType | None = UNSET
    signal: str | UnsetType | None = UNSET


class TerminalOutputResponse(Extensible, frozen=True):
    output: str
    truncated: bool
    exit_status: TerminalExitStatus | UnsetType | None = UNSET


class WaitForTerminalExitRequest(Extensible, frozen=True):
    session_id: SessionId
    terminal_id: TerminalId


class WaitForTerminalExitResponse(Extensible, frozen=True):
    exit_code: Uint32 | UnsetType | None = UNSET
    signal: str | UnsetType | None = UNSET


class WriteTextFileRequest(Extensible, frozen=True):
    session_id: SessionId
    path: str
    content: str


class WriteTextFileResponse(Extensible, frozen=True):
    pass


ErrorCode: TypeAlias = Int32


class Error(Message, frozen=True):
    code: ErrorCode
    message: str
    data: Any = UNSET
