"""Everything that can be sent, without its secrets: every text in it that is not listed here is masked.

What is new in the protocol is therefore masked until somebody decides otherwise. Fields that are listed are
ids, paths, words of the protocol, and binary data, which a mark would break: see `secrets.payloads`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from coupler import events
from coupler.agent.errors import REASONS
from coupler.events import ToolOutput
from coupler.events.records import End
from coupler.schema import unstable, v1
from coupler.schema.base import Unknown
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.redaction.masker import Masker

T = TypeVar("T")

FUNCTIONAL: dict[type, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        events.Text: "message_id",
        events.Thought: "message_id",
        events.Content: "role message_id",
        events.ToolUpdate: "id kind status name",
        events.ToolCall: "id kind status name",
        ToolOutput: "id",
        events.Mode: "id",
        events.Info: "updated_at",
        events.Notice: "severity",
        events.Compaction: "id status",
        events.CompactionSummary: "id",
        End: "reason",
        v1.Annotations: "audience last_modified",
        v1.ImageContent: "data mime_type",
        v1.AudioContent: "data mime_type",
        v1.ResourceLink: "mime_type",
        v1.TextResourceContents: "mime_type",
        v1.BlobResourceContents: "blob mime_type",
        v1.Diff: "path",
        v1.Terminal: "terminal_id",
        v1.ToolCallLocation: "path",
        v1.PlanEntry: "priority status",
        v1.Cost: "currency",
        v1.AvailableCommand: "name",
        v1.SessionMode: "id",
        v1.SessionModeState: "current_mode_id",
        v1.SessionConfigSelect: "id category current_value",
        v1.SessionConfigSelectGroup: "group",
        v1.SessionConfigSelectOption: "value",
        v1.SessionConfigBoolean: "id category",
        v1.PermissionToolCall: "tool_call_id kind status name",
        v1.PermissionOption: "option_id kind",
        v1.RequestPermissionRequest: "session_id",
        v1.CreateFormElicitationRequest: "session_id tool_call_id request_id",
        v1.CreateUrlElicitationRequest: "elicitation_id session_id tool_call_id request_id",
        v1.CompleteElicitationNotification: "elicitation_id",
        v1.ElicitationSchema: "type required",
        v1.StringPropertySchema: "format pattern",
        v1.NewSessionResponse: "session_id",
        unstable.ForkSessionResponse: "session_id",
        v1.ListSessionsResponse: "next_cursor",
        v1.SessionInfo: "session_id cwd additional_directories updated_at",
        v1.PromptResponse: "stop_reason",
        unstable.PromptResponse: "stop_reason",
    }.items()
}
"""The texts of each type that stay as they are."""

FUNCTIONAL_REQUESTS = frozenset(
    {
        v1.ReadTextFileRequest,
        v1.WriteTextFileRequest,
        v1.CreateTerminalRequest,
        v1.TerminalOutputRequest,
        v1.WaitForTerminalExitRequest,
        v1.KillTerminalRequest,
        v1.ReleaseTerminalRequest,
    }
)
"""What a client is asked for with nothing in it that is for people."""

_FUNCTIONAL_IN_BLOCKS = frozenset({"type", "data", "blob", "mimeType", "audience", "lastModified"})
_FUNCTIONAL_IN_ERRORS = frozenset({"sessionId", "path", "method"})
_REASONS = frozenset(reason.name for reason in REASONS)
_NOTHING: frozenset[str] = frozenset()

DEEPEST = 100
"""Levels of lists, objects and structs that are looked into."""

TOO_DEEP = "[left out: nested too deeply to look for secrets]"


def masked(value: T, masker: Masker) -> T:
    """The value with a mark in the place of each secret that people would see; the same object if none."""
    return _masked(value, masker, DEEPEST)  # type: ignore[no-any-return]


def masked_blocks(blocks: bytes, masker: Masker) -> bytes:
    """Content blocks as JSON, byte for byte as they were unless there is a secret in them."""
    return bytes(_masked_raw(Raw(blocks), masker))


def masked_error(error: RpcError, masker: Masker) -> RpcError:
    """An error that can be shown."""
    message, data = masker.mask(error.message), error.data
    if isinstance(data, Mapping):
        data = {
            key: item if _is_functional_in_error(key, item) else _masked(item, masker, DEEPEST)
            for key, item in data.items()
        }
    else:
        data = _masked(data, masker, DEEPEST)
    return RpcError(error.code, message, data)


def _is_functional_in_error(key: str, item: object) -> bool:
    # An agent's code may give a reason of its own, in any words.
    return key in _FUNCTIONAL_IN_ERRORS or (key == "reason" and item in _REASONS)


def _masked(value: Any, masker: Masker, levels: int) -> Any:
    match value:
        case str():
            return masker.mask(value)
        case None | bool() | int() | float() | UnsetType():
            return value
        case Raw():
            return _masked_raw(value, masker)
        case bytes():
            return masker.mask_bytes(value)
        case Struct() | Mapping() | list() | tuple() if levels == 0:
            return TOO_DEEP
        case Struct():
            return _masked_struct(value, masker, levels)
        case Mapping():
            items = {key: _masked(item, masker, levels - 1) for key, item in value.items()}
            return _rebuilt(value, items) if any(items[key] is not value[key] for key in items) else value
        case list() | tuple():
            members = [_masked(item, masker, levels - 1) for item in value]
            is_changed = any(map(_differ, members, value))
            return (tuple(members) if isinstance(value, tuple) else members) if is_changed else value
    # Whatever else can be sent is sent as something of the above.
    return _masked(msgspec.to_builtins(value), masker, levels)


def _masked_struct(struct: Struct, masker: Masker, levels: int) -> Struct:
    functional = FUNCTIONAL.get(type(struct), _NOTHING)
    changes: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if name in functional or (name == "uri" and _is_path(value)):
            continue
        shown = _masked(value, masker, levels - 1)
        if shown is not value:
            changes[name] = shown
    return msgspec.structs.replace(struct, **changes) if changes else struct


def _masked_raw(raw: Raw, masker: Masker) -> Raw:
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        return Raw(msgspec.json.encode(TOO_DEEP))
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A journal that somebody has broken.
        return Raw(masker.mask_bytes(bytes(raw)))
    shown = _masked_json(value, masker, DEEPEST)
    return raw if shown is value else Raw(msgspec.json.encode(shown))


def _masked_json(value: Any, masker: Masker, levels: int) -> Any:
    """Content blocks as they came, with members that only a newer client knows."""
    match value:
        case dict() | list() if levels == 0:
            return TOO_DEEP
        case dict():
            items = {
                key: item
                if key in _FUNCTIONAL_IN_BLOCKS or (key == "uri" and _is_path(item))
                else _masked_json(item, masker, levels - 1)
                for key, item in value.items()
            }
            return items if any(items[key] is not value[key] for key in items) else value
        case list():
            members = [_masked_json(item, masker, levels - 1) for item in value]
            return members if any(map(_differ, members, value)) else value
    return _masked(value, masker, levels)


def _rebuilt(value: Mapping[str, Any], items: dict[str, Any]) -> Mapping[str, Any]:
    return type(value)(value.tag, items) if isinstance(value, Unknown) else items


def _differ(new: object, old: object) -> bool:
    return new is not old


def _is_path(uri: object) -> bool:
    """A file's address is a path, which editors follow; any other may have a password in it."""
    return isinstance(uri, str) and uri[:5].lower() == "file:"
