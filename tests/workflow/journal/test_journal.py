"""What a resumed run finds of what was done, and that only one process can resume it."""

import pytest
from msgspec import UNSET

from coupler.workflow.errors import RunError
from coupler.workflow.journal.run_events import Decided, Failure, Place, Result, RunFinished, RunResumed
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.journal.runs import (
    OpenRun,
    end_unheld,
    find_run,
    new_run_id,
    recorded_inputs,
    recorded_sources,
    resolve_run_id,
)
from tables import table
from workflow.kept_runs import WORKFLOW, finished, in_store, new_run, said, started

FAILED = Failure(kind="exit", message="no")
A, B, INNER = Place("a"), Place("b"), Place("b[0].c")


def resumed(*noted, look, secrecy=None, later=()):
    """What `look` sees in the journal of a run that was left, and opened again; `later` is noted before."""

    async def play(store):
        async with await new_run(store, secrecy=secrecy or RunSecrets()) as run:
            for happening in noted:
                run.journal.note(happening)
        async with await OpenRun.open(store, run.id, secrecy or RunSecrets()) as again:
            for happening in later:
                again.journal.note(happening)
            return look(again.journal)

    return in_store(play)


class TestResults:
    def test_what_is_over_is_found_under_its_path_and_visit(self):
        def look(journal):
            return [journal.result(place) for place in (A, Place("a", 2), B)]

        noted = (
            started(A),
            finished(A, text="one"),
            started(Place("a", 2)),
            finished(Place("a", 2), text="two"),
        )

        assert resumed(*noted, look=look) == [
            Result(status="success", text="one"),
            Result(status="success", text="two"),
            None,
        ]

    def test_what_was_cancelled_is_to_be_done_again(self):
        def look(journal):
            return journal.result(A), journal.cancelled(A), journal.cancelled(B)

        noted = (finished(A, "cancelled", text="half"), finished(B))

        assert resumed(*noted, look=look) == (None, Result(status="cancelled", text="half"), None)

    def test_the_last_decision_of_a_name_counts(self):
        def look(journal):
            return journal.decision(A, "items"), journal.decision(A, "winner"), journal.decision(B, "items")

        noted = [Decided(place=A, what="items", value=value) for value in ([1], None)]

        assert resumed(*noted, look=look) == (None, UNSET, UNSET)

    def test_what_is_noted_now_is_found_at_once(self):
        async def play(store):
            async with await new_run(store) as run:
                run.journal.note(finished(A, text="now"))
                run.journal.note(Decided(place=A, what="items", value=[1]))
                return run.journal.result(A).text, run.journal.decision(A, "items")

        assert in_store(play) == ("now", [1])


