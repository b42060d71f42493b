"""`coupler runs`: what was run is listed, read, followed, cancelled and deleted."""

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import forked
from cli.typing_at import Typist
from coupler.cli.main import command
from coupler.cli.output import Output
from coupler.cli.run.run_page import LISTING, build_step_tree
from coupler.cli.terminal import format_duration
from coupler.events import Plan, Thought, ToolCall
from coupler.events.events import TurnEnded, TurnUsage
from coupler.redaction.known_secrets import masker_for
from coupler.schema.v1 import PlanEntry
from coupler.store.store import Store
from coupler.workflow.journal.run_events import (
    AgentEvent,
    AnswerAsked,
    ApprovalAsked,
    ApprovalGiven,
    Failure,
    Noted,
    Place,
    RetryPlanned,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionEvent,
)
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.journal.runs import OpenRun
from raw_client import COUPLER, PATIENCE
from tables import table
from workflow.kept_runs import finished, in_store, new_run, said, started, wrote


def did(event: SessionEvent) -> AgentEvent:
    return AgentEvent(place=GATE, event=event)


DIFF, FIXES, GATE = Place("diff"), Place("fixes", 2), Place("gate")
BROKEN = Failure(kind="exit", message="it \x1b[31mbroke\x1b[0m", exit_code=2)
EVIL = "one\ntw\x1b]0;owned\x07o\u202e\x1b[2J\n"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

TOLD = (
    RunStarted(run="r", workflow="review"),
    started(DIFF),
    wrote(EVIL[:6], DIFF),
    wrote(EVIL[6:], DIFF),
    wrote("oh", DIFF, "stderr"),
    finished(DIFF, duration=1.25),
    started(FIXES),
    *(
        each
        for number in range(30)
        for each in (started(Place(f"fixes#2[{number}].fix")), finished(Place(f"fixes#2[{number}].fix")))
    ),
    started(Place("fixes#2[30].fix"), attempts=2),
    RetryPlanned(place=Place("fixes#2[30].fix"), attempt=2, attempts=2, delay=1.5, error=BROKEN),
    started(Place("fixes#2[30].fix"), attempt=2, attempts=2),
    finished(Place("fixes#2[30].fix"), "failed", error=BROKEN, attempts=2, duration=72),
    finished(FIXES, "failed", error=BROKEN),
    finished(Place("skipped"), "skipped"),
)
FAILED = RunFinished(
    status="failed",
    exit_code=3,
    message="fixes: it broke",
    failed_step="fixes#2",
    outputs={"list": [1, 2], "text": "a\nb"},
    usage=TurnUsage(total=1234, cost=0.5, currency="USD"),
)


@pytest.fixture
def store_file(coupler_home: Path) -> str:
    return str(coupler_home / "coupler.db")


def keep(store_file: str, *told, inputs=None, **options) -> str:
    """A run in which this happened, and which nobody has; its id."""

    async def play(store: Store) -> str:
        async with await new_run(store, inputs, **options) as run:
            for happening in told:
                run.journal.note(happening)
            return run.id

    return in_store(play, store_file)


def runs(*arguments: str, code: int = 0) -> str:
    """What the command writes to stdout, in this process."""
    ended = CliRunner().invoke(command, ["runs", *arguments], catch_exceptions=False)
    assert ended.exit_code == code, ended.output
    assert CONTROL.search(ended.output.replace("\t", "")) is None
    return ended.output if code else ended.stdout


