"""What can end `coupler serve` before it begins, each under a code that does not change between versions."""

from __future__ import annotations

from typing import NamedTuple


class StartError(NamedTuple):
    """A code, what it means, and what to do about it."""

    code: str
    sentence: str
    remedy: str


CONFIG_INVALID = StartError(
    "config.invalid",
    "A `coupler.toml`, or a variable that stands for a key of it, is wrong.",
    "Correct what the line names.",
)
CONFIG_UNREADABLE = StartError(
    "config.unreadable",
    "A `coupler.toml` is there, but cannot be read.",
    "Make it a plain file that you may read, or take it away.",
)
WORKFLOW_MISSING = StartError(
    "workflow.missing",
    "The file of the workflow is not there.",
    "Give the path of one that is, from the directory on in which the program starts.",
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


class CannotStartError(Exception):
    """There is no serving; the message names the place and says what to do."""

    def __init__(self, error: StartError, problem: str) -> None:
        super().__init__(f"{error.code}: {problem}")
