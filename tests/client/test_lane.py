"""The lane between a reader that never waits and a consumer that may: what merges, and what never may."""

from __future__ import annotations

import asyncio
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.stage import run, unhurried
from coupler import AgentError
from coupler.client import prompt as lane_module
from coupler.client.prompt import MERGE_ABOVE, MOST_UNREAD_BYTES, EventQueue
from coupler.events import Event, Mode, Plan, Stop, Text, Thought, ToolCall

ids = st.sampled_from([None, "m1", "m2"])
texts = st.builds(Text, st.text(max_size=4), ids)
thoughts = st.builds(Thought, st.text(max_size=4), ids)
calls = st.builds(
    ToolCall, id=st.sampled_from(["c1", "c2"]), status=st.sampled_from(["pending", "completed"])
)
events = st.lists(st.one_of(texts, thoughts, calls, st.just(Plan(())), st.just(Mode("m"))), max_size=60)


async def drain(lane: EventQueue) -> list[Event]:
    """Everything that is left in an ended lane."""
    found: list[Event] = []
    while (event := await lane.next()) is not None:
        found.append(event)
    return found


def essence(sequence: list[Event]) -> list[object]:
    """What merging must keep: text joined within one message, of a call its last state in a row."""
    kept: list[object] = []
    for key, group in groupby(
        sequence, lambda event: (type(event), getattr(event, "message_id", None), getattr(event, "id", None))
    ):
        row = list(group)
        if key[0] in (Text, Thought):
            kept.append((*key, "".join(event.text for event in row)))  # type: ignore[union-attr]
        else:
            kept.append(row[-1] if key[0] is ToolCall else row)
    return kept


@unhurried
@given(sequence=events, threshold=st.integers(1, 8))
def test_merging_loses_and_reorders_nothing(sequence: list[Event], threshold: int) -> None:
    async def story() -> None:
        lane = EventQueue()
        for event in sequence:
            assert lane.put(event, 1)
        lane.end()
        read = await drain(lane)
        assert essence(read) == essence(sequence)
        # What came last below the threshold is the first that others join.
        assert read[: threshold - 1] == sequence[: threshold - 1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_module, "MERGE_ABOVE", threshold)
        asyncio.run(story())


@unhurried
@given(sequence=events, reads=st.lists(st.booleans(), max_size=60), threshold=st.integers(1, 4))
def test_reading_between_arrivals_changes_nothing_about_that(
    sequence: list[Event], reads: list[bool], threshold: int
) -> None:
    async def story() -> None:
        lane, read = EventQueue(), []
        for number, event in enumerate(sequence):
            lane.put(event, 7)
            if number < len(reads) and reads[number]:
                read.append(await lane.next())
        lane.end()
        read += await drain(lane)
        assert essence(read) == essence(sequence)
        assert lane.unread == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_module, "MERGE_ABOVE", threshold)
        asyncio.run(story())


def test_a_consumer_that_keeps_up_sees_every_piece() -> None:
    async def story() -> None:
        lane = EventQueue()
        for number in range(MERGE_ABOVE):
            lane.put(Text(str(number)), 1)
        lane.end()
        assert len(await drain(lane)) == MERGE_ABOVE

    run(story())


def test_many_unread_pieces_are_few_events() -> None:
    async def story() -> None:
        lane = EventQueue()
        piece = Text("x", "m")
        for _ in range(200_000):
            lane.put(piece, 60)
        lane.end()
        read = await drain(lane)
        assert len(read) == MERGE_ABOVE
        assert sum(len(event.text) for event in read) == 200_000  # type: ignore[union-attr]

    run(story())


def test_text_of_different_messages_and_thoughts_stay_apart() -> None:
    async def story() -> None:
        lane = EventQueue()
        for _ in range(MERGE_ABOVE):
            lane.put(Mode("m"), 1)
        for event in (
            Text("a", "1"),
            Text("b", "1"),
            Text("c", "2"),
            Thought("d", "2"),
            Thought("e"),
            Text("f"),
        ):
            lane.put(event, 1)
        lane.end()
        assert (await drain(lane))[MERGE_ABOVE:] == [
            Text("ab", "1"), Text("c", "2"), Thought("d", "2"), Thought("e"), Text("f"),
        ]  # fmt: skip

    run(story())


def test_over_the_limit_everything_before_is_read_and_then_it_fails() -> None:
    async def story() -> None:
        lane = EventQueue()
        assert lane.put(Text("a"), MOST_UNREAD_BYTES)
        assert not lane.put(Text("b"), 1)
        assert not lane.put(Text("c"), 0)
        lane.end()
        assert await lane.next() == Text("a")
        for _ in range(2):
            with pytest.raises(AgentError) as caught:
                await lane.next()
            assert caught.value.kind == "overflow"

    run(story())


def test_what_was_read_makes_room() -> None:
    async def story() -> None:
        lane = EventQueue()
        for _ in range(5):
            assert lane.put(Text("a"), MOST_UNREAD_BYTES)
            await lane.next()

    run(story())


def test_a_waiting_consumer_is_woken_by_an_event_an_end_and_a_failure() -> None:
    async def story() -> None:
        lane = EventQueue()
        for put in (
            lambda: lane.put(Stop("end_turn"), 1),
            lambda: lane.end(AgentError("died", "gone")),
        ):
            waiting = asyncio.create_task(lane.next())
            await asyncio.sleep(0)
            put()
            [outcome] = await asyncio.gather(waiting, return_exceptions=True)
            assert outcome == Stop("end_turn") or str(outcome) == "gone"

    run(story())


def test_a_consumer_that_was_cancelled_makes_place_for_the_next() -> None:
    async def story() -> None:
        lane = EventQueue()
        waiting = asyncio.create_task(lane.next())
        await asyncio.sleep(0)
        with pytest.raises(AgentError, match="another task"):
            await lane.next()
        waiting.cancel()
        await asyncio.wait([waiting])
        following = asyncio.create_task(lane.next())
        await asyncio.sleep(0)
        lane.put(Text("a"), 1)
        assert await following == Text("a")

    run(story())
