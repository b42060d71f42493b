"""`_meta.coupler`: which run and which step something belongs to, for clients that show more than a list."""

from __future__ import annotations

from typing import Any

import msgspec

from coupler.workflow.journal.happenings import RunFinished

Meta = dict[str, Any]


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a tool call: the step that it is, or that it belongs to."""

    run: str
    step: str
    """The step's place in the run, as in `fixes[2].fix`."""
    branch: int | None = None
    iteration: int | None = None
    """Both count from 0, and are those of the step itself."""
    attempt: int = 1
    parent: str | None = None
    """The id of the tool call around this one: that of a block for its steps, of a step for its agent's."""

    def as_meta(self) -> Meta:
        """The same as a tool call carries it; the attempt is always told."""
        return {"coupler": {**msgspec.to_builtins(self), "attempt": self.attempt}}


def with_outcome(meta: Meta, outcome: str) -> Meta:
    """The `_meta` of a call whose end means something else than its status says."""
    return {"coupler": {**meta["coupler"], "outcome": outcome}}


def answer_meta(run: str, workflow: str, finished: RunFinished) -> Meta:
    """Of a prompt's answer: how the run ended, and what came out of it."""
    told: Meta = {
        "run": run,
        "workflow": workflow,
        "status": finished.status,
        "exitCode": finished.exit_code,
        "outputs": dict(finished.outputs),
    }
    if finished.error is not None:
        told["error"] = {"kind": finished.error.kind, "message": finished.error.message}
    if finished.failed_step is not None:
        told["step"] = finished.failed_step
    return {"coupler": told}
