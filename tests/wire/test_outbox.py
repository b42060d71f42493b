"""Who is written first, and who has to wait."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from coupler.wire.outbox import ANSWERS, BUDGET, CHUNK, LEAST_SHARE, QUANTUM, Outbox
from wire.stage import run, ticks


def take_all(outbox: Outbox) -> list[bytes]:
    """Every line, in the order in which it goes out."""
    taken = b""
    while outbox.unsent:
        taken += outbox.take()
    assert outbox.take() == b""
    return taken.splitlines()


def line(name: str, size: int = 0) -> bytes:
    return name.encode().ljust(max(size - 1, len(name)), b".") + b"\n"


def names(lines: list[bytes]) -> list[str]:
    return [each.rstrip(b".").decode() for each in lines]


def test_an_empty_outbox_gives_nothing() -> None:
    outbox = Outbox()
    assert (outbox.take(), outbox.unsent) == (b"", 0)


def test_control_goes_before_every_lane() -> None:
    outbox = Outbox()
    outbox.put(line("a1"), "a")
    outbox.put(line("b1"), "b")
    outbox.put(line("control1"))
    outbox.put(line("control2"))
    assert names(take_all(outbox)) == ["control1", "control2", "a1", "b1"]


def test_answers_of_no_session_delay_a_lane_by_one_turn_only() -> None:
    outbox = Outbox()
    for number in range(10_000):
        outbox.put(line(f"answer{number}", 1000), ANSWERS)
    outbox.put(line("a1"), "a")
    assert names(outbox.take().splitlines()).index("a1") <= QUANTUM // 1000 + 1


def test_answers_of_no_session_are_not_held_back_with_the_lanes() -> None:
    outbox = Outbox()
    outbox.put(line("a1"), "a")
    outbox.put(line("answer1"), ANSWERS)
    outbox.put(line("control1"))
    assert (outbox.has_control, outbox.take(only_control=True)) == (True, b"control1\nanswer1\n")
    assert (outbox.has_control, outbox.take(only_control=True), outbox.take()) == (False, b"", b"a1\n")


def test_lanes_take_turns_of_one_quantum() -> None:
    outbox = Outbox()
    for number in range(4):
        outbox.put(line(f"a{number}", QUANTUM // 2), "a")
    for number in range(2):
        outbox.put(line(f"b{number}", QUANTUM // 2), "b")
    outbox.put(line("c0"), "c")
    assert names(take_all(outbox)) == ["a0", "a1", "b0", "b1", "c0", "a2", "a3"]


def test_a_chatty_lane_delays_another_by_one_turn_only() -> None:
    # given a lane with 10 MB to say
    outbox = Outbox()
    for number in range(10_000):
        outbox.put(line(f"a{number}", 1000), "a")
    outbox.take()
    # when another has a word
    outbox.put(line("b"), "b")
    # then it goes out within the next chunk
    assert b"b\n" in outbox.take()


def test_a_lane_that_was_empty_comes_back_at_the_end_of_the_row() -> None:
    outbox = Outbox()
    outbox.put(line("a1"), "a")
    assert outbox.take() == b"a1\n"
    outbox.put(line("b1"), "b")
    outbox.put(line("a2"), "a")
    assert names(take_all(outbox)) == ["b1", "a2"]


def test_one_take_is_about_one_chunk_of_whole_frames() -> None:
    outbox = Outbox()
    for number in range(200):
        outbox.put(line(f"a{number}", 1000), "a")
        outbox.put(line(f"control{number}", 1000))
    total = outbox.unsent
    taken = outbox.take()
    assert CHUNK <= len(taken) < CHUNK + QUANTUM
    assert taken.endswith(b"\n")
    assert outbox.unsent == total - len(taken)


def test_a_frame_larger_than_everything_goes_out_in_one_piece() -> None:
    outbox = Outbox()
    huge = line("huge", 10 * CHUNK)
    outbox.put(huge, "a")
    outbox.put(line("b"), "b")
    assert outbox.take() == huge
    assert outbox.take() == b"b\n"


def test_a_lane_has_the_whole_budget_to_itself() -> None:
    outbox = Outbox()
    assert outbox.put(line("a", BUDGET - 1), "a")
    assert outbox.has_room("a")
    assert not outbox.put(b"\n", "a")
    assert not outbox.has_room("a")
    assert outbox.has_room("b")


def test_lanes_share_the_budget_down_to_a_least_share() -> None:
    outbox = Outbox()
    for lane in range(4):
        outbox.put(line("x", BUDGET // 4), lane)
    assert not outbox.has_room(0)
    for lane in range(1000):
        outbox.put(b"\n", f"other{lane}")
    assert outbox.put(line("y", LEAST_SHARE - 2), "other0")
    assert outbox.has_room("other0")
    assert not outbox.put(b"\n", "other0")
    assert not outbox.has_room("other0")


def test_a_lane_has_more_room_when_others_are_done() -> None:
    outbox = Outbox()
    for _ in range(BUDGET // 2048):
        outbox.put(line("x", 1024), "a")
    for lane in range(7):
        outbox.put(b"\n", lane)
    assert not outbox.has_room("a")
    outbox.take()
    assert outbox.unsent > BUDGET // 8
    assert outbox.has_room("a")


def test_control_always_has_room() -> None:
    outbox = Outbox()
    assert outbox.put(line("x", 10 * BUDGET))
    assert outbox.has_room(None)
    run(outbox.wait_for_room(None))


def test_a_writer_waits_until_its_lane_has_gone_out_far_enough() -> None:
    async def test() -> None:
        outbox = Outbox()
        for _ in range(BUDGET // 1024):
            outbox.put(line("x", 1024), "a")
        outbox.put(line("x", 1024), "a")
        waiting = [asyncio.create_task(outbox.wait_for_room("a")) for _ in range(3)]
        await ticks()
        assert not any(task.done() for task in waiting)
        outbox.take()
        await asyncio.gather(*waiting)
        assert outbox.has_room("a")

    run(test())


def test_a_writer_goes_on_when_the_last_frame_of_its_lane_is_gone() -> None:
    async def test() -> None:
        outbox = Outbox()
        outbox.put(line("x", BUDGET), "a")
        waiting = asyncio.create_task(outbox.wait_for_room("a"))
        await ticks()
        outbox.take()
        await waiting

    run(test())


def test_a_writer_who_finds_no_room_after_waiting_waits_again() -> None:
    async def test() -> None:
        outbox = Outbox()
        outbox.put(line("x", BUDGET), "a")
        waiting = asyncio.create_task(outbox.wait_for_room("a"))
        await ticks()
        outbox.take()
        outbox.put(line("y", BUDGET), "a")
        await ticks()
        assert not waiting.done()
        outbox.take()
        await waiting

    run(test())


def test_a_writer_who_gave_up_keeps_nobody_from_going_on() -> None:
    async def test() -> None:
        outbox = Outbox()
        outbox.put(line("x", BUDGET), "a")
        patient, impatient = (asyncio.create_task(outbox.wait_for_room("a")) for _ in range(2))
        await ticks()
        impatient.cancel()
        await ticks()
        assert impatient.cancelled()
        outbox.take()
        await patient

    run(test())


def test_clearing_forgets_all_frames_and_releases_all_writers() -> None:
    async def test() -> None:
        outbox = Outbox()
        outbox.put(line("control"))
        for lane in ("a", "b"):
            outbox.put(line("x", BUDGET), lane)
        waiting = [asyncio.create_task(outbox.wait_for_room(lane)) for lane in ("a", "b", "b")]
        await ticks()
        outbox.clear()
        await asyncio.gather(*waiting)
        assert (outbox.unsent, outbox.take()) == (0, b"")
        outbox.put(line("later"), "a")
        assert outbox.take() == b"later\n"

    run(test())


LANES = st.sampled_from([None, "a", "b", "c"])
SIZES = st.sampled_from([0, 100, QUANTUM - 1, QUANTUM, CHUNK, 3 * CHUNK])


@given(st.lists(st.one_of(st.tuples(LANES, SIZES), st.just("take")), max_size=80))
def test_frames_of_one_lane_keep_their_order_and_none_is_lost(
    steps: list[tuple[str | None, int] | str],
) -> None:
    # given frames put and taken in any order
    outbox = Outbox()
    put: dict[str | None, list[str]] = {}
    taken = b""
    for number, step in enumerate(steps):
        if isinstance(step, str):
            taken += outbox.take()
        else:
            lane, size = step
            outbox.put(line(f"{lane}-{number}", size), lane)
            put.setdefault(lane, []).append(f"{lane}-{number}")
    # when the rest goes out
    seen = names(taken.splitlines() + take_all(outbox))
    # then every lane reads as it was written
    assert {lane: [name for name in seen if name.startswith(f"{lane}-")] for lane in put} == put
    assert len(seen) == sum(map(len, put.values()))
    assert outbox.unsent == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([10, 1000, QUANTUM])), min_size=1, max_size=200
    )
)
def test_a_lane_is_never_passed_over_twice_by_another(frames: list[tuple[str, int]]) -> None:
    # given three lanes, everything queued
    outbox = Outbox()
    for lane, size in frames:
        outbox.put(line(lane, size), lane)
    # when one lane's first frame waits
    waiting = set("abc") & {lane for lane, _ in frames}
    seen: list[bytes] = take_all(outbox)
    # then before it no other lane has written more than its turn
    for lane in waiting:
        before = seen[: [each[:1].decode() for each in seen].index(lane)]
        for other in waiting - {lane}:
            sizes = [len(each) + 1 for each in before if each[:1].decode() == other]
            assert sum(sizes) < 2 * QUANTUM
