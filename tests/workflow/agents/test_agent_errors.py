"""What agents fail at: the kinds of steps' errors, and when to try again."""

from __future__ import annotations

from coupler.client.errors import AgentError
from coupler.workflow.agents.agent_events import step_error
from tables import table


@table(
    ("error", "kind", "wait"),
    [
        (AgentError("prompt", "HTTP 429: slow down, retry after 7s"), "rate_limit", 7.0),
        (AgentError("prompt", "rate_limit_error", data={"retryAfter": 3}), "rate_limit", 3.0),
        (AgentError("prompt", "rate limited", data={"retry_after": "2.5"}), "rate_limit", 2.5),
        (AgentError("prompt", "Too Many Requests. Retry-After: 1500 ms"), "rate_limit", 1.5),
        (AgentError("prompt", "usage limit reached, try again in 2 minutes"), "rate_limit", 120.0),
        (AgentError("prompt", "usage limit reached, try again in 1 h"), "rate_limit", 3600.0),
        (AgentError("prompt", "status 429. It wants to be asked again in 45 s."), "rate_limit", 45.0),
        (AgentError("prompt", "quota exceeded, retry after 999999999"), "rate_limit", None),
        (AgentError("died", "it ended", stderr="error 429 Too Many Requests"), "rate_limit", None),
        (AgentError("died", "it ended", stderr="main.js line 429"), "provider", None),
        (AgentError("prompt", "port 4290 is taken"), "provider", None),
        (AgentError("spawn", "the program 'x' was not found"), "not_found", None),
        (AgentError("spawn", "permission denied"), "provider", None),
        (AgentError("prompt", "The program 'claude' was not found. Install it."), "not_found", None),
        (AgentError("output", "it does not fit"), "invalid_output", None),
        (AgentError("budget", "it is spent"), "budget", None),
        (AgentError("deadline", "too late"), "timeout", None),
        (AgentError("refused", "no"), "provider", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_error_of_an_agent_has_its_kind_and_its_wait(
    error: AgentError, kind: str, wait: float | None
) -> None:
    failed = step_error(error, "mine")

    assert (failed.kind, failed.retry_after) == (kind, wait)
    assert error.message in str(failed)
