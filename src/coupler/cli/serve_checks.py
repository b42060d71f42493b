"""Checks the configuration and the served workflow before `coupler serve` answers.

A program that answers an editor and then refuses every session is harder to understand than one that ends
with a line in the editor's log. Only what holds for every session is checked, and the project that the
program was started in: another one's files are checked when a session is opened there. Each error has a
code that does not change between versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coupler.config.lookup import ConfigError
    from coupler.workflow.errors import InvalidWorkflowError


class StartError(NamedTuple):
    """An error code, its meaning, and its remedy."""

    code: str
    sentence: str
    remedy: str


class CannotStartError(Exception):
    """The agent cannot be served; the message names the place and says what to do."""

    def __init__(self, error: StartError, problem: str) -> None:
        super().__init__(f"{error.code}: {problem}")


CONFIG_INVALID = StartError(
    "config.invalid",
    "A `coupler.toml`, or a variable that stands for a key of it, is wrong.",
    "Correct what the line names.",
)
CONFIG_UNREADABLE = StartError(
    "config.unreadable",
    "A `coupler.toml` is there, but cannot be read.",
    "Make it a plain file that you may read, or remove it.",
)
WORKFLOW_MISSING = StartError(
    "workflow.missing",
    "The file of the workflow is not there.",
    "Give its path, relative to the directory in which the program starts.",
)
WORKFLOW_UNREADABLE = StartError(
    "workflow.unreadable",
    "The file of the workflow is there, but cannot be read.",
    "Make it a plain file that you may read.",
)
WORKFLOW_INVALID = StartError(
    "workflow.invalid",
    "The workflow, or one that it calls, is not valid.",
    "Correct it; `coupler workflows validate` shows all that is wrong.",
)
PACKAGES_MISSING = StartError(
    "packages.missing",
    "Packages that workflows need are not installed.",
    "Install them with the command that the line shows.",
)

START_ERRORS = (
    CONFIG_INVALID,
    CONFIG_UNREADABLE,
    WORKFLOW_MISSING,
    WORKFLOW_UNREADABLE,
    WORKFLOW_INVALID,
    PACKAGES_MISSING,
)


def check_configuration(cwd: str | None, environ: Mapping[str, str]) -> None:
    """Reads the user's file and that of the project; raises CannotStartError."""
    from coupler.agent.permission import rules_of
    from coupler.config import ConfigError, load

    try:
        config = load(cwd, environ=environ)
        rules_of(config)
    except ConfigError as error:
        raise _wrong_configuration(error) from None
    except ValueError as error:
        raise CannotStartError(CONFIG_INVALID, str(error)) from None


class CheckedWorkflow(NamedTuple):
    """A valid workflow: all its files, and the blocks that its prompts may hold besides text."""

    files: tuple[str, ...]
    accepts: tuple[str, ...]


NO_WORKFLOW = CheckedWorkflow((), ())


def check_workflow(file: str, cwd: str) -> CheckedWorkflow:
    """Reads a workflow and all that it calls; raises CannotStartError."""
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import InvalidWorkflowError, WorkflowError, require_packages

    try:
        require_packages()
        from coupler.workflow.language.library import Library

        bundle = Library(cwd).bundle_of(str(Path(cwd, file)))
    except MissingExtraError as error:
        raise CannotStartError(PACKAGES_MISSING, str(error)) from None
    except InvalidWorkflowError as error:
        raise _invalid_workflow(error, file) from None
    except WorkflowError as error:
        kind = WORKFLOW_UNREADABLE if Path(cwd, file).exists() else WORKFLOW_MISSING
        raise CannotStartError(kind, str(error)) from None
    from coupler.workflow.agents.agent_start import image_steps

    accepts = ("image", "resource") if image_steps(bundle) else ("resource",)
    return CheckedWorkflow(tuple(workflow.file for workflow in bundle.workflows), accepts)


def _wrong_configuration(error: ConfigError) -> CannotStartError:
    problem, more = error.problems[0], len(error.problems) - 1
    if more:
        problem = f"{problem}; and {more:,} more problem{'s' * (more > 1)}"
    match error.kind:
        case "unreadable":
            return CannotStartError(CONFIG_UNREADABLE, f"{problem}: correct it or remove it")
        case "syntax":
            return CannotStartError(CONFIG_INVALID, f"{problem}: correct this line")
        case "invalid":
            return CannotStartError(CONFIG_INVALID, problem)


def _invalid_workflow(error: InvalidWorkflowError, file: str) -> CannotStartError:
    problem, more = str(error.problems[0]), len(error.problems) - 1
    if more:
        problem = f"{problem}; and {more:,} more: `coupler workflows validate {file}` shows all"
    return CannotStartError(WORKFLOW_INVALID, problem)
