"""The parts of a block: branches, and each time around a loop, told as they begin and end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from coupler.workflow.engine.flow import StepFailed
from coupler.workflow.engine.titles import in_one_line
from coupler.workflow.errors import Parked
from coupler.workflow.journal.happenings import PartFinished, PartStarted
from coupler.workflow.journal.result import Failure, Result, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.language.definition import Json, Step


@dataclass
class Part:
    """Begins with the first of its steps that is done now: of one that is in the journal nothing is told."""

    block: Attempt
    """The attempt at the step that it is a part of."""
    branch: int | None = None
    iteration: int | None = None
    total: int | None = None
    title: str = ""
    _began: float | None = None

    def begin(self) -> None:
        """Something is done in it; tells so once."""
        if self._began is not None:
            return
        self._began = time.monotonic()
        self.block.emit(
            PartStarted(
                branch=self.branch,
                iteration=self.iteration,
                attempt=self.block.number,
                total=self.total,
                title=self.title,
            )
        )

    @contextmanager
    def lasting(self, steps: Mapping[str, Result]) -> Iterator[None]:
        """While its list is gone through; `steps` has what becomes of them. One that is parked has no end."""
        try:
            yield
        except Parked:
            raise
        except StepFailed as failed:
            self._end("failed", msgspec.structs.replace(failed.failure, step=failed.step))
            raise
        except BaseException:
            self._end("cancelled")
            raise
        is_skipped = all(result.status == "skipped" for result in steps.values())
        self._end("skipped" if is_skipped else "success")

    def _end(self, status: Status, error: Failure | None = None) -> None:
        if self._began is None:
            return
        self.block.emit(
            PartFinished(
                branch=self.branch,
                iteration=self.iteration,
                attempt=self.block.number,
                status=status,
                error=error,
                duration=round(time.monotonic() - self._began, 6),
            )
        )


def title_of_branch(steps: Sequence[Step]) -> str:
    """The names that its steps were given."""
    return in_one_line(", ".join(step.id for step in steps if step.is_named))


def title_of_item(item: Json, block: Attempt) -> str:
    """What a loop goes through, as far as it fits into a line."""
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
    return in_one_line(block.mask(text))
