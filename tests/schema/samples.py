"""Samples of messages as they come over the wire, for the tests of the decoding rules."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from coupler.schema.decoding import decode

Role = Literal["agent", "client"]
BOTH: tuple[Role, ...] = ("agent", "client")

STDIO: dict[str, Any] = {"name": "s", "command": "/bin/s", "args": [], "env": []}
TEXT: dict[str, Any] = {"type": "text", "text": "hi"}
CHUNK: dict[str, Any] = {"sessionUpdate": "agent_message_chunk", "content": TEXT}
CALL: dict[str, Any] = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t"}
DIFF: dict[str, Any] = {"type": "diff", "path": "/f", "newText": "n"}
FORM: dict[str, Any] = {"mode": "form", "message": "m", "sessionId": "s"}


def new_session(**fields: object) -> dict[str, Any]:
    return {"cwd": "/w", "mcpServers": [], **fields}


def client(**capabilities: object) -> dict[str, Any]:
    return {"protocolVersion": 1, "clientCapabilities": capabilities}


def update(**fields: object) -> dict[str, Any]:
    return {"sessionId": "s", "update": fields}


def form(**properties: object) -> dict[str, Any]:
    return {**FORM, "requestedSchema": {"properties": properties}}


def read(kind: type, value: object, role: Role) -> Any:
    return decode(kind, msgspec.json.encode(value), role)
