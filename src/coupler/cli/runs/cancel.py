"""`coupler runs cancel`: tells the process that has a run to end it, or ends it in the store if none has."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from coupler.cli.runs.wording import status_of

if TYPE_CHECKING:
    from coupler.store.runs import BlockingRuns, RunRecord

PATIENCE = 30.0
"""Seconds in which a run that is told so ends: programs and hooks have 5 each."""

POLL_EVERY = 0.05


def cancel_run(runs: BlockingRuns, record: RunRecord) -> str | None:
    """Cancel it, and wait for its end; a sentence if that is not possible."""
    from coupler.workflow.journal.runs import end_unheld

    if status_of(record) in ("success", "failed", "cancelled"):
        return f"the run {record.id} is over already: {record.status}"
    if record.pid is None:
        return None if end_unheld(runs, record.id) else f"the run {record.id} was resumed just now: try again"
    if record.session_id is not None:
        return f"the run {record.id} belongs to a session of an editor: cancel it there"
    # The lease says that this process lives and has the run, so the number cannot be another's.
    try:
        os.kill(record.pid, signal.SIGINT)
    except ProcessLookupError:
        pass
    except PermissionError:
        return f"the run {record.id} belongs to a process of another user ({record.pid}): it cannot be told"
    return _wait_for_end(runs, record.id, record.pid)


def _wait_for_end(runs: BlockingRuns, id: str, pid: int) -> str | None:
    from coupler.workflow.journal.runs import end_unheld

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        record = runs.find(id)
        if record is None:
            return f"the run {id} is gone"
        if record.status == "cancelled":
            return None
        if status_of(record) in ("success", "failed"):
            return f"the run {id} was over before it could be cancelled: {record.status}"
        if record.pid is None and end_unheld(runs, id):
            return None
        time.sleep(POLL_EVERY)
    return f"the process {pid} was told to cancel the run {id}, but has not ended it yet: look again later"