class TestForgetting:
    NOTED = (
        started(A),
        finished(A),
        started(B),
        Decided(place=B, what="items", value=[1]),
        started(INNER),
        finished(INNER),
        finished(B),
    )

    def found(self, journal):
        return (
            {place for place in (A, B, INNER) if journal.result(place) is not None},
            journal.decision(B, "items"),
        )

    @pytest.mark.parametrize(
        ("place", "expected"),
        [(A, (set(), UNSET)), (B, ({A}, UNSET)), (INNER, ({A}, [1]))],
    )
    def test_a_step_and_all_that_came_after_it(self, place, expected):
        def look(journal):
            assert journal.forget_from(place)
            return self.found(journal)

        assert resumed(*self.NOTED, look=look) == expected

    def test_it_stays_forgotten_and_what_was_done_since_counts(self):
        noted = (*self.NOTED, RunResumed(place=B, reason="from b"), finished(B, text="again"))

        def look(journal):
            return self.found(journal)[0], journal.result(B).text

        assert resumed(*noted, look=look) == ({A, B}, "again")

    def test_a_step_that_was_never_reached_is_refused_and_changes_nothing(self):
        def look(journal):
            return journal.forget_from(Place("nowhere")), self.found(journal)[0]

        assert resumed(*self.NOTED, look=look) == (False, {A, B, INNER})

    def test_resuming_alone_forgets_nothing(self):
        assert resumed(*self.NOTED, RunResumed(), look=self.found) == ({A, B, INNER}, [1])

    def test_a_failure_is_forgotten_with_what_is_around_it_and_not_what_is_beside_it(self):
        beside = Place("b[1].c")
        noted = (
            started(A),
            finished(A),
            Decided(place=B, what="attempt", value=2),
            Decided(place=INNER, what="attempt", value=3),
            finished(beside),
            finished(INNER, "failed"),
            finished(B, "failed"),
            finished(Place("hooks.end.x")),
        )

        def look(journal):
            journal.forget_failure(str(INNER))
            places = (A, beside, INNER, B, Place("hooks.end.x"))
            found = [place for place in places if journal.result(place) is not None]
            return found, journal.decision(B, "attempt"), journal.decision(INNER, "attempt")

        assert resumed(*noted, look=look) == ([A, beside], 2, UNSET)

    def test_hooks_at_the_end_are_done_again_with_the_workflows_that_they_call(self):
        hook, called = Place("hooks.end.tidy"), Place("hooks.end.tidy/remove")
        beside = Place("deploy/remove")

        def look(journal):
            journal.forget_failure(None)
            return [place for place in (hook, called, beside) if journal.result(place) is not None]

        assert resumed(finished(beside), finished(called), finished(hook), look=look) == [beside]

    def test_a_block_that_is_to_run_once_was_not_interrupted_if_a_step_in_it_failed(self):
        noted = (Decided(place=B, what="began", value=1), finished(INNER, "failed"), finished(B, "failed"))

        def look(journal):
            journal.forget_failure(str(INNER))
            return journal.decision(B, "began")

        assert resumed(*noted, look=look) is UNSET


def test_a_journal_that_cannot_be_read_is_refused_and_the_run_stays_free():
    async def play(store):
        async with await new_run(store) as run:
            run.journal.note(finished())
        store._database.transaction(
            lambda connection: connection.execute("UPDATE run_entries SET body = x'c0ffee'")
        )
        for _ in range(2):
            with pytest.raises(RunError, match="entry 1 of the run's journal cannot be read"):
                await OpenRun.open(store, run.id, RunSecrets())

    in_store(play)


class TestSecrets:
    SECRECY = RunSecrets.of({"TOKEN": "hunter2-hunter2"}, {})

    def test_results_decisions_and_inputs_come_back_with_their_secrets(self):
        async def play(store):
            async with await new_run(store, {"key": "hunter2-hunter2"}, secrecy=self.SECRECY) as run:
                run.journal.note(finished(A, stdout="got hunter2-hunter2"))
                run.journal.note(Decided(place=A, what="items", value=[{"k": "hunter2-hunter2"}]))
            kept = [entry.body for entry in store.runs.blocking.entries(run.id)]
            kept.append(store.runs.blocking.find(run.id).inputs)
            async with await OpenRun.open(store, run.id, self.SECRECY) as again:
                journal = again.journal
                return kept, again.inputs, journal.result(A).stdout, journal.decision(A, "items")

        kept, *found = in_store(play)

        assert found == [
            {"key": "hunter2-hunter2"},
            "got hunter2-hunter2",
            [{"k": "hunter2-hunter2"}],
        ]
        assert not any(b"hunter2" in body for body in kept)

    def test_a_secret_that_is_missing_is_named_and_the_run_stays_free(self):
        async def play(store):
            secrecy = RunSecrets.of({"TOKEN": "hunter2-hunter2", "OTHER": "swordfish-9"}, {})
            async with await new_run(store, secrecy=secrecy) as run:
                run.journal.note(finished(A, stdout="hunter2-hunter2"))
                run.journal.note(finished(B, stdout="swordfish-9"))
            with pytest.raises(RunError, match="not set now: OTHER, TOKEN: set them"):
                await OpenRun.open(store, run.id, RunSecrets())
            async with await OpenRun.open(store, run.id, secrecy) as again:
                return again.journal.result(B).stdout

        assert in_store(play) == "swordfish-9"


