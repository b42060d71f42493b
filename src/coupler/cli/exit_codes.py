"""Defines the exit codes of all commands, and ends a command with one.

`coupler run` and `coupler resume` have the codes of runs, `coupler exec` and `coupler chat` those of turns;
every other command needs only a few, which mean the same in all of them. Imports next to nothing, because
`coupler serve` and `coupler record` use it while an editor waits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from coupler.client.errors import AgentError


DONE, FAILED, WRONG_USAGE, REFUSED, LIMIT, DENIED, NO_OUTPUT, BUDGET, DIED, CANNOT_START, NO_LOGIN = range(11)
IN_USE = 11
TIMEOUT, INTERRUPTED, BROKEN_PIPE, TERMINATED = 124, 130, 141, 143

WRONG_INPUT, INVALID_WORKFLOW, STEP_FAILED, SYSTEM, PARKED = range(1, 6)
"""Exit codes of `coupler run` and `coupler resume`, which also use DONE and INTERRUPTED."""

AUTH_REQUIRED = -32000
"""The code of the error by which an agent asks for a login."""

_BY_STOP_REASON = {
    "end_turn": DONE,
    "refusal": REFUSED,
    "max_tokens": LIMIT,
    "max_turn_requests": LIMIT,
    "cancelled": INTERRUPTED,
}
_BY_ERROR_KIND = {
    "spawn": CANNOT_START,
    "initialize": CANNOT_START,
    "died": DIED,
    "output": NO_OUTPUT,
    "budget": BUDGET,
    "deadline": TIMEOUT,
    "refused": REFUSED,
    "limit": LIMIT,
    "busy": IN_USE,
    "cancelled": INTERRUPTED,
}


class ExitCode(NamedTuple):
    """An exit code, and when the program ends with it."""

    code: int
    sentence: str


EXIT_CODES = (
    ExitCode(DONE, "the agent is done (end_turn)"),
    ExitCode(FAILED, "the agent answered with an error, or anything not listed below"),
    ExitCode(WRONG_USAGE, "wrong usage"),
    ExitCode(REFUSED, "the agent refused (refusal)"),
    ExitCode(
        LIMIT, "the agent reached a limit (max_tokens, max_turn_requests), or was stopped: it wrote too much"
    ),
    ExitCode(DENIED, "the agent is done, but something was denied, and --fail-on-denial was given"),
    ExitCode(NO_OUTPUT, "the answer does not fit --schema"),
    ExitCode(BUDGET, "the --budget is spent"),
    ExitCode(DIED, "the agent's process ended before it had answered"),
    ExitCode(CANNOT_START, "the agent cannot be started, or does not speak ACP"),
    ExitCode(NO_LOGIN, "the agent wants a login: run coupler login"),
    ExitCode(IN_USE, "another run is using the session that --session names"),
    ExitCode(TIMEOUT, "--timeout has passed"),
    ExitCode(INTERRUPTED, "cancelled, by Ctrl-C or by the agent"),
    ExitCode(BROKEN_PIPE, "the output was closed (broken pipe)"),
    ExitCode(TERMINATED, "ended by SIGTERM, or with the terminal (SIGHUP)"),
)

RUN_EXIT_CODES = (
    ExitCode(DONE, "the run succeeded"),
    ExitCode(WRONG_INPUT, "wrong usage, or inputs that are missing or do not fit"),
    ExitCode(INVALID_WORKFLOW, "the workflow is not valid"),
    ExitCode(STEP_FAILED, "a step failed, and nothing handles that"),
    ExitCode(SYSTEM, "something around it failed: the store, a missing package"),
    ExitCode(PARKED, "the run waits for an answer: coupler resume gives it"),
    ExitCode(INTERRUPTED, "cancelled: by Ctrl-C, SIGTERM, a denial or a `stop`"),
)

COMMON_EXIT_CODES = (
    ExitCode(DONE, "all went well"),
    ExitCode(FAILED, "something failed, or a check found a fault"),
    ExitCode(WRONG_USAGE, "wrong usage; of `coupler workflows` also a workflow that is not valid"),
    ExitCode(INTERRUPTED, "Ctrl-C"),
    ExitCode(BROKEN_PIPE, "the output was closed (broken pipe)"),
)

TABLES: dict[tuple[str, ...], tuple[ExitCode, ...]] = {
    ("run", "resume"): RUN_EXIT_CODES,
    ("exec", "chat"): EXIT_CODES,
    ("all others",): COMMON_EXIT_CODES,
}
"""The exit codes by command; `coupler record` ends with its agent's."""


def code_of_stop(reason: str) -> int:
    """The exit code for a turn's stop reason; an unknown reason is no success."""
    return _BY_STOP_REASON.get(reason, FAILED)


def code_of_error(error: AgentError) -> int:
    """The exit code for a turn, a session or an agent that failed."""
    if error.code == AUTH_REQUIRED:
        return NO_LOGIN
    return _BY_ERROR_KIND.get(error.kind, FAILED)


def exit_code_table(codes: Sequence[ExitCode] = EXIT_CODES) -> str:
    """Formats exit codes for the help."""
    return "\n".join(f"{each.code:>5}  {each.sentence}" for each in codes)


def refuse(sentence: str, program: str, code: int = WRONG_USAGE) -> NoReturn:
    """Prints an error and ends the program, by default for wrong usage."""
    print_error(sentence, program)
    sys.exit(code)


def print_error(sentence: str, program: str) -> None:
    """Prints an error to stderr in the program's name; it may quote strangers, and stderr may be closed."""
    from coupler.cli.output import tell

    try:
        tell(f"{program}: {sentence}")
    except (OSError, ValueError, AttributeError):
        return
