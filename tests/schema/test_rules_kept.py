"""What is kept of a message that is not quite right, rule by rule.

The rules are numbered as in section 6 of the protocol digest. A case names the part that it looks at.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from coupler.schema import unstable, v1
from coupler.schema.base import Unknown
from schema.samples import BOTH, CALL, CHUNK, DIFF, STDIO, TEXT, Role, client, form, new_session, read, update
from tables import table

SERVER = v1.McpServerStdio("s", "/bin/s", [], [])
SELECT = {"type": "select", "id": "m", "name": "M", "currentValue": "a"}


def good(
    rule: str, kind: type, value: object, part: str, expected: object, roles: tuple[Role, ...] = BOTH
) -> list[Any]:
    return [pytest.param(kind, value, role, part, expected, id=f"rule {rule} ({role})") for role in roles]


def part_of(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        match value:
            case list():
                value = value[int(name)]
            case dict():
                value = value[name]
            case _:
                value = getattr(value, name)
    return value


GOOD = [
    *good(
        "2, unknown keys are tolerated",
        v1.CancelNotification,
        {"sessionId": "s", "later": 1},
        "",
        v1.CancelNotification("s"),
    ),
    *good(
        "3, an absent optional key is unset",
        v1.ListSessionsRequest,
        {},
        "cursor",
        UNSET,
    ),
    *good(
        "3, an absent optional key has its default",
        v1.InitializeRequest,
        {"protocolVersion": 1},
        "client_capabilities",
        v1.ClientCapabilities(),
    ),
    *good(
        "4, a marked value falls back to the schema's default",
        v1.InitializeRequest,
        client(terminal="yes"),
        "client_capabilities.terminal",
        False,
    ),
    *good(
        "4, a marked value without default is unset",
        v1.InitializeRequest,
        {"protocolVersion": 1, "clientInfo": 7},
        "client_info",
        UNSET,
    ),
    *good(
        "4, a required marked array is empty",
        v1.SessionNotification,
        update(sessionUpdate="plan", entries="none"),
        "update.entries",
        [],
    ),
    *good(
        "4, an optional marked array is unset",
        v1.SessionNotification,
        update(**CALL, content="none"),
        "update.content",
        UNSET,
    ),
    *good(
        "4, a chunk's messageId is unset",
        v1.SessionNotification,
        update(**CHUNK, messageId=7),
        "update.message_id",
        UNSET,
    ),
    *good(
        "4, a tool call's kind is other",
        v1.SessionNotification,
        update(**CALL, kind=3),
        "update.kind",
        "other",
    ),
    *good(
        "4, an unknown kind is other",
        v1.SessionNotification,
        update(**CALL, kind="dance"),
        "update.kind",
        "other",
        ("agent",),
    ),
    *good(
        "4, a tool call's status is pending",
        v1.SessionNotification,
        update(**CALL, status=None),
        "update.status",
        "pending",
    ),
    *good(
        "5, a bad three-state value leaves things as they are",
        v1.SessionNotification,
        update(sessionUpdate="session_info_update", title=5),
        "update.title",
        UNSET,
    ),
    *good(
        "5, null clears",
        v1.SessionNotification,
        update(sessionUpdate="session_info_update", title=None),
        "update.title",
        None,
    ),
    *good(
        "6, bad items are dropped",
        v1.SessionNotification,
        update(**CALL, content=[DIFF, 1, {"type": "diff"}]),
        "update.content",
        [v1.Diff("/f", "n")],
    ),
    *good(
        "6, a bad list is the default",
        v1.ListSessionsResponse,
        {"sessions": {"a": 1}},
        "sessions",
        [],
    ),
    *good(
        "7, null mcpServers is an empty list",
        v1.NewSessionRequest,
        new_session(mcpServers=None),
        "mcp_servers",
        [],
    ),
    *good(
        "7, null mcpServers when loading",
        v1.LoadSessionRequest,
        {"sessionId": "s", "cwd": "/w", "mcpServers": None},
        "mcp_servers",
        [],
    ),
    *good("7, null sessions", v1.ListSessionsResponse, {"sessions": None}, "sessions", []),
    *good(
        "7, null availableModes",
        v1.NewSessionResponse,
        {"sessionId": "s", "modes": {"currentModeId": "m", "availableModes": None}},
        "modes.available_modes",
        [],
    ),
    *good(
        "7, null configOptions of an answer",
        v1.SetSessionConfigOptionResponse,
        {"configOptions": None},
        "config_options",
        [],
    ),
    *good(
        "7, null configOptions of an update",
        v1.SessionNotification,
        update(sessionUpdate="config_option_update", configOptions=None),
        "update.config_options",
        [],
    ),
    *good(
        "7, null plan entries",
        v1.SessionNotification,
        update(sessionUpdate="plan", entries=None),
        "update.entries",
        [],
    ),
    *good(
        "7, null availableCommands",
        v1.SessionNotification,
        update(sessionUpdate="available_commands_update", availableCommands=None),
        "update.available_commands",
        [],
    ),
    *good(
        "7, null options of a group",
        v1.SetSessionConfigOptionResponse,
        {"configOptions": [SELECT | {"options": [{"group": "g", "name": "G", "options": None}]}]},
        "config_options.0.options",
        [v1.SessionConfigSelectGroup("g", "G", [])],
    ),
    *good(
        "8, a bad header voids only that server",
        v1.NewSessionRequest,
        new_session(mcpServers=[{"type": "http", "name": "h", "url": "u", "headers": [{"name": 1}]}, STDIO]),
        "mcp_servers",
        [SERVER],
    ),
    *good(
        "8, a bad env entry voids only that server",
        v1.ResumeSessionRequest,
        {"sessionId": "s", "cwd": "/w", "mcpServers": [STDIO | {"env": ["A=1"]}, STDIO]},
        "mcp_servers",
        [SERVER],
    ),
    *good(
        "9, a bad _meta is unset",
        v1.CancelNotification,
        {"sessionId": "s", "_meta": [1]},
        "meta",
        UNSET,
    ),
    *good(
        "9, also deep inside",
        v1.SessionNotification,
        update(**CHUNK | {"content": TEXT | {"_meta": "x"}}),
        "update.content",
        v1.TextContent("hi"),
    ),
    *good(
        "10, a bad leaf keeps its siblings",
        v1.InitializeRequest,
        client(fs={"readTextFile": 1, "writeTextFile": True}, terminal=True),
        "client_capabilities",
        v1.ClientCapabilities(v1.FileSystemCapabilities(False, True), True),
    ),
    *good(
        "11, an unknown variant in a lenient list is dropped",
        v1.SessionNotification,
        update(**CALL, content=[{"type": "hologram"}, DIFF]),
        "update.content",
        [v1.Diff("/f", "n")],
        ("agent",),
    ),
    *good(
        "12, an unknown auth type is agent auth",
        v1.InitializeResponse,
        {"protocolVersion": 1, "authMethods": [{"type": "env_var", "id": "i", "name": "n"}]},
        "auth_methods",
        [v1.AuthMethodAgent("i", "n")],
    ),
    *good(
        "12, an unknown MCP type is stdio",
        v1.NewSessionRequest,
        new_session(mcpServers=[STDIO | {"type": "pipe"}]),
        "mcp_servers",
        [SERVER],
    ),
    *good(
        "12, an odd type with a string is an id",
        v1.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "text", "value": "v"},
        "",
        v1.SetSessionConfigSelectRequest("s", "c", "v"),
    ),
    *good(
        "12, even type boolean with a string is an id",
        v1.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "boolean", "value": "v"},
        "",
        v1.SetSessionConfigSelectRequest("s", "c", "v"),
    ),
    *good(
        "12, type boolean with a boolean",
        v1.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "boolean", "value": True},
        "",
        v1.SetSessionConfigBooleanRequest("s", "c", True),
    ),
    *good(
        "13, an unknown elicitation mode is kept",
        v1.CreateElicitationRequest,
        {"mode": "voice", "message": "m", "x": [1]},
        "",
        v1.OtherElicitationRequest("voice", {"mode": "voice", "message": "m", "x": [1]}),
    ),
    *good(
        "13, an unknown action is kept",
        v1.CreateElicitationResponse,
        {"action": "later"},
        "",
        v1.OtherElicitationResponse("later", {"action": "later"}),
    ),
    *good(
        "13, an unknown property type is kept",
        v1.CreateElicitationRequest,
        form(p={"type": "date", "k": 1}),
        "requested_schema.properties.p",
        v1.OtherPropertySchema("date", {"type": "date", "k": 1}),
    ),
    *good(
        "13, unknown items are kept",
        v1.CreateElicitationRequest,
        form(p={"type": "array", "items": {"type": "number"}}),
        "requested_schema.properties.p.items",
        v1.OtherMultiSelectItems("number", {"type": "number"}),
    ),
    *good(
        "13, an unknown state is kept",
        unstable.SessionNotification,
        update(sessionUpdate="subagent_update", sessionId="t", state={"state": "dreaming"}),
        "update.state",
        unstable.OtherStateUpdate("dreaming", {"state": "dreaming"}),
    ),
    *good(
        "14, an open enumeration keeps any string",
        v1.SessionNotification,
        update(sessionUpdate="notice", severity="fatal", title="t"),
        "update.severity",
        "fatal",
    ),
    *good(
        "15, unset, null and value differ",
        v1.SessionNotification,
        update(sessionUpdate="compaction_update", compactionId="c", status="failed", summary=None, error="e"),
        "update",
        v1.CompactionUpdate("c", "failed", summary=None, error="e", meta=UNSET),
    ),
    *good(
        "16, a default is a typed value",
        v1.InitializeResponse,
        {"protocolVersion": 1, "agentCapabilities": "all"},
        "agent_capabilities.session_capabilities.list",
        UNSET,
    ),
    *good(
        "18, a bad MCP entry is dropped",
        v1.NewSessionRequest,
        new_session(mcpServers=[STDIO, {"name": "x"}, 7]),
        "mcp_servers",
        [SERVER],
    ),
    *good(
        "18, also when loading",
        v1.LoadSessionRequest,
        {"sessionId": "s", **new_session(mcpServers=[7, STDIO])},
        "mcp_servers",
        [SERVER],
    ),
    *good(
        "18, also when forking",
        unstable.ForkSessionRequest,
        {"sessionId": "s", "cwd": "/w", "mcpServers": [7, STDIO]},
        "mcp_servers",
        [SERVER],
    ),
    *good(
        "18, null additionalDirectories",
        v1.NewSessionRequest,
        new_session(additionalDirectories=None),
        "additional_directories",
        [],
    ),
    *good(
        "19, an id keeps value and type",
        v1.CancelRequestNotification,
        {"requestId": "7"},
        "request_id",
        "7",
    ),
    *good(
        "19, an id may be null",
        v1.CancelRequestNotification,
        {"requestId": None},
        "request_id",
        None,
    ),
    *good(
        "19, a null result is an empty object",
        v1.WriteTextFileResponse,
        None,
        "",
        v1.WriteTextFileResponse(),
    ),
    *good(
        "20, an answer is read as its method's result",
        v1.LoadSessionResponse,
        {"sessionId": "s"},
        "",
        v1.LoadSessionResponse(),
    ),
    *good(
        "client, an unknown update is kept",
        v1.SessionNotification,
        update(sessionUpdate="dream", x={"y": 1}),
        "update",
        Unknown("dream", {"sessionUpdate": "dream", "x": {"y": 1}}),
        ("client",),
    ),
    *good(
        "client, an unknown content type is kept",
        v1.SessionNotification,
        update(**CHUNK | {"content": {"type": "video", "u": 1}}),
        "update.content",
        Unknown("video", {"type": "video", "u": 1}),
        ("client",),
    ),
    *good(
        "client, an unknown tool content is kept",
        v1.SessionNotification,
        update(**CALL, content=[{"type": "chart"}, DIFF]),
        "update.content",
        [Unknown("chart", {"type": "chart"}), v1.Diff("/f", "n")],
        ("client",),
    ),
    *good(
        "client, an unknown config option is kept",
        v1.SetSessionConfigOptionResponse,
        {"configOptions": [{"type": "slider", "id": "i"}]},
        "config_options",
        [Unknown("slider", {"type": "slider", "id": "i"})],
        ("client",),
    ),
    *good(
        "client, an unknown stop reason is kept",
        v1.PromptResponse,
        {"stopReason": "tired"},
        "stop_reason",
        "tired",
        ("client",),
    ),
    *good(
        "client, an unknown tool status and kind are kept",
        v1.SessionNotification,
        update(**CALL, status="cancelled", kind="dance"),
        "update",
        v1.ToolCall("c", "t", status="cancelled", kind="dance"),  # type: ignore[arg-type]
        ("client",),
    ),
    *good(
        "client, unknown plan words are kept",
        v1.SessionNotification,
        update(sessionUpdate="plan", entries=[{"content": "c", "priority": "urgent", "status": "cancelled"}]),
        "update.entries",
        [v1.PlanEntry("c", "urgent", "cancelled")],  # type: ignore[arg-type]
        ("client",),
    ),
    *good(
        "agent, unknown plan words drop the entry",
        v1.SessionNotification,
        update(sessionUpdate="plan", entries=[{"content": "c", "priority": "urgent", "status": "pending"}]),
        "update.entries",
        [],
        ("agent",),
    ),
    *good(
        "override, any string is a format",
        v1.CreateElicitationRequest,
        form(p={"type": "string", "format": "zip"}),
        "requested_schema.properties.p.format",
        "zip",
    ),
]


@table(("kind", "value", "role", "part", "expected"), GOOD)
def test_is_read(kind: type, value: object, role: Role, part: str, expected: object) -> None:
    found = part_of(read(kind, value, role), part)
    assert found == expected
    assert type(found) is type(expected)
    assert getattr(found, "tag", None) == getattr(expected, "tag", None)


def test_rule_17_what_is_unset_is_omitted_and_what_is_null_is_sent() -> None:
    changed = v1.SessionInfoUpdate(title=None)
    assert msgspec.json.encode(changed) == b'{"sessionUpdate":"session_info_update","title":null}'
    assert msgspec.json.encode(v1.WriteTextFileResponse()) == b"{}"


@pytest.mark.parametrize("role", BOTH)
def test_every_dropped_item_is_a_warning_and_every_default_a_debug_line(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="coupler.schema")
    damaged = new_session(mcpServers=[7, {"name": "x"}], additionalDirectories=None, _meta=1)
    read(v1.NewSessionRequest, damaged, role)
    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("DEBUG", "additionalDirectories: got null; the default is used"),
        ("DEBUG", "_meta: expected an object, got a number; the default is used"),
        ("WARNING", "mcpServers[0]: expected an object, got a number; the item is dropped"),
        ("WARNING", "mcpServers[1].command: is required; the item is dropped"),
    ]
