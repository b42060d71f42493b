"""Creates, opens and finds runs: each has a record, a log, a journal, and a lease of one process."""

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
from coupler.workflow.journal.journal import JOURNALED, RunJournal
from coupler.workflow.journal.log import RunLog
from coupler.workflow.journal.run_events import RunFinished, kind_of, packed, unpacked
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.language.model import Json, Workflow

CANCELLED = 130
"""The exit code of a run that was cancelled."""

LONGEST_NAME = 24
"""Characters of a workflow's name that its runs' ids begin with."""

MOST_CANDIDATES = 5
"""Runs that an error lists."""

_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""The characters at the end of ids: none that is easily taken for another."""

_random = random.SystemRandom()


class OpenRun:
    """A run that this process holds, until it is closed."""

    def __init__(self, runs: Runs, record: RunRecord, number: int, seq: int, secrecy: RunSecrets) -> None:
        self.record = record
        self.secrecy = secrecy
        self.log = RunLog(runs, record.id, number, seq, secrecy)
        self.journal = RunJournal(self.log)
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
        secrecy: RunSecrets,
        session_id: str | None = None,
    ) -> OpenRun:
        """Create a run; `sources` are the texts of all its files, by their paths."""
        while True:
            record = RunRecord(
                id=new_run_id(workflow.name),
                workflow=workflow.name,
                file=workflow.file,
                digest=digest,
                cwd=cwd,
                session_id=session_id,
                inputs=packed(secrecy.redacted(dict(inputs))),
                sources=packed(dict(sources)),
            )
            number = await store.runs.create(record)
            if number is not None:
                return cls(store.runs, record, number, 0, secrecy)

    @classmethod
    async def open(cls, store: Store, id: str, secrecy: RunSecrets) -> OpenRun:
        """Open a run that was parked or whose process died, with its journal.

        Raises RunError if there is none, or if a process that lives holds it.
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
        """The id by which people name the run."""
        return self.record.id

    @property
    def inputs(self) -> dict[str, Json]:
        """The inputs it was started with; raises RunError if secrets among them are not known now."""
        return recorded_inputs(self.record, self.secrecy)

    @property
    def sources(self) -> dict[str, str]:
        """The run's files, as they were at its start."""
        return recorded_sources(self.record)

    async def close(self) -> None:
        """Write what is left, and release the run."""
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
    """Find a run by its id or the beginning of one; raises RunError if there is not exactly one."""
    record = await store.runs.find(resolve_run_id(given, await store.runs.ids()))
    if record is None:
        raise RunError(f"the run {given} is gone: `coupler runs list` shows those there are")
    return record


def recorded_inputs(record: RunRecord, secrecy: RunSecrets) -> dict[str, Json]:
    """Return the inputs of a run; raises RunError if secrets among them are not known now."""
    inputs: dict[str, Json] = unpacked(record.inputs)
    return secrecy.revealed(inputs)


def recorded_sources(record: RunRecord) -> dict[str, str]:
    """Return the files of a run, as they were at its start."""
    sources: dict[str, str] = unpacked(record.sources)
    return sources


def end_unheld(runs: BlockingRuns, id: str) -> bool:
    """Cancel a run that is parked or whose process died; False if a process holds it, or it is over."""
    finished = RunFinished(status="cancelled", exit_code=CANCELLED, message="it was cancelled")
    change = RunChange("cancelled", CANCELLED, finished.message)
    return runs.end_unheld(id, kind_of(finished), packed(finished), change)


def new_run_id(workflow: str) -> str:
    """Return a random id that can be typed: `review-7f3k2`."""
    name = re.sub(r"[^a-z0-9]+", "-", workflow.lower()).strip("-")[:LONGEST_NAME].rstrip("-")
    return f"{name or 'run'}-{''.join(_random.choices(_LETTERS, k=5))}"


def resolve_run_id(given: str, ids: Sequence[str]) -> str:
    """Return the id that was given, in full or its beginning; raises RunError with the nearest."""
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
