"""`kill -9` at any moment, then `coupler resume`: nothing that is kept runs again, and nothing is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

import forked
from coupler.store.runs import RunRecord
from coupler.store.store import Store
from coupler.workflow.journal.run_events import Happening, RunFinished, StepFinished, happening_in
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.journal.runs import recorded_inputs
from raw_client import COUPLER

RUNS = 300

WORKFLOW = """
name: killed
inputs: {log: {type: string, required: true}}
defaults: {env: {LOG: "{{ inputs.log }}"}}
steps:
  - {id: first, run: 'echo $$ first >> "$LOG"; echo one'}
  - id: each
    for_each: [1, 2, 3]
    max_concurrent: 2
    steps:
      - {id: a, run: 'echo $$ each[{{ index }}].a >> "$LOG"; echo {{ item }}'}
      - {id: b, run: 'echo $$ each[{{ index }}].b >> "$LOG"; exit {{ index }}', on_error: continue}
  - id: both
    parallel:
      - {id: p, run: 'echo $$ both.p >> "$LOG"'}
      - {id: q, call: ./called.yaml, inputs: {log: "{{ inputs.log }}"}}
  - {id: zero, set: {n: 0}}
  - id: loop
    while: vars.n < 2
    steps:
      - {id: w, run: 'echo $$ loop[{{ index }}].w >> "$LOG"; echo {{ vars.n }}'}
      - {id: count, set: {n: vars.n + 1}}
  - {id: last, run: 'echo $$ last >> "$LOG"; echo end', retry: {attempts: 2, delay: 0}}
outputs:
  texts: "{{ steps.each.results | map(attribute='a') | map(attribute='stdout') | list }}"
  codes: "{{ steps.each.results | map(attribute='b') | map(attribute='exit_code') | list }}"
  called: "{{ steps.q.output.two }}"
  n: "{{ vars.n }}"
"""

CALLED = """
inputs: {log: string}
defaults: {env: {LOG: "{{ inputs.log }}"}}
steps:
  - {id: one, run: 'echo $$ both.q/one >> "$LOG"; echo 1'}
  - {id: two, run: 'echo $$ both.q/two >> "$LOG"; echo 2'}
outputs: {two: "{{ steps.two.stdout | trim }}"}
"""

WORK = {
    "first", "last", "both.p", "both.q/one", "both.q/two",
    *(f"each[{index}].{id}" for index in range(3) for id in "ab"),
    *(f"loop[{index}].w" for index in range(2)),
}  # fmt: skip
OUTPUTS = {"texts": ["1\n", "2\n", "3\n"], "codes": [0, 1, 2], "called": "2", "n": 2}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "killed.yaml").write_text(WORKFLOW)
    (tmp_path / "called.yaml").write_text(CALLED)
    return tmp_path


@pytest.mark.long
@pytest.mark.usefixtures("unmeasured")
def test_no_kept_step_runs_again_and_none_is_lost(project: Path) -> None:
    chance = random.Random()
    whole = _duration_of_a_run(project)
    kills = 0
    for number in range(RUNS):
        log = project / f"log-{number}"
        log.touch()
        code = _coupler(
            "run", "./killed.yaml", f"log={log}", cwd=project, kill_after=chance.uniform(0, whole)
        )
        kept: set[str] = set()
        seen = 0
        record = _run_with(log)
        while code == -signal.SIGKILL and record is not None and record.status != "success":
            kills += 1
            done = _paths(log)
            assert not {*done[seen:]} & kept, "something ran again after it was kept"
            kept, seen = _kept(record.id), len(done)
            later = chance.uniform(0, whole) if chance.random() < 0.5 else None
            code = _coupler("resume", record.id, cwd=project, kill_after=later)
            record = _run_with(log)
        if record is None:
            continue  # killed before it was begun: nobody was told of it
        assert record.status == "success", (project / "output").read_text()
        assert not {*_paths(log)[seen:]} & kept, "something ran again after it was kept"
        assert {*_paths(log)} == WORK
        assert _outputs(record.id) == OUTPUTS
    # How many come before the run is begun, or after its end, depends on the machine.
    assert kills > RUNS / 4


def _duration_of_a_run(project: Path) -> float:
    """The shortest of three: the first one loads what it needs."""
    durations: list[float] = []
    for number in range(3):
        began = time.monotonic()
        code = _coupler("run", "./killed.yaml", f"log={project / f'whole-{number}'}", cwd=project)
        assert code == 0, (project / "output").read_text()
        durations.append(time.monotonic() - began)
    return min(durations)


def _coupler(*words: str, cwd: Path, kill_after: float | None = None) -> int:
    """The exit code; killed after so many seconds unless it has ended by then."""
    with (cwd / "output").open("wb") as output:
        process = forked.Popen(
            [*COUPLER, *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            start_new_session=True,
        )
    if kill_after is None:
        return process.wait()
    killing = threading.Timer(kill_after, process.kill)
    killing.start()
    code = process.wait()
    killing.cancel()
    killing.join()
    return code


def _run_with(log: Path) -> RunRecord | None:
    """The newest run, if it is the one that was given this log."""
    store = Store.open()
    try:
        ids = store.runs.blocking.ids()
        record = store.runs.blocking.find(ids[0]) if ids else None
    finally:
        store.close()
    return record if record is not None and recorded_inputs(record, RunSecrets())["log"] == str(log) else None


def _kept(id: str) -> set[str]:
    """The paths of the steps that the journal says are over."""
    return {
        str(each.place)
        for each in _happenings(id, "step_finished")
        if isinstance(each, StepFinished) and each.result.status != "cancelled"
    }


def _outputs(id: str) -> object:
    [finished] = _happenings(id, "run_finished")
    assert isinstance(finished, RunFinished)
    return finished.outputs


def _happenings(id: str, kind: str) -> list[Happening]:
    store = Store.open()
    try:
        return [happening_in(entry.body) for entry in store.runs.blocking.entries(id, kinds=(kind,))]
    finally:
        store.close()


def _paths(log: Path) -> list[str]:
    return [line.partition(" ")[2] for line in log.read_text().splitlines()]
