"""What agents fail at, in the words and kinds of steps. What had come of an answer is part of the error."""

from __future__ import annotations

import re
import shlex
from typing import Any

from coupler.client.errors import AgentError
from coupler.workflow.errors import StepError
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import ErrorKind

LOGIN_WANTED = -32000
"""The code by which agents say that somebody has to log in first."""

LONGEST_WAIT = 24 * 60 * 60.0
"""Seconds that a provider may ask us to wait; whoever says more is not believed."""

_KINDS: dict[str, ErrorKind] = {
    "output": "invalid_output",
    "budget": "budget",
    "deadline": "timeout",
    "cancelled": "cancelled",
}
_OF_PROVIDERS = frozenset({"initialize", "session", "prompt", "died", "limit"})

_LIMITED = re.compile(
    r"\brate[ _-]?limit|\btoo many requests\b|\busage limit\b|\bquota\b.{0,40}\bexceeded\b"
    r"|\bexceeded\b.{0,40}\bquota\b|\b(?:http|status|code|error)\W{0,3}429\b",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\b429\b")
_WAIT = re.compile(
    r"""\b(?:retry[ _-]?after["']?\s*[:=]?\s*|(?:again|retry)\s+(?:in|after)\s+)["']?"""
    r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?)?\b",
    re.IGNORECASE,
)
_MISSING = re.compile(r"\bwas not found\b|\bis not installed\b|\bthere is no agent\b|\bdoes not exist\b")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def step_error(error: AgentError, agent: str, result: Result | None = None) -> StepError:
    """The failure of a step by its agent."""
    message = str(error)
    kind = _kind_of(error)
    if error.code == LOGIN_WANTED:
        message = f"{message}\nIt wants a login: run `coupler login {shlex.quote(agent)}`"
    wait = _wait_in(f"{message}\n{error.data or ''}") if kind == "rate_limit" else None
    return StepError(kind, message, retry_after=wait, result=result)


def _kind_of(error: AgentError) -> ErrorKind:
    if error.kind in _KINDS:
        return _KINDS[error.kind]
    if error.kind == "spawn" or (error.kind == "prompt" and "The program " in error.message):
        return "not_found" if _MISSING.search(error.message) else "provider"
    if error.kind in _OF_PROVIDERS and _is_limited(error):
        return "rate_limit"
    return "provider"


def _is_limited(error: AgentError) -> bool:
    # A number alone may be anything in what a program writes besides its answer.
    said = f"{error.message}\n{_words_of(error.data)}"
    return _LIMITED.search(f"{said}\n{error.stderr}") is not None or _NUMBERED.search(said) is not None


def _words_of(data: Any) -> str:
    return "" if data is None else str(data)[:10_000]


def _wait_in(text: str) -> float | None:
    found = _WAIT.search(text)
    if found is None:
        return None
    unit = (found[2] or "s").lower()
    scale = _UNITS["ms"] if unit.startswith(("ms", "mil")) else _UNITS[unit[0]]
    wait = float(found[1]) * scale
    return wait if wait <= LONGEST_WAIT else None
