"""Events as JSON: the form of each, and back."""

from __future__ import annotations

import json
from typing import get_args

import msgspec

from coupler.events import Event, Plan, Text, Thought, ToolCall, ToolOutput, ToolUpdate
from coupler.events.events import CANCELLED_META, TurnEnded, TurnUsage
from coupler.events.fold import text_content
from coupler.events.json_form import FORMS, event_in, json_object
from coupler.schema.v1 import Diff, PlanEntry, ToolCallLocation
from coupler.workflow.journal.run_events import SessionEvent
from tables import table

CALL = ToolCall(
    id="c",
    title="Edit",
    kind="edit",
    status="in_progress",
    name="edit",
    content=(Diff("/a", "new", "old"), text_content("t")),
    locations=(ToolCallLocation("/a", 3),),
    raw_input={"path": "a", "lines": 0},
)
UPDATE = ToolUpdate(id="c", status="failed", content=(), raw_output=False, meta=CANCELLED_META)
NEW = PlanEntry("a", "urgent", "shelved")  # type: ignore[arg-type]
USAGE = TurnUsage(input=1, output=2, cached_read=3, total=6, cost=0.5, currency="EUR")

EVENTS = [
    (Text("a", "m"), {"event": "text", "text": "a", "message_id": "m"}),
    (Thought("a"), {"event": "thought", "text": "a"}),
    (
        CALL,
        {
            "event": "tool_call",
            "id": "c",
            "title": "Edit",
            "kind": "edit",
            "status": "in_progress",
            "name": "edit",
            "locations": [{"path": "/a", "line": 3}],
            "content": [
                {"type": "diff", "path": "/a", "newText": "new", "oldText": "old"},
                {"type": "content", "content": {"type": "text", "text": "t"}},
            ],
            "input": {"path": "a", "lines": 0},
        },
    ),
    (
        UPDATE,
        {
            "event": "tool_call_update",
            "id": "c",
            "status": "failed",
            "content": [],
            "output": False,
            "meta": {"coupler": {"outcome": "cancelled"}},
        },
    ),
    (
        ToolOutput("c", text_content("x")),
        {
            "event": "tool_output",
            "id": "c",
            "content": {"type": "content", "content": {"type": "text", "text": "x"}},
        },
    ),
    (
        Plan((NEW,)),
        {"event": "plan", "entries": [{"content": "a", "priority": "urgent", "status": "shelved"}]},
    ),
    (
        TurnEnded("end_turn", USAGE),
        {
            "event": "turn",
            "stop_reason": "end_turn",
            "usage": {
                "input": 1,
                "output": 2,
                "cached_read": 3,
                "cached_write": 0,
                "thought": 0,
                "total": 6,
                "is_estimated": False,
                "context_used": None,
                "context_size": None,
                "cost": 0.5,
                "currency": "EUR",
            },
        },
    ),
]


@table(("event", "told"), EVENTS, ids=lambda each: type(each).__name__)
def test_an_event_of_a_run_has_a_form_and_comes_back(event, told):
    form = json.loads(msgspec.json.encode(json_object(event)))

    assert form == told
    assert event_in(form) == event


def test_every_kind_of_event_has_one_form_and_those_of_runs_are_all_here():
    kinds = [form.kind for form in FORMS]

    assert len(kinds) == len({*kinds}) == len({form.event for form in FORMS})
    assert {*kinds} == {*get_args(Event), *get_args(SessionEvent)}
    assert {type(event) for event, _ in EVENTS} == {*get_args(SessionEvent)}
