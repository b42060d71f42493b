"""What is refused of a message, rule by rule, and where the error points.

The rules are numbered as in section 6 of the protocol digest.
"""

from __future__ import annotations

from typing import Any

import pytest

from coupler.schema import v1
from coupler.schema.decoding import DecodingError
from schema.samples import BOTH, FORM, TEXT, Role, form, new_session, read, update
from tables import table


def bad(rule: str, kind: type, value: object, path: str, roles: tuple[Role, ...] = BOTH) -> list[Any]:
    return [pytest.param(kind, value, role, path, id=f"rule {rule} ({role})") for role in roles]


BAD = [
    *bad(
        "1, a string is no boolean",
        v1.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "boolean", "value": 1},
        "value",
    ),
    *bad("1, a string is no number", v1.InitializeRequest, {"protocolVersion": "1"}, "protocolVersion"),
    *bad("1, true is not 1", v1.InitializeRequest, {"protocolVersion": True}, "protocolVersion"),
    *bad("1, 1.0 is no integer", v1.InitializeRequest, {"protocolVersion": 1.0}, "protocolVersion"),
    *bad("1, a number is no string", v1.CancelNotification, {"sessionId": 1}, "sessionId"),
    *bad("1, uint16 ends at 65535", v1.InitializeRequest, {"protocolVersion": 70000}, "protocolVersion"),
    *bad(
        "1, nothing below a minimum",
        v1.ReadTextFileRequest,
        {"sessionId": "s", "path": "/f", "line": -1},
        "line",
    ),
    *bad("1, uint32 ends", v1.ReadTextFileRequest, {"sessionId": "s", "path": "/f", "limit": 2**32}, "limit"),
    *bad(
        "1, uint64 ends",
        v1.CreateTerminalRequest,
        {"sessionId": "s", "command": "c", "outputByteLimit": 2**64},
        "outputByteLimit",
    ),
    *bad(
        "1, a notice has a title",
        v1.SessionNotification,
        update(sessionUpdate="notice", severity="info", title=""),
        "update.title",
    ),
    *bad("3, a required key is missing", v1.PromptRequest, {"prompt": []}, "sessionId"),
    *bad("3, even if it is marked", v1.SessionNotification, update(sessionUpdate="plan"), "update.entries"),
    *bad("3, mcpServers of a new session", v1.NewSessionRequest, {"cwd": "/w"}, "mcpServers"),
    *bad(
        "6, what is not marked for it drops no items",
        v1.RequestPermissionRequest,
        {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": [{"optionId": "o"}]},
        "options[0].name",
    ),
    *bad("7, a missing availableModes", v1.SessionModeState, {"currentModeId": "m"}, "availableModes"),
    *bad("8, protocolVersion", v1.InitializeRequest, {"protocolVersion": None}, "protocolVersion"),
    *bad("8, cwd", v1.NewSessionRequest, {"cwd": 1, "mcpServers": []}, "cwd"),
    *bad("8, prompt", v1.PromptRequest, {"sessionId": "s", "prompt": None}, "prompt"),
    *bad(
        "8, a block of a prompt",
        v1.PromptRequest,
        {"sessionId": "s", "prompt": [TEXT, {"type": "text", "text": 3}]},
        "prompt[1].text",
    ),
    *bad(
        "8, a permission option",
        v1.RequestPermissionRequest,
        {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": [7]},
        "options[0]",
    ),
    *bad("8, stopReason", v1.PromptResponse, {"stopReason": None}, "stopReason"),
    *bad("8, an unknown stopReason", v1.PromptResponse, {"stopReason": "tired"}, "stopReason", ("agent",)),
    *bad("8, the cwd of a list", v1.ListSessionsRequest, {"cwd": 1}, "cwd"),
    *bad("8, the cursor of a list", v1.ListSessionsRequest, {"cursor": {}}, "cursor"),
    *bad(
        "8, constraints of an elicitation",
        v1.CreateElicitationRequest,
        form(p={"type": "string", "minLength": "1"}),
        "requestedSchema.properties.p.minLength",
    ),
    *bad(
        "8, accepted content",
        v1.CreateElicitationResponse,
        {"action": "accept", "content": {"k": {"nested": 1}}},
        "content.k",
    ),
    *bad(
        "11, an unknown update",
        v1.SessionNotification,
        update(sessionUpdate="dream"),
        "update.sessionUpdate",
        ("agent",),
    ),
    *bad(
        "11, an unknown block",
        v1.PromptRequest,
        {"sessionId": "s", "prompt": [{"type": "video"}]},
        "prompt[0].type",
        ("agent",),
    ),
    *bad(
        "11, an unknown outcome is no approval",
        v1.RequestPermissionResponse,
        {"outcome": {"outcome": "approved"}},
        "outcome.outcome",
        ("agent",),
    ),
    *bad(
        "11, a tag is missing",
        v1.SessionNotification,
        {"sessionId": "s", "update": {"content": TEXT}},
        "update.sessionUpdate",
    ),
    *bad("11, a tag is no string", v1.SessionNotification, update(sessionUpdate=5), "update.sessionUpdate"),
    *bad(
        "11, an update is no object", v1.SessionNotification, {"sessionId": "s", "update": "plan"}, "update"
    ),
    *bad("11, the tag of another Struct", v1.TextContent, {"type": "image", "text": "t"}, "type"),
    *bad(
        "12, a boolean without its type",
        v1.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "value": True},
        "value",
    ),
    *bad(
        "12, the pieces must fit",
        v1.PromptRequest,
        {"sessionId": "s", "prompt": [{"type": "resource", "resource": {"uri": "u"}}]},
        "prompt[0].resource.blob",
    ),
    *bad(
        "12, a resource is an object",
        v1.PromptRequest,
        {"sessionId": "s", "prompt": [{"type": "resource", "resource": "u"}]},
        "prompt[0].resource",
    ),
    *bad("13, a known mode with a bad payload", v1.CreateElicitationRequest, FORM, "requestedSchema"),
    *bad(
        "13, a known action with a bad payload",
        v1.CreateElicitationResponse,
        {"action": "accept", "content": 1},
        "content",
    ),
    *bad(
        "13, a known property type with a bad payload",
        v1.CreateElicitationRequest,
        form(p={"type": "array"}),
        "requestedSchema.properties.p.items",
    ),
    *bad("13, a mode is missing", v1.CreateElicitationRequest, {"message": "m"}, "mode"),
    *bad("13, a mode is no string", v1.CreateElicitationRequest, {"mode": 1}, "mode"),
    *bad(
        "13, an elicitation has a scope",
        v1.CreateElicitationRequest,
        {"mode": "url", "message": "m", "elicitationId": "e", "url": "u"},
        "",
    ),
    *bad(
        "18, a bad additional directory",
        v1.NewSessionRequest,
        new_session(additionalDirectories=["/a", 1]),
        "additionalDirectories[1]",
    ),
    *bad(
        "18, additionalDirectories is no list",
        v1.LoadSessionRequest,
        {"sessionId": "s", **new_session(additionalDirectories="/a")},
        "additionalDirectories",
    ),
    *bad("18, mcpServers is no list", v1.NewSessionRequest, new_session(mcpServers={}), "mcpServers"),
    *bad(
        "18, a bad permission option",
        v1.RequestPermissionRequest,
        {
            "sessionId": "s",
            "toolCall": {"toolCallId": "c"},
            "options": [{"optionId": "o", "name": "n", "kind": 3}],
        },
        "options[0].kind",
    ),
    *bad(
        "18, a bad argument of a command",
        v1.CreateTerminalRequest,
        {"sessionId": "s", "command": "c", "args": ["-x", None]},
        "args[1]",
    ),
    *bad("19, an id is no float", v1.CancelRequestNotification, {"requestId": 1.5}, "requestId"),
    *bad("19, an id is no boolean", v1.CancelRequestNotification, {"requestId": True}, "requestId"),
    *bad("19, a null result where something is required", v1.NewSessionResponse, None, ""),
    *bad(
        "20, another method's answer does not fit",
        v1.NewSessionResponse,
        {"stopReason": "end_turn"},
        "sessionId",
    ),
    *bad(
        "client, a known update with a bad payload",
        v1.SessionNotification,
        update(sessionUpdate="agent_message_chunk", content={"type": "text"}),
        "update.content.text",
    ),
    *bad("client, an enumeration is still a string", v1.PromptResponse, {"stopReason": 7}, "stopReason"),
]


@table(("kind", "value", "role", "path"), BAD)
def test_is_refused(kind: type, value: object, role: Role, path: str) -> None:
    with pytest.raises(DecodingError) as caught:
        read(kind, value, role)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: " if path else "expected")