class TestRuns:
    def test_a_run_has_what_it_was_started_with(self):
        sources = {WORKFLOW.file: "steps: [ü]", "/project/\udcff.yaml": "x"}

        async def play(store):
            async with await new_run(store, {"n": 1}, sources=sources, session_id="sess_1") as run:
                pass
            record = await find_run(store, run.id)
            return record, recorded_inputs(record, RunSecrets()), recorded_sources(record)

        record, inputs, found = in_store(play)

        assert (inputs, found) == ({"n": 1}, sources)
        assert (record.workflow, record.file, record.digest) == ("Review it", WORKFLOW.file, "d1")
        assert (record.cwd, record.session_id, record.status) == ("/project", "sess_1", "running")

    def test_one_that_is_open_cannot_be_opened_again(self):
        async def play(store):
            async with await new_run(store) as run:
                with pytest.raises(
                    RunError, match=rf"{run.id} is running in the process \d+: wait .* cancel"
                ):
                    await OpenRun.open(store, run.id, RunSecrets())
            async with await OpenRun.open(store, run.id, RunSecrets()):
                return True

        assert in_store(play)

    def test_resuming_makes_it_running_again(self):
        async def play(store):
            async with await new_run(store) as run:
                run.journal.note(RunFinished(status="parked", exit_code=5, message="ask"))
            async with await OpenRun.open(store, run.id, RunSecrets()) as again:
                again.journal.note(RunResumed())
                await again.journal.durable()
                record = store.runs.blocking.find(run.id)
                return record.status, record.exit_code, record.message

        assert in_store(play) == ("running", None, "")

    @table(("end", "is_ended"), [(None, True), ("parked", True), ("success", False), ("cancelled", False)])
    def test_one_that_nobody_has_and_that_is_not_over_can_be_ended(self, end, is_ended):
        async def play(store):
            async with await new_run(store) as run:
                run.log.append(said("a"))
                if end:
                    run.log.append(RunFinished(status=end, exit_code=9))
                assert not end_unheld(store.runs.blocking, run.id), "somebody has it"
            return end_unheld(store.runs.blocking, run.id), store.runs.blocking.find(run.id).exit_code

        assert in_store(play) == (is_ended, 130 if is_ended else 9)


class TestIds:
    @table(
        ("name", "beginning"),
        [("review", "review"), ("Größe & Co.", "gr-e-co"), ("…", "run"), ("x" * 99, "x" * 24)],
    )
    def test_they_can_be_typed(self, name, beginning):
        id = new_run_id(name)
        assert id.rpartition("-")[0] == beginning
        assert len(id) == len(beginning) + 6
        assert id.isascii()

    IDS = ("review-7f3k2", "review-8aaaa", "deploy-22222")

    @pytest.mark.parametrize(
        ("given", "id"),
        [("review-8aaaa", "review-8aaaa"), ("d", "deploy-22222"), ("review-7", "review-7f3k2")],
    )
    def test_a_unique_beginning_is_enough(self, given, id):
        assert resolve_run_id(given, self.IDS) == id

    @table(
        ("given", "sentence"),
        [
            ("review", "review is the beginning of 2 runs: review-7f3k2, review-8aaaa: give more"),
            ("reveiw-8aaaa", "there is no run reveiw-8aaaa: did you mean review-8aaaa?"),
            ("zzz", "there is no run zzz: `coupler runs list`"),
            ("", "there is no run"),
        ],
    )
    def test_anything_else_is_refused_with_the_nearest(self, given, sentence):
        with pytest.raises(RunError) as caught:
            resolve_run_id(given, self.IDS)
        assert str(caught.value).startswith(sentence)
