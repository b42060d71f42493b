"""The frame checker that other layers' tests rely on: what it lets pass and what it stops."""

from __future__ import annotations

from typing import Any

import pytest

from schema.conformance import Id, check_frame
from tables import table

UPDATE = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}}
METHOD_OF: dict[Id, str] = {1: "initialize", "a": "session/prompt", 3: "_acme/x", 4: "fs/write_text_file"}


def frame(**fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **fields}


@table(
    ("sent", "sent_by"),
    [
        (frame(id=0, method="initialize", params={"protocolVersion": 1}), "client"),
        (frame(id=0, method="logout"), "client"),
        (frame(method="session/cancel", params={"sessionId": "s"}), "client"),
        (frame(method="session/update", params={"sessionId": "s", "update": UPDATE}), "agent"),
        (frame(id="x", method="fs/read_text_file", params={"sessionId": "s", "path": "/f"}), "agent"),
        (frame(method="$/cancel_request", params={"requestId": None}), "agent"),
        (frame(method="$/cancel_request", params={"requestId": 5}), "client"),
        (frame(method="$/progress", params=[1]), "agent"),
        (frame(id=9, method="_acme/x", params={"any": "thing"}), "client"),
        (frame(method="_acme/y"), "agent"),
        (frame(id=1, result={"protocolVersion": 1}), "agent"),
        (frame(id="a", result={"stopReason": "cancelled"}), "agent"),
        (frame(id=3, result=[1, 2]), "agent"),
        (frame(id=4, result={}), "client"),
        (frame(id="a", error={"code": -32800, "message": "cancelled", "data": 1}), "agent"),
        (frame(id=None, error={"code": -32700, "message": "no JSON"}), "agent"),
    ],
)
def test_a_proper_frame_passes(sent: dict[str, Any], sent_by: Any) -> None:
    check_frame(sent, sent_by=sent_by, method_of=METHOD_OF)


@table(
    ("sent", "sent_by", "reason"),
    [
        ([], "client", "an object"),
        ({"id": 0, "method": "logout"}, "client", "jsonrpc"),
        (frame(id=0, method="logout", extra=1), "client", "extra"),
        (frame(id=1.5, method="logout"), "client", "not an id"),
        (frame(id=True, method="logout"), "client", "not an id"),
        (frame(id=0, method=7), "client", "not a method"),
        (frame(id=0, method="logout", result={}), "client", "both"),
        (frame(id=0, method="session/nap"), "client", "no request session/nap"),
        (frame(id=0, method="logout"), "agent", "no request logout"),
        (frame(method="logout"), "client", "no notification logout"),
        (frame(id=0, method="session/cancel", params={"sessionId": "s"}), "client", "no request"),
        (frame(id=0, method="session/prompt", params={"sessionId": "s"}), "client", "prompt"),
        (frame(id=0, method="initialize", params={"protocolVersion": 70000}), "client", "70000"),
        (
            frame(id=0, method="fs/read_text_file", params={"sessionId": "s", "path": "/", "line": 2**32}),
            "agent",
            "uint32",
        ),
        (frame(id=0, method="$/progress"), "agent", "only be a notification"),
        (frame(method="_acme/x", params="text"), "agent", "neither"),
        (frame(), "agent", "neither"),
        (frame(id=1), "agent", "a result or an error"),
        (frame(id=1, result={}, error={"code": 1, "message": "m"}), "agent", "a result or an error"),
        (frame(id=1, result={"protocolVersion": "1"}), "agent", "InitializeResponse"),
        (frame(id=1, result={"protocolVersion": 1}), "client", "not answered by the client"),
        (frame(id=4, result=None), "client", "WriteTextFileResponse"),
        (frame(id="1", result={}), "agent", "answers nothing"),
        (frame(id=7, error={"code": 1, "message": "m"}), "agent", "answers nothing"),
        (frame(id=1, error={"code": 1}), "agent", "Error"),
        (frame(id=1, error={"code": 2**31, "message": "m"}), "agent", "Error"),
    ],
)
def test_an_improper_frame_is_stopped(sent: Any, sent_by: Any, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_frame(sent, sent_by=sent_by, method_of=METHOD_OF)


def test_drafts_pass_only_when_asked_for() -> None:
    removed = frame(
        method="session/update",
        params={"sessionId": "s", "update": {"sessionUpdate": "plan_removed", "planId": "p"}},
    )
    check_frame(removed, sent_by="agent", unstable=True)
    with pytest.raises(AssertionError):
        check_frame(removed, sent_by="agent")
