"""The log of a run: its order, what is durable when, and followers that miss nothing and hold up nobody."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from coupler.events import ToolCall
from coupler.store import StoreError
from coupler.store.store import Store
from coupler.workflow.journal import log
from coupler.workflow.journal import log as log_module
from coupler.workflow.journal.run_events import (
    AgentEvent,
    Noted,
    Place,
    RunFinished,
    RunStarted,
    StepStarted,
    Wrote,
    as_line,
    logged_in,
    packed,
    unpacked,
)
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.journal.runs import OpenRun
from store.parts import locked
from tables import table
from workflow.kept_runs import STEP, finished, in_store, new_run, said, started, wrote

END = RunFinished(status="success", exit_code=0)


def stored(store, run):
    """What is in the store, without writing anything first."""
    return [each for entry in store.runs.blocking.entries(run.id) for each in logged_in(entry)]


def texts(told):
    """What each step has said in all."""
    said = {}
    for logged in told:
        if isinstance(logged.happening, AgentEvent | Wrote):
            said[logged.happening.place] = said.get(logged.happening.place, "") + logged.happening.text
    return said


def starts(told):
    """The steps that began, and when in the log."""
    return [(each.seq, each.happening.place) for each in told if isinstance(each.happening, StepStarted)]


async def all_of(run, after=0):
    return [logged async for logged in run.log.follow(after)]


class TestOrder:
    def test_pieces_of_a_text_are_one_row_with_the_number_of_the_last(self):
        async def play(store):
            run = await new_run(store)
            for piece in ("Hel", "lo", " you"):
                run.log.append(said(piece))
            run.log.append(finished())
            await run.log.durable()
            return [(each.seq, each.happening) for each in stored(store, run)]

        assert in_store(play) == [(3, said("Hello you")), (4, finished())]

    def test_texts_of_steps_beside_each_other_gather_on_their_own(self):
        one, other = Place("a"), Place("b")

        async def play(store):
            run = await new_run(store)
            for number in range(3):
                run.log.append(said(f"{number}", one))
                run.log.append(wrote(f"{number}", other))
            await run.log.durable()
            return [each.happening for each in stored(store, run)]

        assert in_store(play) == [said("012", one), wrote("012", other)]

    @table(
        "between",
        [wrote("!", stream="stderr"), said("hm"), Noted(place=STEP, text="a note"), Noted(text="of the run")],
        ids=lambda each: type(each).__name__,
    )
    def test_what_comes_between_two_pieces_stays_between_them(self, between):
        async def play(store):
            run = await new_run(store)
            for happening in (wrote("a"), between, wrote("b")):
                run.log.append(happening)
            await run.log.durable()
            return [each.happening for each in stored(store, run)]

        assert in_store(play) == [wrote("a"), between, wrote("b")]

    def test_an_opened_run_goes_on_with_the_numbers(self):
        async def play(store):
            async with await new_run(store) as run:
                run.log.append(started())
            async with await OpenRun.open(store, run.id, RunSecrets()) as again:
                again.log.append(finished())
                told = await asyncio.wait_for(_first(again.log.follow(), 2), 5)
            return [each.seq for each in told]

        assert in_store(play) == [1, 2]


async def _first(told, count):
    found = []
    async for each in told:
        found.append(each)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} entries")


class TestWhatIsKept:
    @table(
        "value",
        [
            "caf\udce9 \udc80\x00\u2028",
            {"key \udcff": ["\udc80", None, 1.5]},
            2**80,
            [-(2**70), {"a": True}],
            float("inf"),
            "😀",
        ],
    )
    def test_values_come_back_as_they_were(self, value):
        happening = finished(stdout="plain", output=value)

        async def play(store):
            run = await new_run(store)
            run.log.append(happening)
            await run.log.durable()
            return stored(store, run)[0].happening

        assert in_store(play) == happening
        assert unpacked(packed(value)) == value

    def test_a_line_for_programs_has_the_fields_beside_number_and_time(self):
        async def play(store):
            run = await new_run(store)
            run.log.append(wrote("a\udc80"))
            run.log.append(RunStarted(run="r-1", workflow="r"))
            await run.log.durable()
            return [as_line(each) for each in stored(store, run)], stored(store, run)[1].at

        (odd, plain), at = in_store(play)

        assert '"stream":"stdout","text":"a\\udc80"}' in odd
        assert plain == f'{{"seq":2,"at":{at},"event":"run_started","run":"r-1","workflow":"r"}}'


class TestDurable:
    def test_nothing_is_written_before_it_is_due_and_all_of_it_when_it_must_be(self):
        async def play(store):
            run = await new_run(store)
            run.log.append(started())
            before = stored(store, run)
            await run.log.durable()
            return before, len(stored(store, run))

        assert in_store(play) == ([], 1)

    def test_much_text_is_written_at_once(self):
        async def play(store):
            run = await new_run(store)
            run.log.append(said("x" * log_module.FLUSH_AT))
            return len(stored(store, run))

        assert in_store(play) == 1

    def test_little_text_is_written_after_a_while(self, monkeypatch):
        monkeypatch.setattr(log_module, "FLUSH_AFTER", 0.001)

        async def play(store):
            run = await new_run(store)
            run.log.append(said("a word"))
            while not stored(store, run):
                await asyncio.sleep(0)
            return stored(store, run)[0].happening

        assert in_store(play) == said("a word")

    def test_a_locked_file_is_waited_for(self, tmp_path):
        path = str(tmp_path / "coupler.db")

        async def play(store):
            run = await new_run(store)
            with locked(path):
                run.log.append(said("x" * log_module.FLUSH_AT))
                run.log.append(finished())
                waiting = asyncio.create_task(run.log.durable())
                await asyncio.wait([waiting], timeout=0.05)
                was_done = waiting.done()
            await waiting
            return was_done, len(stored(store, run))

        assert in_store(play, path) == (False, 2)

    def test_a_file_that_is_locked_for_longer_than_the_store_waits_is_waited_for(self, monkeypatch):
        async def play(store):
            run = await new_run(store)
            run.log.append(finished())
            write, refusals = store.runs.write, [StoreError("locked", "somebody has it")] * 3

            async def refuse_at_first(*arguments):
                if refusals:
                    raise refusals.pop()
                await write(*arguments)

            monkeypatch.setattr(store.runs, "write", refuse_at_first)
            await run.log.durable()
            return [each.happening for each in stored(store, run)]

        assert in_store(play) == [finished()]

    def test_a_failure_is_told_and_loses_nothing(self, monkeypatch):
        async def play(store):
            run = await new_run(store)
            run.log.append(said("before "))
            run.log.append(finished())
            await _fails(run, store, monkeypatch)
            run.log.append(said("after"))
            await run.log.durable()
            return [each.happening for each in stored(store, run)]

        assert in_store(play) == [said("before "), finished(), said("after")]

    def test_text_that_cannot_be_written_does_not_fill_the_memory(self, monkeypatch):
        monkeypatch.setattr(log_module, "MOST_PENDING", 1000)

        async def play(store):
            run = await new_run(store)
            run.log.append(said("x" * 2000))
            run.log.append(finished())
            await _fails(run, store, monkeypatch)
            await run.log.durable()
            return [each.happening for each in stored(store, run)]

        assert in_store(play) == [finished()]

    def test_the_end_changes_how_the_run_stands_in_the_same_moment(self):
        async def play(store):
            run = await new_run(store)
            run.log.append(RunFinished(status="failed", exit_code=3, message="no \udc80"))
            before = store.runs.blocking.find(run.id)
            await run.log.durable()
            after = store.runs.blocking.find(run.id)
            return before.status, (after.status, after.exit_code, after.message)

        assert in_store(play) == ("running", ("failed", 3, "no ?"))

    def test_nothing_comes_after_the_end(self):
        async def play(store):
            run = await new_run(store)
            run.log.append(END)
            run.log.append(said("late"))
            await run.close()
            return [each.happening for each in stored(store, run)]

        assert in_store(play) == [END]


async def _fails(run, store, monkeypatch):
    with monkeypatch.context() as patched:

        def refuse(*arguments):
            raise StoreError("full", "the disk is full")

        patched.setattr(store._database, "transaction", refuse)
        patched.setattr(store._database, "submit", refuse)
        with pytest.raises(StoreError, match="disk is full"):
            await run.log.durable()


class TestFollowing:
    def test_pieces_arrive_one_by_one_without_being_written(self):
        async def play(store):
            run = await new_run(store)
            told = run.log.follow()
            run.log.append(said("a"))
            first = await anext(told)
            waiting = asyncio.ensure_future(anext(told))
            await asyncio.sleep(0)
            run.log.append(said("b"))
            second = await waiting
            await told.aclose()
            return first.happening, second.happening, stored(store, run)

        assert in_store(play) == (said("a"), said("b"), [])

    @pytest.mark.parametrize("seed", range(8))
    def test_fast_slow_and_late_followers_get_the_same(self, seed, monkeypatch):
        """Those who keep up get pieces, the others joined ones; nobody misses anything or gets it twice."""
        monkeypatch.setattr(log, "MOST_RECENT", 2000)
        chance = random.Random(seed)
        places = [Place("a"), Place("b"), Place("c", 2)]

        async def follower(run, pause):
            told = []
            async for logged in run.log.follow():
                told.append(logged)
                for _ in range(pause(chance)):
                    await asyncio.sleep(0)
            return told

        async def play(store):
            run = await new_run(store)
            paces = (lambda _: 0, lambda chance: chance.randint(0, 40), lambda _: 60)
            followers = [asyncio.create_task(follower(run, pace)) for pace in paces]
            for number in range(600):
                place = chance.choice(places)
                kind = chance.choice([said, wrote, said, wrote, started])
                run.log.append(kind(place=place) if kind is started else kind(f"{number} ", place))
                if chance.random() < 0.1:
                    await run.log.durable()
                if chance.random() < 0.5:
                    await asyncio.sleep(0)
            run.log.append(END)
            told = [await each for each in followers]
            await run.close()
            return [*told, await all_of(run), stored(store, run)]

        everything = in_store(play)

        assert [texts(told) for told in everything] == [texts(everything[0])] * 5
        for told in everything:
            numbers = [each.seq for each in told]
            assert numbers == sorted(set(numbers))
            assert told[-1].happening == END
            assert starts(told) == starts(everything[0])
        assert len(everything[0]) == 601, "who keeps up gets every piece"
        assert len(everything[2]) < 601, "who does not gets them from the store"

    def test_a_follower_that_never_reads_costs_neither_time_nor_memory(self, monkeypatch):
        monkeypatch.setattr(log, "MOST_RECENT", 10_000)

        async def play(store):
            run = await new_run(store)
            told = run.log.follow()
            run.log.append(said("first"))
            await anext(told)
            for _ in range(200):
                run.log.append(said("x" * 1000))
                await run.log.durable()
            kept = sum(batch.size for batch in run.log._recent._batches)
            await told.aclose()
            return kept

        assert in_store(play) < 20_000

    def test_a_follower_that_raises_disturbs_no_other(self):
        async def fail(run):
            async for _ in run.log.follow():
                raise RuntimeError("a front end broke")

        async def play(store):
            run = await new_run(store)
            failing, other = asyncio.create_task(fail(run)), asyncio.create_task(all_of(run))
            for piece in "abc":
                await asyncio.sleep(0)
                run.log.append(said(piece))
            run.log.append(END)
            with pytest.raises(RuntimeError, match="front end broke"):
                await failing
            return len(await other)

        assert in_store(play) == 4

    def test_following_ends_when_the_run_is_left_without_an_end(self):
        async def play(store):
            run = await new_run(store)
            following = asyncio.create_task(all_of(run))
            run.log.append(said("a"))
            await asyncio.sleep(0)
            await run.close()
            return [each.happening for each in await following]

        assert in_store(play) == [said("a")]

    def test_what_an_earlier_process_did_is_followed_past_its_end(self):
        async def play(store):
            async with await new_run(store) as run:
                run.log.append(RunFinished(status="parked", exit_code=5))
            async with await OpenRun.open(store, run.id, RunSecrets()) as again:
                again.log.append(END)
                return [each.happening.status for each in await all_of(again)]

        assert in_store(play) == ["parked", "success"]

    def test_only_what_comes_after_a_number_is_told(self):
        async def play(store):
            run = await new_run(store)
            run.log.append(started())
            run.log.append(finished())
            run.log.append(END)
            return [each.seq for each in await all_of(run, after=2)]

        assert in_store(play) == [3]


class TestSecrets:
    SECRECY = RunSecrets.of({"TOKEN": "hunter2-hunter2"}, {})

    def told_and_stored(self, *happenings):
        async def play(store):
            run = await new_run(store, secrecy=self.SECRECY)
            for happening in happenings:
                run.log.append(happening)
            await run.close()
            return await all_of(run), stored(store, run)

        return in_store(play)

    def test_one_that_is_cut_in_two_is_shown_to_nobody(self):
        told, kept = self.told_and_stored(*map(wrote, ("it is hunter2", "-hun", "ter2, so")), finished())

        assert texts(told) == texts(kept) == {STEP: "it is [secret:TOKEN], so"}
        assert not any("hunter2" in as_line(each) for each in told)

    @pytest.mark.parametrize("last", [finished(), END, None])
    def test_what_looked_like_the_beginning_of_one_is_not_lost(self, last):
        told, kept = self.told_and_stored(wrote("it is hunter"), *([last] if last else []))

        assert texts(told) == texts(kept) == {STEP: "it is hunter"}

    def test_questions_titles_and_inputs_of_tools_are_masked(self):
        told, _ = self.told_and_stored(
            started(),
            AgentEvent(
                place=STEP,
                event=ToolCall(id="c", title="curl hunter2-hunter2", raw_input={"a": ["hunter2-hunter2"]}),
            ),
        )

        assert told[1].happening.event.title == "curl [secret:TOKEN]"
        assert told[1].happening.event.raw_input == {"a": ["[secret:TOKEN]"]}

    def test_results_have_references(self):
        told, _ = self.told_and_stored(finished(stdout="hunter2-hunter2\n"))

        assert told[0].happening.result.stdout == "«secret:TOKEN»\n"


class TestStoredOnce:
    """What a step wrote is stored as it comes, and its result refers to that."""

    SECRET = "hunter2-hunter2"
    LINES = "".join(f"line {number}: ä\U0001f600 of some output\n" for number in range(40_000))

    def kept(self, *happenings, secrecy=None):
        """What a run stores of this, read whole, and how many bytes of it are really there."""

        async def play(store):
            async with await new_run(store, secrecy=secrecy or RunSecrets()) as run:
                for happening in happenings:
                    run.log.append(happening)
            size = store._database.read(
                lambda connection: connection.execute("SELECT sum(length(body)) FROM run_entries").fetchone()
            )
            return [each.happening for each in _whole(store, run)], size[0]

        return in_store(play)

    def test_a_result_costs_little_besides_what_was_written(self):
        out, err, said_text = self.LINES, self.LINES[1000:90_000], self.LINES[:70_000]
        pieces = [wrote(out[n : n + 65_536]) for n in range(0, len(out), 65_536)]
        pieces[3:3] = [wrote(err, stream="stderr")]
        end = finished(stdout=out, stderr=err, text=said_text, output={"n": 1})

        events, size = self.kept(started(), *pieces, said(said_text), end)

        assert events[-1] == end
        assert size < 1.02 * len((out + err + said_text).encode())

    def test_what_is_redacted_differently_is_in_the_result(self):
        secrecy = RunSecrets.of({"TOKEN": self.SECRET}, {})
        out = self.LINES[:300_000] + f"it is {self.SECRET}, and «secret:X»\n" + self.LINES[300_000:]
        pieces = [wrote(out[n : n + 65_536]) for n in range(0, len(out), 65_536)]

        events, size = self.kept(started(), *pieces, finished(stdout=out), secrecy=secrecy)

        assert secrecy.revealed(events[-1]).result.stdout == out
        assert size < 1.1 * len(out.encode())

    @pytest.mark.parametrize("out", ["short\n", "a\udcff" * 4000, ""], ids=["short", "no text", "nothing"])
    def test_what_cannot_be_shared_is_kept_as_well(self, out):
        shown = out.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

        events, _ = self.kept(started(), *([wrote(shown)] if shown else []), finished(stdout=out))

        assert events[-1] == finished(stdout=out)

    def test_an_earlier_attempt_is_not_taken_for_the_last_one(self):
        first, second = "x" * 5000, "y" * 5000

        events, size = self.kept(
            started(), wrote(first), started(attempt=2), wrote(second), finished(stdout=second)
        )

        assert events[-1] == finished(stdout=second)
        assert size < 11_000

    @pytest.mark.parametrize("seed", range(20))
    def test_whatever_is_written_in_whichever_pieces_is_read_as_it_was(self, seed):
        chance = random.Random(seed)
        secrecy = RunSecrets.of({"TOKEN": self.SECRET}, {})
        words = ["x" * 3000, "y" * 3000, self.SECRET, "«secret:TOKEN»", "ä\U0001f600", "\n", "a b c " * 500]
        streams = {"stdout": "", "stderr": ""}
        pieces = []
        for _ in range(chance.randrange(60)):
            stream = chance.choice([*streams])
            text = "".join(chance.choices(words, k=3))[chance.randrange(20) :]
            streams[stream] += text
            pieces.append(wrote(text, stream=stream))
            if chance.random() < 0.2:
                pieces.append(Noted(place=STEP, text="between"))

        end = finished(**streams)
        events, _ = self.kept(started(), *pieces, end, secrecy=secrecy)

        assert secrecy.revealed(events[-1]) == end

    def test_rows_that_a_result_refers_to_are_not_dropped(self, monkeypatch):
        monkeypatch.setattr(log_module, "MOST_PENDING", 1000)
        before, after = said("x" * 3000), wrote("y" * 3000, Place("other"))

        async def play(store):
            run = await new_run(store)
            run.log.append(before)
            run.log.append(finished(text=before.text))
            run.log.append(after)
            await _fails(run, store, monkeypatch)
            run.log.append(finished(Place("other"), stdout=after.text))
            await run.log.durable()
            return [each.happening for each in _whole(store, run)]

        assert in_store(play) == [
            before,
            finished(text=before.text),
            finished(Place("other"), stdout=after.text),
        ]


def _whole(store, run):
    return [each for entry in _all_entries(store, run.id) for each in logged_in(entry)]


def _all_entries(store, id):
    entries = []
    while more := store.runs.blocking.entries(id, entries[-1].seq if entries else 0):
        entries += more
    return entries


def test_a_killed_process_has_lost_nothing_that_was_durable(tmp_path):
    path = str(tmp_path / "coupler.db")
    program = """
import asyncio, os, signal, sys
from coupler.store.store import Store
from workflow.kept_runs import finished, new_run, said

async def main():
    run = await new_run(Store.open(sys.argv[1]))
    run.log.append(said("text"))
    run.log.append(finished(stdout="kept"))
    await run.log.durable()
    print(run.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=20,
    )
    id = ended.stdout.strip()
    store = Store.open(path)
    try:
        found = [each.happening for entry in store.runs.blocking.entries(id) for each in logged_in(entry)]
        assert found == [said("text"), finished(stdout="kept")]
        assert store.runs.blocking.find(id).is_interrupted
    finally:
        store.close()
