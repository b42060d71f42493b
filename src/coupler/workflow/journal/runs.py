"""A run of a workflow: its record, its log, its journal, and the lease by which one process has it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import TracebackType
from typing import Self

from coupler.store.runs import BlockingRuns, RunChange, RunRecord, Runs
from coupler.store.store import Store
from coupler.workflow.errors import RunError
from coupler.workflow.journal.journal import JOURNALED, Journal
from coupler.workflow.journal.log import Log
from coupler.workflow.journal.run_events import RunFinished, kind_of, packed, unpacked
from coupler.workflow.journal.run_secrets import Secrecy
from coupler.workflow.language.model import Json, Workflow

CANCELLED = 130
"""The exit code of a run that was cancelled."""

LONGEST_NAME = 24
"""Characters of a workflow's name that its runs' ids begin with."""

MOST_CANDIDATES = 5

_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""What ids end with: nothing that is easily taken for something else."""

_random = random.SystemRandom()


class Run:
    """A run that this process has, until it is closed."""

    def __init__(self, runs: Runs, record: RunRecord, number: int, seq: int, secrecy: Secrecy) -> None:
        self.record = record
        self.secrecy = secrecy
        self.log = Log(runs, record.id, number, seq, secrecy)
        self.journal = Journal(self.log)
        self._runs = runs
        self._number = number

    @classmethod
    async def create(
        cls,
        store: Store,
        workflow: Workflow,
        inputs: Mapping[str, Json],
        *,
        sources: Mapping[str, str],
        digest: str,
        cwd: str,
        secrecy: Secrecy,
        session_id: str | None = None,
    ) -> Run:
        """A new one; `sources` are the texts of all files that it is made of, by their paths."""
        while True:
            record = RunRecord(
                id=new_id(workflow.name),
                workflow=workflow.name,
                file=workflow.file,
                digest=digest,
                cwd=cwd,
                session_id=session_id,
                inputs=packed(secrecy.veiled(dict(inputs))),
                sources=packed(dict(sources)),
            )
            number = await store.runs.create(record)
            if number is not None:
                return cls(store.runs, record, number, 0, secrecy)

    @classmethod
    async def open(cls, store: Store, id: str, secrecy: Secrecy) -> Run:
        """One that was parked or whose process died, with all that its journal has.

        Raises RunError if there is none, or if a process that lives has it.
        """
        record = await find_run(store, id)
        held = await store.runs.hold(record.id)
        if held is None:
            raise RunError(f"there is no run {id}: `coupler runs list` shows those there are")
        if isinstance(held, int):
            raise RunError(
                f"the run {record.id} is running in the process {held}: wait for its end, "
                f"or end it with `coupler runs cancel {record.id}`"
            )
        run = cls(store.runs, record, *held, secrecy)
        try:
            entries = await store.runs.entries(record.id, kinds=JOURNALED, is_whole=True)
            run.journal.read(entries, secrecy)
        except BaseException:
            await run.close()
            raise
        return run

    @property
    def id(self) -> str:
        """What people type to mean this run."""
        return self.record.id

    @property
    def inputs(self) -> dict[str, Json]:
        """What it was started with; raises RunError if secrets among them are not known now."""
        return inputs_of(self.record, self.secrecy)

    @property
    def sources(self) -> dict[str, str]:
        """The files that it is made of, as they were at its start."""
        return sources_of(self.record)

    async def close(self) -> None:
        """Write what is left, and let others have the run."""
        try:
            await self.log.close()
        finally:
            await self._runs.release(self._number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def find_run(store: Store, given: str) -> RunRecord:
    """The run that an id or the beginning of one means; raises RunError if there is not exactly one."""
    record = await store.runs.find(meant_by(given, await store.runs.ids()))
    if record is None:
        raise RunError(f"the run {given} is gone: `coupler runs list` shows those there are")
    return record


def inputs_of(record: RunRecord, secrecy: Secrecy) -> dict[str, Json]:
    """What a run was started with; raises RunError if secrets among them are not known now."""
    inputs: dict[str, Json] = unpacked(record.inputs)
    return secrecy.revealed(inputs)


def sources_of(record: RunRecord) -> dict[str, str]:
    """The files that a run is made of, as they were at its start."""
    sources: dict[str, str] = unpacked(record.sources)
    return sources


def end_unheld(runs: BlockingRuns, id: str) -> bool:
    """Cancel a run that is parked or whose process died; False if a process has it, or if it is over."""
    finished = RunFinished(status="cancelled", exit_code=CANCELLED, message="it was cancelled")
    change = RunChange("cancelled", CANCELLED, finished.message)
    return runs.end_unheld(id, kind_of(finished), packed(finished), change)


def new_id(workflow: str) -> str:
    """An id that can be typed: `review-7f3k2`."""
    name = re.sub(r"[^a-z0-9]+", "-", workflow.lower()).strip("-")[:LONGEST_NAME].rstrip("-")
    return f"{name or 'run'}-{''.join(_random.choices(_LETTERS, k=5))}"


def meant_by(given: str, ids: Sequence[str]) -> str:
    """The id that was given, in full or its beginning; raises RunError with the nearest if there is none."""
    if given in ids:
        return given
    candidates = [each for each in ids if given and each.startswith(given)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        named = ", ".join(candidates[:MOST_CANDIDATES])
        more = " …" if len(candidates) > MOST_CANDIDATES else ""
        raise RunError(
            f"{given} is the beginning of {len(candidates)} runs: {named}{more}: give more of the id"
        )
    nearest = get_close_matches(given, ids, 1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    raise RunError(f"there is no run {given}: {hint}`coupler runs list` shows those there are")
