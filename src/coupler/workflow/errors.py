"""The errors of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coupler.fields.nodes import Problem as Problem
from coupler.runtime.extras import import_extra
from coupler.workflow.language.model import ErrorKind

if TYPE_CHECKING:
    from coupler.workflow.engine.front import AnsweredBy
    from coupler.workflow.journal.run_events import Result


class WorkflowError(Exception):
    """An error that whoever uses workflows can fix."""


class InvalidWorkflowError(WorkflowError):
    """A file that is no valid workflow, with all its problems at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class InputError(WorkflowError):
    """Inputs that are missing, unknown or do not fit."""


class RunError(WorkflowError):
    """A run that cannot be started or resumed: it is held by another process, has changed, is over …"""


class RunChangedError(RunError):
    """A run whose files have changed since it began."""


class StepError(WorkflowError):
    """The failure of one attempt at a step; `retry` and `on_error` decide what becomes of it."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        exit_code: int | None = None,
        retry_after: float | None = None,
        result: Result | None = None,
        step: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.exit_code = exit_code
        self.result = result
        """The partial result of the failed step, such as what it wrote."""
        self.step = step
        """The step inside of it that failed, if it is made of others."""
        self.retry_after = retry_after
        """Seconds after which a provider wants to be asked again."""


class UnknownNameError(StepError):
    """An expression that names what is not there."""

    def __init__(self, message: str) -> None:
        super().__init__("template", message)


class Parked(BaseException):
    """Raised when nobody is there to answer: the run waits, and is resumed with the answer.

    No Exception: only whoever runs the whole workflow may catch it.
    """


class CallDenied(BaseException):
    """Raised when a tool call that a step's `approve` is about was denied, and its `on_deny` ends the step.

    No Exception: only whoever performs the step may catch it, because only there its result is known.
    """

    def __init__(self, title: str, by: AnsweredBy) -> None:
        super().__init__(title)
        self.title = title
        """The call, as people are shown it."""
        self.by: AnsweredBy = by


def require_packages() -> None:
    """Import the packages of the extra `workflows` before a file is read; raises MissingExtraError."""
    for module in ("yaml", "jinja2"):
        import_extra(module, extra="workflows", feature="Running a workflow")
