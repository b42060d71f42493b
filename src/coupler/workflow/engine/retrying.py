"""Whether a failed attempt is worth another one, and when."""

from __future__ import annotations

import random

from coupler.workflow.errors import StepError
from coupler.workflow.language.definition import Retry

NEVER_AGAIN = frozenset({"denied", "cancelled", "budget"})
"""Kinds of errors that another attempt cannot mend, unless `on` names them."""

LONGEST_DELAY = 3600.0
"""Seconds that a provider may make us wait at most."""


def delay_before_next(retry: Retry | None, attempt: int, error: StepError) -> float | None:
    """Seconds until the next attempt, or None if this was the last one."""
    if retry is None or attempt >= retry.attempts or not _is_worth_it(retry, error):
        return None
    delay = min(_grown(retry, attempt), retry.max_delay)
    if retry.jitter:
        delay *= 1 + random.uniform(-retry.jitter, retry.jitter)
    if error.retry_after is not None:
        delay = max(delay, min(error.retry_after, LONGEST_DELAY))
    return delay


def _is_worth_it(retry: Retry, error: StepError) -> bool:
    if not retry.on:
        return error.kind not in NEVER_AGAIN
    return error.kind in retry.on or (error.exit_code is not None and error.exit_code in retry.on)


def _grown(retry: Retry, attempt: int) -> float:
    match retry.backoff:
        case "constant":
            return retry.delay
        case "linear":
            return retry.delay * attempt
        case "exponential":
            # Capped before it grows: 2.0 to a high power is too large for a float.
            return retry.delay * 2.0 ** min(attempt - 1, 64)