class TestList:
    def test_a_pipe_gets_a_line_a_run_the_newest_first(self, store_file):
        older = keep(store_file, FAILED)
        newer = keep(store_file)

        rows = [line.split("\t") for line in runs("list").splitlines()]

        assert [(row[0], row[2]) for row in rows] == [(newer, "interrupted"), (older, "failed")]
        _, start, _, seconds, workflow, directory = rows[0]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", start)
        assert (float(seconds) < PATIENCE, workflow, directory) == (True, "Review it", "/project")

    def test_json_has_every_field(self, store_file):
        id = keep(store_file, FAILED, session_id="sess_1", cwd="/\udcff")

        (only,) = json.loads(runs("list", "--json"))

        assert only.pop("created_at") <= only.pop("updated_at")
        assert only == {
            "id": id,
            "workflow": "Review it",
            "status": "failed",
            "exit_code": 3,
            "message": "fixes: it broke",
            "file": "/project/review.yaml",
            "cwd": "/?",
            "session_id": "sess_1",
            "pid": None,
        }

    def test_status_directory_and_limit_choose(self, store_file, tmp_path):
        failed = keep(store_file, FAILED)
        here = keep(store_file, cwd=str(tmp_path))
        (tmp_path / "link").symlink_to(tmp_path)

        assert runs("list", "--status", "failed").split("\t")[0] == failed
        assert runs("list", "--cwd", str(tmp_path / "link")).split("\t")[0] == here
        ended = CliRunner().invoke(command, ["runs", "list", "--limit", "1"])
        assert (ended.stdout.count("\n"), ended.stderr) == (1, "1 more run not shown: add --limit 2\n")
        ended = CliRunner().invoke(command, ["runs", "list", "--status", "parked"])
        assert (ended.stdout, "No run fits: leave out" in ended.stderr) == ("", True)

    def test_without_any_run_it_says_what_to_do_and_makes_no_store(self, coupler_home):
        ended = CliRunner().invoke(command, ["runs", "list"])

        assert (ended.exit_code, ended.stdout) == (0, "")
        assert ended.stderr == "No workflow was run yet: `coupler run` runs one.\n"
        assert runs("list", "--json") == "[]\n"
        assert "there is no run abc" in runs("show", "abc", code=1)
        assert not coupler_home.exists()

    def test_a_terminal_gets_a_table(self, store_file):
        id = keep(store_file, FAILED)
        stream = io.StringIO()
        store = Store.open(store_file)
        try:
            LISTING.write_table(store.runs.blocking.find_all(), Output(stream))
        finally:
            store.close()

        headings, row = stream.getvalue().splitlines()
        assert headings.split() == ["RUN", "WORKFLOW", "STATUS", "STARTED", "DURATION"]
        assert row.split() == [id, "Review", "it", "failed", "just", "now", "0.0", "s"]

    @table(
        ("seconds", "words"),
        [(0, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")],
    )
    def test_durations_are_for_people(self, seconds, words):
        assert format_duration(seconds) == words


class TestShow:
    def test_a_failed_run_is_told_whole(self, store_file):
        id = keep(store_file, *TOLD, FAILED, inputs={"target": "main", "n": 2}, session_id="sess_1")

        page = runs("show", id)

        assert page.startswith(f"Review it\n{id}\n/project/review.yaml in /project\nstarted 20")
        for part in (
            "failed, exit code 3\n  fixes: it broke\nused 1,234 tokens, 0.5000 USD\nof the session sess_1\n",
            "Inputs\n  target: main\n  n: 2\n",
            "Steps\n  diff  success, 1.2 s  a title\n  fixes#2  failed, 0.0 s: it broke  a title\n",
            "\n    [0].fix  success, 0.0 s  a title\n",
            "\n    [30].fix  failed, 1 min 12 s, 2 attempts: it broke  a title\n",
            "\n    … 10 steps left out: --full shows them …\n  skipped  skipped\n",
            "Outputs\n  list: [1,2]\n  text: a\n    b\n",
            f"Try again from the step that failed with: coupler resume {id}\n",
        ):
            assert part in page
        assert "[25].fix" not in page
        assert "[25].fix" in runs("show", id, "--full")

    @pytest.mark.parametrize(
        ("end", "step", "next_line"),
        [
            (None, "gate  interrupted  a title", "Resume it with: coupler resume {id}"),
            (
                RunFinished(status="parked", exit_code=5, message="it asks"),
                "gate  waiting  a title",
                "Resume it with: coupler resume {id}",
            ),
            (RunFinished(status="success", exit_code=0), "gate  interrupted  a title", ""),
        ],
    )
    def test_it_says_how_a_run_stands_and_how_it_goes_on(self, end, step, next_line, store_file):
        id = keep(store_file, started(GATE), *([end] if end else []))

        page = runs("show", id)

        assert f"\n  {step}\n" in page
        assert page.rstrip().endswith(next_line.format(id=id))

    @pytest.mark.parametrize("mark", [RunResumed(place=GATE), RunResumed(forgets=(GATE,))])
    def test_what_is_to_be_done_over_is_not_told(self, mark, store_file):
        told = (started(DIFF), finished(DIFF), started(GATE), finished(GATE, "failed", error=BROKEN))
        id = keep(store_file, *told, FAILED)

        async def resume(store):
            async with await OpenRun.open(store, id, RunSecrets()) as run:
                run.journal.note(mark)

        in_store(resume, store_file)
        page = runs("show", id)

        assert "\n  diff  success" in page
        assert "gate" not in page
        assert "Outputs" not in page
        assert "\ninterrupted\n" in page

    def test_a_step_that_was_visited_again_stands_beside_its_first_visit(self):
        told = [started(Place("a")), started(Place("b")), started(Place("a", 2)), started(Place("a#2.x"))]

        nodes = build_step_tree(told)

        assert [str(node.place) for node in nodes] == ["a", "b", "a#2"]
        assert [str(node.place) for node in nodes[2].inside] == ["a#2.x"]

    def test_secrets_that_are_known_by_now_are_hidden(self, store_file, monkeypatch):
        id = keep(store_file, started(DIFF), wrote("abc-123-DEF", DIFF), inputs={"key": "abc-123-DEF"})
        monkeypatch.setenv("API_TOKEN", "abc-123-DEF")

        masker_for.cache_clear()
        try:
            assert "key: [secret:API_TOKEN]" in runs("show", id)
            assert "| [secret:API_TOKEN]" in runs("logs", id)
            assert "abc-123" not in runs("logs", id, "--json")
        finally:
            masker_for.cache_clear()

    def test_nothing_happened_yet(self, store_file):
        assert "No step was run yet." in runs("show", keep(store_file))


class TestLogs:
    def test_text_is_told_line_by_line_behind_its_step(self, store_file):
        id = keep(store_file, *TOLD, FAILED)

        lines = re.sub(r"(?m)^\d\d:\d\d:\d\d", "T", runs("logs", id)).splitlines()

        assert lines[:7] == [
            "T the run r of review started",
            "T diff: started: a title",
            "  diff | one",
            "  diff | two",
            "  diff ! oh",
            "T diff: success after 1.2 s",
            "T fixes#2: started: a title",
        ]
        assert lines[-6:] == [
            "T fixes#2[30].fix: failed: it broke; attempt 2 in 1.5 s",
            "T fixes#2[30].fix: started (attempt 2 of 2): a title",
            "T fixes#2[30].fix: failed after 1 min 12 s: it broke",
            "T fixes#2: failed after 0.0 s: it broke",
            "T skipped: skipped",
            "T the run is over, failed: fixes: it broke",
        ]

    def test_steps_beside_each_other_tear_no_lines(self, store_file):
        one, two = Place("both.a"), Place("both.b")
        pieces = [said(text, place) for text in ("The ", "first\nand ", "last") for place in (one, two)]
        # What happens elsewhere parts the rows of all.
        told = [each for piece in pieces for each in (piece, Noted(place=GATE, text="n"))]
        id = keep(store_file, *told, finished(one), finished(two))

        lines = [line for line in runs("logs", id).splitlines() if " > " in line]

        assert lines == [
            "  both.a > The first",
            "  both.b > The first",
            "  both.a > and last",
            "  both.b > and last",
        ]

    @pytest.mark.parametrize(
        ("happening", "line"),
        [
            (said("a\nb", GATE), "  gate > a\n  gate > b\n"),
            (did(Thought("hm")), "  gate ~ hm\n"),
            (did(ToolCall(id="c", title="Run make")), "T gate: tool: Run make\n"),
            (ApprovalAsked(place=GATE, question="Sure?"), "T gate: asked: Sure?\n"),
            (AnswerAsked(place=GATE, question="Who?"), "T gate: asked: Who?\n"),
            (ApprovalGiven(place=GATE, approved=False, by="user"), "T gate: denied by user\n"),
            (
                ApprovalGiven(place=GATE, approved=False, by="nobody"),
                "T gate: not approved: nobody could be asked\n",
            ),
            (
                did(Plan((PlanEntry("a", "low", "pending"), PlanEntry("b", "low", "pending")))),
                "T gate: plan: a; b\n",
            ),
            (did(TurnEnded("end_turn", TurnUsage(total=1))), "T gate: used 1 token\n"),
            (
                did(TurnEnded("end_turn", TurnUsage(total=2, is_estimated=True))),
                "T gate: used 2 tokens, by estimate\n",
            ),
            (Noted(text="by the way"), "T by the way\n"),
            (RunResumed(reason="from gate"), "T the run was resumed: from gate\n"),
            (RunResumed(reason="parked"), "T the run was resumed: it was parked\n"),
            (RunResumed(reason="failed"), "T the run was resumed: it had failed\n"),
        ],
    )
    def test_everything_has_words(self, happening, line, store_file):
        id = keep(store_file, happening)
        assert re.sub(r"(?m)^\d\d:\d\d:\d\d", "T", runs("logs", id)) == line

    def test_json_is_one_happening_a_line(self, store_file):
        id = keep(store_file, started(DIFF), wrote("a\u2028\x9b\udc80", DIFF))

        first, second = map(json.loads, runs("logs", id, "--json").splitlines())

        assert (first["seq"], first["event"], first["place"]) == (1, "step_started", {"path": "diff"})
        assert (second["stream"], second["text"]) == ("stdout", "a\u2028\x9b\udc80")

    @pytest.mark.parametrize(
        ("step", "paths"),
        [
            ("a", {"a", "a[0].b", "a#2", "a~2/c"}),
            ("a[0]", {"a[0].b"}),
            ("a#2", {"a#2"}),
            ("ab", {"ab"}),
        ],
    )
    def test_a_step_is_told_with_what_is_inside_of_it(self, step, paths, store_file):
        places = [Place("a"), Place("a[0].b"), Place("a", 2), Place("ab"), Place("a~2/c")]
        id = keep(store_file, *map(started, places), Noted(text="of the run"))

        told = [json.loads(line)["place"] for line in runs("logs", id, "--json", "--step", step).splitlines()]

        assert {str(Place(**place)) for place in told} == paths

    def test_a_step_that_never_was_is_refused(self, store_file):
        id = keep(store_file, started(DIFF))
        assert f"nothing happened at dif: `coupler runs logs {id}`" in runs(
            "logs", id, "--step", "dif", code=1
        )

    def test_an_entry_of_a_later_version_costs_itself(self, store_file):
        id = keep(store_file, Noted(text="first"), Noted(text="second"))
        with closing(sqlite3.connect(store_file)) as connection:
            connection.execute("UPDATE run_entries SET body = x'c0', kind = 'dance' WHERE seq = 1")
            connection.commit()

        ended = CliRunner().invoke(command, ["runs", "logs", id])

        assert ended.stdout.endswith(" second\n")
        assert ended.stderr == "coupler runs: an entry of the kind dance cannot be read\n"


class TestChoosing:
    def test_a_beginning_is_enough_and_the_nearest_is_named(self, store_file):
        id = keep(store_file)

        assert id in runs("show", id[:-2])
        wrong = id[:-1] + "0"
        assert f"there is no run {wrong}: did you mean {id}?" in runs("logs", wrong, code=1)

    def test_another_store_is_named(self, tmp_path):
        id = keep(str(tmp_path / "other.db"))
        assert runs("list", "--store", str(tmp_path / "other.db")).startswith(id)
        assert "there is no file" in runs("list", "--store", str(tmp_path / "none.db"), code=2)


OWNER = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from coupler.store.store import Store
    from coupler.workflow.journal.run_events import RunFinished
    from workflow.kept_runs import finished, new_run, said, started

    async def main():
        store = Store.open()
        async with await new_run(store, session_id=(sys.argv + [None])[1]) as run:
            told_to_end = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, told_to_end.set)
            run.log.append(started())
            await run.log.durable()
            print(run.id, flush=True)
            await told_to_end.wait()
            run.log.append(said("I was told"))
            run.log.append(RunFinished(status="cancelled", exit_code=130))
        store.close()

    asyncio.run(main())
    """
)


@pytest.fixture
def owner():
    """Starts a process that has a run and ends it when it is told to; the process, and the run's id."""
    started_processes = []

    def start(*arguments: str):
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        started_processes.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started_processes:
        process.kill()
        process.communicate()


class TestProcesses:
    def test_a_running_one_is_cancelled_by_its_process_and_followed_to_its_end(self, owner):
        process, id = owner()
        assert f"running in the process {process.pid}\n" in runs("show", id)
        assert f"Follow it with: coupler runs logs {id} --follow" in runs("show", id)
        following = forked.Popen(
            [*COUPLER, "runs", "logs", id, "--follow"], stdout=subprocess.PIPE, text=True
        )
        first = following.stdout.readline()

        ended = forked.run([*COUPLER, "runs", "cancel", id], capture_output=True, text=True, timeout=PATIENCE)
        told, _ = following.communicate(timeout=PATIENCE)

        assert "build: started" in first
        assert (ended.returncode, ended.stdout) == (0, f"The run {id} is cancelled.\n")
        assert "  build > I was told\n" in told
        assert told.endswith("the run is over, cancelled\n")
        assert (process.wait(PATIENCE), following.returncode) == (0, 0)
        assert f"the run {id} is over already: cancelled" in runs("cancel", id, code=1)

    def test_following_ends_with_a_process_that_is_killed(self, owner):
        process, id = owner()
        following = forked.Popen(
            [*COUPLER, "runs", "logs", id, "--follow"], stdout=subprocess.PIPE, text=True
        )
        assert "build: started" in following.stdout.readline()

        os.kill(process.pid, signal.SIGKILL)

        assert following.communicate(timeout=PATIENCE) == ("", None)
        assert following.returncode == 0

    def test_one_of_an_editor_is_left_to_the_editor(self, owner):
        process, id = owner("sess_1")
        assert "belongs to a session of an editor: cancel it there" in runs("cancel", id, code=1)
        assert process.poll() is None

    @pytest.mark.parametrize("end", [None, RunFinished(status="parked", exit_code=5)])
    def test_one_without_a_process_is_ended_in_the_store(self, end, store_file):
        id = keep(store_file, started(DIFF), *([end] if end else []))

        assert runs("cancel", id) == f"The run {id} is cancelled.\n"

        (only,) = json.loads(runs("list", "--json"))
        assert (only["status"], only["exit_code"]) == ("cancelled", 130)
        assert runs("logs", id).endswith("the run is over, cancelled: it was cancelled\n")


PARKED = RunFinished(status="parked", exit_code=5)


def ids() -> list[str]:
    return [run["id"] for run in json.loads(runs("list", "--json"))]


def make_old(store_file: str, *ids: str, days: int = 31) -> None:
    at = int((time.time() - days * 86400) * 1000)
    with closing(sqlite3.connect(store_file)) as connection, connection:
        for id in ids:
            assert connection.execute("UPDATE runs SET updated_at = ? WHERE id = ?", [at, id]).rowcount


def rows_in(store_file: str, table: str) -> int:
    with closing(sqlite3.connect(store_file)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


class TestDelete:
    def test_runs_are_deleted_by_their_ids_with_all_that_happened_in_them(self, store_file):
        first, second, third = (keep(store_file, *TOLD, FAILED) for _ in range(3))

        ended = forked.run(
            [*COUPLER, "runs", "delete", first, third[:-1], first, "--yes"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2 runs deleted.\n", "")
        assert ids() == [second]
        assert "diff" in runs("show", second)
        kept = rows_in(store_file, "run_entries")
        assert runs("delete", second, "--yes") == "1 run deleted.\n"
        assert kept > 0
        assert [rows_in(store_file, table) for table in ("runs", "run_entries", "deleted_runs")] == [0, 0, 0]
        assert f"there is no run {first}" in runs("show", first, code=1)

    def test_the_file_is_smaller_afterwards(self, store_file):
        id = keep(
            store_file, started(DIFF), *(wrote(os.urandom(25_000).hex(), DIFF) for _ in range(100)), FAILED
        )
        before = Path(store_file).stat().st_size

        runs("delete", id, "--yes")

        assert (before > 2_000_000, Path(store_file).stat().st_size < 500_000) == (True, True)

    def test_an_unknown_id_does_not_keep_the_others(self, store_file):
        id = keep(store_file, FAILED)

        told = runs("delete", "unknown", id, "--yes", code=1)

        assert "there is no run unknown" in told
        assert "1 run deleted." in told
        assert ids() == []

    def test_older_than_deletes_what_nothing_happened_in_and_nothing_that_waits(self, store_file):
        old, new, waiting, interrupted = (
            keep(store_file, started(DIFF), *end) for end in ([FAILED], [FAILED], [PARKED], [])
        )
        make_old(store_file, old, waiting, interrupted)
        make_old(store_file, new, days=29)

        ended = CliRunner().invoke(command, ["runs", "delete", "--older-than", "30d", "--yes"])

        assert (ended.exit_code, ended.stdout) == (0, "2 runs deleted.\n")
        assert "1 parked run left, waiting for an answer: add --parked" in ended.stderr
        assert {*ids()} == {new, waiting}
        assert runs("delete", "--older-than", "30d", "--parked", "--yes") == "1 run deleted.\n"
        assert ids() == [new]
        assert runs("delete", "--older-than", "30d", "--yes") == "No run fits: nothing was deleted.\n"

    def test_one_that_waits_is_deleted_if_it_is_named(self, store_file):
        id = keep(store_file, PARKED)
        assert runs("delete", id, "--yes") == "1 run deleted.\n"

    def test_one_that_a_process_works_on_stays_and_the_others_do_not(self, owner, store_file):
        process, id = owner()
        other = keep(store_file, FAILED)

        told = runs("delete", id, other, "--yes", code=1)

        assert f"the run {id} is running in the process {process.pid}" in told
        assert "1 run deleted." in told
        assert ids() == [id]
        assert runs("cancel", id) == f"The run {id} is cancelled.\n"
        assert runs("delete", id, "--yes") == "1 run deleted.\n"

    @pytest.mark.parametrize(
        "words",
        [
            ["--yes"],
            ["some", "--older-than", "3d"],
            ["some", "--parked"],
            ["--parked", "--yes"],
            ["--older-than", "soon"],
        ],
    )
    def test_it_has_to_be_said_what_is_meant(self, words, store_file):
        keep(store_file, FAILED)
        runs("delete", *words, code=2)
        assert len(ids()) == 1

    def test_without_a_terminal_nothing_is_deleted_unless_one_is_sure(self, store_file):
        id = keep(store_file, FAILED)
        assert "there is no terminal to ask on: add --yes" in runs("delete", id, code=2)
        assert ids() == [id]

    def test_a_person_is_asked_and_told_what_waits(self, store_file):
        id = keep(store_file, PARKED)

        with Typist(*COUPLER, "runs", "delete", id) as typist:
            shown = typist.sees("Delete 1 run for good? [y/N]: ")
            typist.types("n\n")
            code = typist.ends()

        assert f"{id}  Review it  (parked, waits for an answer, just now)" in shown
        assert (code, ids()) == (1, [id])

    def test_to_delete_makes_no_store(self, coupler_home):
        assert runs("delete", "--older-than", "3d", "--yes") == "No run fits: nothing was deleted.\n"
        assert not (coupler_home / "coupler.db").exists()


def test_a_run_whose_store_is_deleted_is_kept_whole_in_a_new_one(store_file, tmp_path):
    lost = keep(store_file, FAILED)
    (tmp_path / "deleting.yaml").write_text(
        "name: deleting\nsteps:\n"
        "  - {id: first, run: echo one}\n"
        f"  - {{id: deletes, run: 'rm {store_file}'}}\n"
        "  - {id: last, run: echo two}\n"
    )

    ended = forked.run(
        [*COUPLER, "run", str(tmp_path / "deleting.yaml")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert ended.returncode == 0, ended.stderr
    assert f"{store_file} was deleted while it was open" in ended.stderr
    (run,) = json.loads(runs("list", "--json"))
    assert (run["status"], run["workflow"]) == ("success", "deleting")
    shown = runs("show", run["id"])
    assert [word in shown for word in ("first  success", "deletes  success", "last  success")] == [True] * 3
    assert f"there is no run {lost}" in runs("show", lost, code=1)
