"""What `coupler exec --format ndjson` tells: every event as one object that the manual describes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import msgspec

from coupler import events
from coupler.cli.exec.exec_output import result_object
from coupler.client.errors import AgentError
from coupler.client.observation import (
    AgentEnded,
    Observation,
    PermissionDecided,
    PromptSent,
    Received,
    SessionOpened,
    ToolFinished,
    TurnFinished,
    observation_object,
)
from coupler.client.policy import Decision
from coupler.client.reply import Reply
from coupler.schema import v1
from tables import table

MANUAL = (Path(__file__).parent.parent.parent / "docs" / "exec.md").read_text()
TEXT = v1.TextContent("hello")
CALL = events.ToolCall(id="c1", title="Read", kind="read", status="completed", raw_input={"path": "/a"})

RECEIVED = [
    (events.Text("a", "m1"), {"event": "text", "text": "a", "message_id": "m1"}),
    (events.Thought("a"), {"event": "thought", "text": "a"}),
    (
        events.Content(TEXT, "user"),
        {"event": "content", "role": "user", "content": {"type": "text", "text": "hello"}},
    ),
    (
        CALL,
        {
            "event": "tool_call",
            "id": "c1",
            "title": "Read",
            "kind": "read",
            "status": "completed",
            "input": {"path": "/a"},
        },
    ),
    (
        events.Plan((v1.PlanEntry("a", "low", "pending"),)),
        {"event": "plan", "entries": [{"content": "a", "priority": "low", "status": "pending"}]},
    ),
    (
        events.Usage(1, 2, v1.Cost(0.5, "EUR")),
        {"event": "usage", "used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "EUR"}},
    ),
    (
        events.Commands((v1.AvailableCommand("a", "b"),)),
        {"event": "commands", "commands": [{"name": "a", "description": "b"}]},
    ),
    (events.Mode("code"), {"event": "mode", "mode": "code"}),
    (events.Options(()), {"event": "options", "options": []}),
    (events.Info(title=None), {"event": "info", "title": None}),
    (events.Notice("info", "a"), {"event": "notice", "severity": "info", "title": "a"}),
    (events.Compaction("x", "completed"), {"event": "compaction", "id": "x", "status": "completed"}),
    (
        events.CompactionSummary("x", TEXT),
        {"event": "compaction_summary", "id": "x", "content": {"type": "text", "text": "hello"}},
    ),
    (events.Other("new", {"a": 1}), {"event": "other", "kind": "new", "update": {"a": 1}}),
    (events.Stop("end_turn"), {"event": "stop", "stop_reason": "end_turn"}),
]
OPTION = v1.PermissionOption("no", "No", "reject_once")
DENIED = Decision(CALL, OPTION, "say yes")
OBSERVED = [
    (SessionOpened("s", "new"), {"event": "session", "session_id": "s", "how": "new"}),
    (PromptSent("s", (TEXT,)), {"event": "prompt", "content": [{"type": "text", "text": "hello"}]}),
    (Received("s", events.Text("a"), late=True), {"event": "text", "text": "a", "late": True}),
    (
        PermissionDecided("s", DENIED),
        {
            "event": "permission",
            "tool_call_id": "c1",
            "title": "Read",
            "kind": "read",
            "allowed": False,
            "option": {"id": "no", "name": "No", "kind": "reject_once"},
        },
    ),
    (AgentEnded("gone"), {"event": "agent_ended", "message": "gone"}),
    (ToolFinished("s", CALL), None),
    (TurnFinished("s", None, AgentError("died", "gone")), None),
]


def encoded(value):
    return json.loads(msgspec.json.encode(value))


@table(("event", "told"), RECEIVED, ids=lambda each: type(each).__name__)
def test_each_event_is_one_object(event, told):
    assert encoded(observation_object(Received("s", event))) == told


@table(("observation", "told"), OBSERVED, ids=lambda each: type(each).__name__)
def test_each_observation_is_one_object_or_told_by_another(observation, told):
    assert encoded(observation_object(observation)) == told


def test_a_tool_of_ours_and_a_turn_are_told():
    assert observation_object(ToolFinished("s", CALL, bridged=True))["bridged"] is True
    turn = observation_object(TurnFinished("s", Reply("a", "refusal")))
    assert (turn["event"], turn["stop_reason"], turn["usage"]["total"]) == ("turn", "refusal", 0)


def test_no_kind_of_event_or_observation_is_left_out_here():
    assert {type(event) for event, _ in RECEIVED} == {*get_args(events.Event)}
    tested = {type(observation) for observation, _ in OBSERVED}
    assert {each for each in get_args(Observation) if each.__module__ == SessionOpened.__module__} == tested


def test_the_manual_describes_every_event_and_every_member_of_the_result():
    described = {*re.findall(r"`(\w+)`", MANUAL)}
    kinds = {told["event"] for _, told in (*RECEIVED, *OBSERVED) if told} - {"stop"}
    members = result_object(Reply("a", "end_turn"), None, session_id="s", exit_code=0).keys()
    assert kinds | {"turn", "result"} | members <= described


def test_a_result_without_a_reply_has_all_members_and_the_error():
    error = AgentError("spawn", "not there", exit_code=3, stderr="last words")
    result = encoded(result_object(None, error, session_id=None, exit_code=9))
    whole = result_object(Reply("a", "end_turn", permissions=(DENIED,)), None, session_id="s", exit_code=0)
    assert result.keys() == whole.keys()
    assert result["error"] == {
        "kind": "spawn",
        "message": "not there",
        "agent_exit_code": 3,
        "agent_stderr": "last words",
    }
    assert encoded(whole["denied"])[0]["remedy"] == "say yes"
