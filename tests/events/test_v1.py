"""How version 1 of the protocol spells events, in both directions."""

import json

import msgspec
from msgspec import UNSET, Raw

from coupler import events
from coupler.events import Content, Other, Plan, Text, Thought, ToolCall, ToolUpdate
from coupler.events.v1_codec import from_update, to_update, tool_update_of
from coupler.schema import v1
from coupler.schema.decoding import decode
from schema.conformance import check_frame
from tables import table

TEXT = v1.TextContent("hello")
IMAGE = v1.ImageContent("AAAA", "image/png")
DIFF = v1.Diff("/a", "new", "old")


def received(update):
    """An update as a client gets it."""
    raw = msgspec.json.encode({"sessionId": "s", "update": update})
    return decode(v1.SessionNotification, Raw(raw), "client").update


def sent(event, announced=()):
    """An event as it goes over the wire, checked against the schema."""
    params = json.loads(msgspec.json.encode(v1.SessionNotification("s", to_update(event, announced))))
    check_frame({"jsonrpc": "2.0", "method": "session/update", "params": params}, sent_by="agent")
    return params["update"]


@table(
    "event",
    [
        Text("hello"),
        Text("hello", "m1"),
        Thought("hm"),
        Thought("hm", "m1"),
        Content(IMAGE),
        Content(IMAGE, "thought", "m1"),
        Content(IMAGE, "user", "m1"),
        Content(TEXT, "user"),
        Plan(()),
        Plan((v1.PlanEntry("a", "high", "pending"),)),
    ],
)
def test_what_an_agent_emits_is_what_a_client_receives(event):
    assert from_update(received(sent(event)), {}) == event


class TestToolCalls:
    def test_the_first_update_announces_and_the_next_ones_change(self):
        update = ToolUpdate(id="1", title="Read", kind="read", status="pending", name="read_file")

        assert sent(update) == {
            "sessionUpdate": "tool_call",
            "toolCallId": "1",
            "title": "Read",
            "kind": "read",
            "status": "pending",
            "name": "read_file",
        }
        assert sent(ToolUpdate(id="1", status="completed"), {"1"}) == {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "1",
            "status": "completed",
        }

    def test_everything_of_a_call_survives_the_way(self):
        update = ToolUpdate(
            id="1",
            title="Edit",
            kind="edit",
            status="in_progress",
            content=(DIFF, v1.Content(TEXT)),
            locations=(v1.ToolCallLocation("/a", 3),),
            raw_input={"a": [1]},
            raw_output=None,
            meta={"x": 1},
        )

        call = from_update(received(sent(update)), {})

        assert call == ToolCall(
            id="1",
            title="Edit",
            kind="edit",
            status="in_progress",
            content=(DIFF, v1.Content(TEXT)),
            locations=(v1.ToolCallLocation("/a", 3),),
            raw_input={"a": [1]},
            meta={"x": 1},
        )

    def test_a_change_keeps_what_it_does_not_name(self):
        before = ToolCall(id="1", title="Read", kind="read", content=(v1.Content(TEXT),))

        after = from_update(received(sent(ToolUpdate(id="1", status="failed"), {"1"})), {"1": before})

        assert after == msgspec.structs.replace(before, status="failed")

    def test_a_change_of_an_unknown_call_makes_one(self):
        update = received({"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "Late"})
        assert from_update(update, {}) == ToolCall(id="1", title="Late")

    def test_null_leaves_a_field_as_it_was(self):
        before = ToolCall(id="1", title="Read", content=(v1.Content(TEXT),))
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": None, "content": None}
        assert from_update(received(update), {"1": before}) == before

    def test_an_announcement_begins_anew(self):
        before = ToolCall(id="1", title="Read", status="completed", raw_output=5)
        update = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Again"}
        assert from_update(received(update), {"1": before}) == ToolCall(id="1", title="Again")

    def test_unknown_statuses_and_kinds_survive(self):
        update = {
            "sessionUpdate": "tool_call",
            "toolCallId": "1",
            "title": "T",
            "kind": "dream",
            "status": "paused",
        }
        call = from_update(received(update), {})
        assert (call.kind, call.status, call.is_open) == ("dream", "paused", False)

    def test_a_permission_request_describes_its_call(self):
        asked = v1.PermissionToolCall(
            "1", title="Delete", kind="delete", locations=[v1.ToolCallLocation("/a")]
        )
        assert tool_update_of(asked) == ToolUpdate(
            id="1", title="Delete", kind="delete", locations=(v1.ToolCallLocation("/a"),)
        )

    @table(
        ("status", "is_open"),
        [("pending", True), ("in_progress", True), ("completed", False), ("failed", False)],
    )
    def test_a_call_is_open_until_it_has_ended(self, status, is_open):
        assert ToolCall(id="1", status=status).is_open is is_open

    def test_an_update_says_what_changed_and_nothing_else(self):
        call = ToolCall(id="1", title="Read", raw_input=1)
        assert call.updated(ToolUpdate(id="1")) == call
        assert call.updated(ToolUpdate(id="1", raw_input=None)).raw_input is None


@table(
    ("update", "event"),
    [
        ({"sessionUpdate": "usage_update", "used": 5, "size": 10}, events.Usage(5, 10)),
        (
            {
                "sessionUpdate": "usage_update",
                "used": 5,
                "size": 10,
                "cost": {"amount": 0.5, "currency": "EUR"},
            },
            events.Usage(5, 10, v1.Cost(0.5, "EUR")),
        ),
        ({"sessionUpdate": "usage_update", "used": 5, "size": 10, "cost": None}, events.Usage(5, 10)),
        ({"sessionUpdate": "current_mode_update", "currentModeId": "ask"}, events.Mode("ask")),
        (
            {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [{"name": "a", "description": "b"}],
            },
            events.Commands((v1.AvailableCommand("a", "b"),)),
        ),
        ({"sessionUpdate": "config_option_update", "configOptions": []}, events.Options(())),
        ({"sessionUpdate": "session_info_update", "title": "T"}, events.Info("T")),
        ({"sessionUpdate": "session_info_update", "title": None}, events.Info(None)),
        (
            {"sessionUpdate": "dream_update", "depth": 3},
            Other("dream_update", {"sessionUpdate": "dream_update", "depth": 3}),
        ),
    ],
)
def test_rarer_updates_are_events_too(update, event):
    assert from_update(received(update), {}) == event


@table(
    ("update", "event"),
    [
        (v1.Notice("info", "Title"), events.Notice("info", "Title")),
        (v1.Notice("info", "Title", "More"), events.Notice("info", "Title", "More")),
        (v1.CompactionUpdate("c", "in_progress"), events.Compaction("c", "in_progress")),
        (v1.CompactionUpdate("c", "completed", [TEXT]), events.Compaction("c", "completed", (TEXT,))),
        (v1.CompactionUpdate("c", "completed", []), events.Compaction("c", "completed", None)),
        (v1.CompactionUpdate("c", "completed", None), events.Compaction("c", "completed", None)),
        (v1.CompactionSummaryChunk("c", TEXT), events.CompactionSummary("c", TEXT)),
    ],
)
def test_newer_updates_are_events_too(update, event):
    assert from_update(update, {}) == event


def test_a_message_without_an_id_has_none():
    update = received({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}})
    assert from_update(update, {}) == Text("a", None)
    assert "messageId" not in sent(Text("a"))
    assert UNSET is not None


def test_an_unknown_kind_of_content_survives():
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram", "depth": 3}}
    event = from_update(received(update), {})
    assert isinstance(event, Content)
    assert event.block.tag == "hologram"
