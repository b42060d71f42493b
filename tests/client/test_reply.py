"""How pieces become a reply: messages whole and apart, calls in their last state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from client.stage import unhurried
from coupler.client.reply import Reply, ReplyBuilder
from coupler.events import Content, Event, Mode, Plan, Stop, Text, Thought, ToolCall, Usage
from coupler.schema.v1 import PlanEntry, TextContent
from tables import table


def reply_of(*events: Event) -> Reply:
    progress = ReplyBuilder()
    for event in events:
        progress.add(event)
    return progress.finished(Stop("end_turn"))


TOOL = ToolCall(id="c")


@table(
    ("pieces", "text"),
    [
        ([], ""),
        ([Text("a"), Text("b")], "ab"),
        ([Text("a", "1"), Text("b", "1"), Text("c", "2")], "ab\n\nc"),
        ([Text("a"), TOOL, Text("b")], "a\n\nb"),
        ([Text("a", "1"), TOOL, Text("b", "1")], "ab"),
        ([TOOL, Text("a"), TOOL, TOOL], "a"),
        ([Text("a", "1"), Text("b"), Text("c", "1")], "abc"),
        ([Text("a"), Text("b", "1"), Text("c")], "a\n\nbc"),
        ([Text("a"), Thought("t"), Text("b")], "ab"),
        ([Text("a"), Plan(()), Mode("m"), Content(TextContent("u"), "user"), Text("b")], "ab"),
        ([Text(""), Text("a")], "a"),
        ([Text(""), TOOL, Text("a")], "a"),
        ([Text("", "1"), Text("a", "2"), Text("", "3")], "a"),
        ([Text("a"), TOOL, Text(""), TOOL, Text("b")], "a\n\nb"),
    ],
)
def test_messages_are_set_apart_by_blank_lines(pieces: list[Event], text: str) -> None:
    assert reply_of(*pieces).text == text


@table(
    ("pieces", "thoughts"),
    [
        ([Thought("a"), Thought("b")], "ab"),
        ([Thought("a"), Text("x"), Thought("b")], "a\n\nb"),
        ([Thought("a"), TOOL, Thought("b")], "a\n\nb"),
        ([Thought("a", "1"), Text("x"), Thought("b", "1")], "ab"),
    ],
)
def test_thoughts_are_set_apart_by_what_comes_between(pieces: list[Event], thoughts: str) -> None:
    assert reply_of(*pieces).thoughts == thoughts


def test_the_last_plan_usage_and_state_of_each_call_count() -> None:
    entry = PlanEntry("x", "high", "completed")
    reply = reply_of(
        Plan((PlanEntry("x", "high", "pending"),)),
        ToolCall(id="b"),
        ToolCall(id="a"),
        Usage(1, 10),
        Plan((entry,)),
        ToolCall(id="b", status="failed"),
        Usage(2, 10),
    )
    assert reply.plan == (entry,)
    assert (reply.usage.context_used, reply.usage.context_size) == (2, 10)
    assert reply.tool_calls == (ToolCall(id="b", status="failed"), ToolCall(id="a"))


@unhurried
@given(st.lists(st.tuples(st.text(alphabet="abc", max_size=3), st.sampled_from([None, "1", "2"]))))
def test_no_text_is_ever_lost(pieces: list[tuple[str, str | None]]) -> None:
    reply = reply_of(*(Text(text, id) for text, id in pieces))
    assert reply.text.replace("\n\n", "") == "".join(text for text, _ in pieces)
