"""Events and their spelling in version 1: what an agent says is what a client hears."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from client.stage import unhurried
from coupler.events import Content, Other, Plan, Text, Thought, ToolCall, ToolUpdate
from coupler.events.v1_codec import EmittedEvent, from_update, to_update
from coupler.schema import v1
from coupler.schema.decoding import decode
from schema.conformance import check_frame


def across_the_wire(event: EmittedEvent, known: dict[str, ToolCall] | None = None) -> object:
    """The event as the other side gets it; the frame in between is checked."""
    known = known or {}
    params = msgspec.json.encode(v1.SessionNotification("s", to_update(event, known)))
    frame = {"jsonrpc": "2.0", "method": "session/update", "params": msgspec.json.decode(params)}
    check_frame(frame, sent_by="agent")
    return from_update(decode(v1.SessionNotification, params, "client").update, known)


names = st.text(min_size=1, max_size=8)
message_ids = st.none() | names
chunks = st.builds(Text, st.text(), message_ids) | st.builds(Thought, st.text(), message_ids)
plans = st.builds(
    Plan,
    st.lists(
        st.builds(
            v1.PlanEntry,
            st.text(),
            st.sampled_from(["high", "medium", "low"]),
            st.sampled_from(["pending", "in_progress", "completed"]),
        ),
        max_size=3,
    ).map(tuple),
)


@unhurried
@given(chunks | plans)
def test_messages_and_plans_arrive_as_they_were_said(event: EmittedEvent) -> None:
    assert across_the_wire(event) == event


@pytest.mark.parametrize("role", ["agent", "thought", "user"])
def test_an_image_arrives_with_its_role(role: str) -> None:
    event = Content(v1.ImageContent("AA", "image/png"), role, "m")  # type: ignore[arg-type]
    assert across_the_wire(event) == event


updates = st.builds(
    ToolUpdate,
    id=st.just("c"),
    title=names,
    kind=st.sampled_from(["read", "edit", "other"]) | st.just(UNSET),
    status=st.sampled_from(["pending", "in_progress", "completed", "failed"]) | st.just(UNSET),
    locations=st.just((v1.ToolCallLocation("/a", 3),)) | st.just(UNSET),
    raw_input=st.just(UNSET) | st.integers(0, 9),
    raw_output=st.just(UNSET) | st.lists(st.text(), max_size=2),
)


@unhurried
@given(st.lists(updates, min_size=1, max_size=5))
def test_a_call_has_the_same_state_on_both_sides_after_each_update(changes: list[ToolUpdate]) -> None:
    ours, theirs = ToolCall(id="c"), ToolCall(id="c")
    known: dict[str, ToolCall] = {}
    for change in changes:
        ours = ours.updated(change)
        heard = across_the_wire(change, known)
        assert isinstance(heard, ToolCall)
        known["c"] = theirs = heard
        assert theirs == ours


def test_a_call_is_announced_once_and_updated_from_then_on() -> None:
    update = ToolUpdate(id="c", title="T")
    assert isinstance(to_update(update, ()), v1.ToolCall)
    assert isinstance(to_update(update, {"c"}), v1.ToolCallUpdate)


def test_a_draft_that_has_no_event_yet_is_kept_like_an_unknown_kind() -> None:
    class Draft(v1.Extensible, frozen=True, tag_field="sessionUpdate", tag="draft"):
        text: str

    event = from_update(Draft("x"), {})  # type: ignore[arg-type]
    assert event == Other("draft", {"sessionUpdate": "draft", "text": "x"})
