"""What ends a list of steps before its last one.

None of it is an `Exception`, so that the work of a step never catches it by mistake.
"""

from __future__ import annotations

from typing import Literal

from coupler.workflow.errors import StepError
from coupler.workflow.journal.happenings import Place
from coupler.workflow.journal.result import Failure, Result


class Stopped(BaseException):
    """A `stop`, or a denied gate that stops: the workflow around it ends here."""

    def __init__(
        self,
        status: Literal["success", "failure", "cancelled"],
        message: str = "",
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.exit_code = exit_code


class StepFailed(BaseException):
    """A step failed, and nothing in its list handles that."""

    def __init__(self, place: Place, result: Result) -> None:
        assert result.error is not None
        super().__init__(result.error.message)
        self.failure: Failure = result.error
        self.step = result.error.step or str(place)
        """The path of the innermost step that failed."""

    def as_error(self, partial: Result | None = None) -> StepError:
        """The same as the failure of the step around it."""
        failure = self.failure
        message = failure.message if failure.step is not None else f"{self.step}: {failure.message}"
        return StepError(failure.kind, message, exit_code=failure.exit_code, step=self.step, result=partial)


class NotReached(BaseException):
    """While a finished step is gone through again for its results: from here on there are none."""


class StepsExhausted(BaseException):
    """The run has taken more steps than it may."""
