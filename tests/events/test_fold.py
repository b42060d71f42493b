"""What events add up to: messages, tool calls, compactions, and turns."""

from __future__ import annotations

import msgspec

from coupler.events import (
    Compaction,
    CompactionSummary,
    Plan,
    Text,
    ToolCall,
    ToolOutput,
    ToolUpdate,
)
from coupler.events.fold import (
    INTERRUPTED,
    Messages,
    NoContent,
    ToolCalls,
    TurnEvents,
    WholeContent,
    text_content,
)
from coupler.schema.v1 import Diff, TextContent
from tables import table

DIFF = Diff("/a", "new")


def told(call: ToolCall) -> list[object]:
    """The content of a call: texts as texts."""
    return [
        item.content.text if isinstance(getattr(item, "content", None), TextContent) else item
        for item in call.content
    ]


@table(
    ("pieces", "text"),
    [
        ([("a", None), ("b", None)], "ab"),
        ([("a", "m1"), ("b", "m1"), ("c", "m2")], "ab\n\nc"),
        ([("a", None), None, ("b", None)], "a\n\nb"),
        ([("a", "m1"), None, ("b", "m1")], "ab"),
        ([("a", "m1"), ("b", None), ("c", "m1")], "abc"),
        ([("a", None), ("b", "m1"), None, ("c", None)], "a\n\nb\n\nc"),
    ],
)
def test_messages_of_one_reply_are_parted_by_blank_lines(pieces, text):
    messages = Messages()
    found = []

    for piece in pieces:
        if piece is None:
            messages.interrupt()
        else:
            found.append(messages.add(Text(*piece)))

    assert messages.joined() == "".join(found) == text


def test_a_call_is_announced_changed_shown_and_ended():
    calls = ToolCalls(WholeContent)

    calls.take(ToolUpdate(id="c", title="Read", status="in_progress"))
    for text in ("one ", "two"):
        calls.take(ToolOutput("c", text_content(text)))
    calls.take(ToolOutput("c", DIFF))
    calls.take(ToolOutput("c", text_content("reason"), apart=True))
    folded = calls.take(ToolUpdate(id="c", status="completed"))

    assert not folded.is_open
    assert (folded.whole().title, folded.whole().status) == ("Read", "completed")
    assert told(folded.whole()) == ["one two", DIFF, "reason"]


def test_content_that_is_given_whole_takes_the_place_of_all_and_goes_on():
    calls = ToolCalls(WholeContent)
    calls.take(ToolCall(id="c", content=(text_content("old"),)))

    calls.take(ToolUpdate(id="c", content=(DIFF, text_content("new"))))
    folded = calls.take(ToolOutput("c", text_content("more")))

    assert told(folded.whole()) == [DIFF, "new", "more"]


def test_a_follower_that_shows_no_content_holds_none():
    folded = ToolCalls(NoContent).take(ToolCall(id="c", title="t", content=(text_content("long"),)))

    assert (folded.whole().title, folded.whole().content, folded.call.content) == ("t", (), ())


def test_a_turn_has_its_events_where_they_began_and_as_they_are_last():
    turn = TurnEvents(WholeContent)
    plan = Plan(())
    for at, event in enumerate(
        [
            Compaction("k", "in_progress"),
            ToolUpdate(id="c", title="a"),
            Text("hi"),
            CompactionSummary("k", TextContent("short")),
            plan,
            ToolUpdate(id="c", title="b", status="completed"),
            Compaction("k", "completed"),
        ]
    ):
        turn.add(event, at)

    assert [(at, type(event).__name__) for at, event in turn.entries()] == [
        (0, "Compaction"),
        (1, "ToolCall"),
        (2, "Text"),
        (4, "Plan"),
    ]
    (_, compaction), (_, call), *_ = turn.entries()
    assert (compaction.status, compaction.summary) == ("completed", (TextContent("short"),))
    assert (call.title, call.status) == ("b", "completed")


def test_what_is_open_when_nothing_more_is_heard_has_failed():
    turn = TurnEvents(WholeContent)
    for event in (ToolUpdate(id="c"), ToolUpdate(id="d", status="completed"), Compaction("k", "in_progress")):
        turn.add(event)

    turn.interrupt()

    (_, open_call), (_, ended_call), (_, compaction) = turn.entries()
    assert (open_call.status, told(open_call)) == ("failed", [INTERRUPTED])
    assert (ended_call.status, told(ended_call)) == ("completed", [])
    assert compaction == msgspec.structs.replace(compaction, status="failed", error=INTERRUPTED)
