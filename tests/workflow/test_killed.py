"""`kill -9` at any moment, then `coupler resume`: nothing that is kept runs again, and nothing is lost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coupler.store.run_table import RunRecord
from coupler.store.store import Store
from coupler.workflow.journal.happenings import Happening, RunFinished, StepFinished
from coupler.workflow.journal.record import happening_in
from coupler.workflow.journal.runs import inputs_of
from coupler.workflow.journal.secrecy import Secrecy

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


class Forge:
    """`coupler`, started by a fork."""

    def __init__(self, cwd: Path) -> None:
        script = Path(__file__).with_name("forge.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd
        )
        self.output = cwd / "output"

    def run(self, *arguments: str, kill_after: float | None = None) -> int:
        """The exit code; killed after so many seconds unless it has ended by then."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"arguments": arguments, "output": str(self.output), "kill_after": kill_after}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    (tmp_path / "killed.yaml").write_text(WORKFLOW)
    (tmp_path / "called.yaml").write_text(CALLED)
    forge = Forge(tmp_path)
    yield forge
    forge.close()


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_no_kept_step_runs_again_and_none_is_lost(forge: Forge, tmp_path: Path) -> None:
    chance = random.Random()
    whole = _duration_of_a_run(forge, tmp_path)
    kills = 0
    for number in range(RUNS):
        log = tmp_path / f"log-{number}"
        log.touch()
        code = forge.run("run", "./killed.yaml", "--json", f"log={log}", kill_after=chance.uniform(0, whole))
        kept: set[str] = set()
        seen = 0
        record = _run_with(log)
        while code == -signal.SIGKILL and record is not None and record.status != "success":
            kills += 1
            done = _paths(log)
            assert not {*done[seen:]} & kept, "something ran again after it was kept"
            kept, seen = _kept(record.id), len(done)
            later = chance.uniform(0, whole) if chance.random() < 0.5 else None
            code = forge.run("resume", record.id, "--json", kill_after=later)
            record = _run_with(log)
        if record is None:
            continue  # killed before it was begun: nobody was told of it
        assert record.status == "success", forge.output.read_text()
        assert not {*_paths(log)[seen:]} & kept, "something ran again after it was kept"
        assert {*_paths(log)} == WORK
        assert _outputs(record.id) == OUTPUTS
    assert kills > RUNS / 2


def _duration_of_a_run(forge: Forge, directory: Path) -> float:
    """The shortest of three: the first one loads what it needs."""
    durations: list[float] = []
    for number in range(3):
        began = time.monotonic()
        code = forge.run("run", "./killed.yaml", "--json", f"log={directory / f'whole-{number}'}")
        assert code == 0, forge.output.read_text()
        durations.append(time.monotonic() - began)
    return min(durations)


def _run_with(log: Path) -> RunRecord | None:
    """The newest run, if it is the one that was given this log."""
    store = Store.open()
    try:
        ids = store.runs.blocking.ids()
        record = store.runs.blocking.find(ids[0]) if ids else None
    finally:
        store.close()
    return record if record is not None and inputs_of(record, Secrecy())["log"] == str(log) else None


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
