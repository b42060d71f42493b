"""The exit codes of `coupler exec`: one table, for the program, its help and its manual."""

from __future__ import annotations

from typing import NamedTuple

from coupler.client.errors import AgentError

DONE, FAILED, WRONG_USAGE, REFUSED, LIMIT, DENIED, NO_OUTPUT, BUDGET, DIED, CANNOT_START, NO_LOGIN = range(11)
TIMEOUT, INTERRUPTED, BROKEN_PIPE, TERMINATED = 124, 130, 141, 143

AUTH_REQUIRED = -32000
"""The code of the error by which an agent asks for a login."""


class ExitCode(NamedTuple):
    """A code, and when the program ends with it."""

    code: int
    sentence: str


EXIT_CODES = (
    ExitCode(DONE, "the agent is done (end_turn)"),
    ExitCode(FAILED, "the agent answered with an error, or anything not told below"),
    ExitCode(WRONG_USAGE, "wrong usage"),
    ExitCode(REFUSED, "the agent refused (refusal)"),
    ExitCode(LIMIT, "the agent reached a limit of its own (max_tokens, max_turn_requests)"),
    ExitCode(DENIED, "the agent is done, but something was denied, and --fail-on-denial was given"),
    ExitCode(NO_OUTPUT, "the answer does not fit --schema"),
    ExitCode(BUDGET, "the --budget is spent"),
    ExitCode(DIED, "the agent's process ended before it had answered"),
    ExitCode(CANNOT_START, "the agent cannot be started, or does not speak ACP"),
    ExitCode(NO_LOGIN, "the agent wants a login: run coupler login"),
    ExitCode(TIMEOUT, "--timeout has passed"),
    ExitCode(INTERRUPTED, "cancelled, by Ctrl-C or by the agent"),
    ExitCode(BROKEN_PIPE, "nobody reads what is written"),
    ExitCode(TERMINATED, "ended by SIGTERM"),
)

_OF_STOPS = {
    "end_turn": DONE,
    "refusal": REFUSED,
    "max_tokens": LIMIT,
    "max_turn_requests": LIMIT,
    "cancelled": INTERRUPTED,
}
_OF_ERRORS = {
    "spawn": CANNOT_START,
    "initialize": CANNOT_START,
    "died": DIED,
    "output": NO_OUTPUT,
    "budget": BUDGET,
    "deadline": TIMEOUT,
    "refused": REFUSED,
    "limit": LIMIT,
    "cancelled": INTERRUPTED,
}


def code_of_stop(reason: str) -> int:
    """For a turn that ended so; a reason that this version does not know is no success."""
    return _OF_STOPS.get(reason, FAILED)


def code_of_error(error: AgentError) -> int:
    """For a turn, a session or an agent that failed so."""
    if error.code == AUTH_REQUIRED:
        return NO_LOGIN
    return _OF_ERRORS.get(error.kind, FAILED)


def table() -> str:
    """All of them, for the help."""
    return "\n".join(f"{each.code:>5}  {each.sentence}" for each in EXIT_CODES)
