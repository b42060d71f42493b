"""What agents fail at: the kinds of steps' errors, and when to try again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from coupler.client.errors import AgentError
from coupler.workflow.agents.agent_events import step_error
from tables import table
from workflow.agent_stage import Script
from workflow.project import Project


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


@table(
    ("said", "told"),
    [
        ("the agent refused session/prompt: Boom (-32603)", "the agent failed: Boom"),
        (
            'the agent refused session/new: Internal error (-32603): {"details": "no key"}',
            'the agent opened no session: Internal error: {"details": "no key"}',
        ),
        ("the agent refused initialize: old (-32600)", "the agent could not be started: old"),
        (
            "the agent ended before it answered session/prompt: exit code 3",
            "the agent ended before it answered the prompt: exit code 3",
        ),
        (
            "the agent did not answer session/new within 3.0 s",
            "the agent did not answer when it was started within 3.0 s",
        ),
        (
            "the agent's answer to session/prompt cannot be read: x",
            "the agent's answer to the prompt cannot be read: x",
        ),
        (
            "the agent's answer is not what was asked for, x; its words are in `reply.text`",
            "the agent's answer is not what was asked for, x; its words are the `text` of the step",
        ),
        # What the agent says itself stays as it is.
        (
            "the agent refused session/prompt: see session/new (1) (-32603)",
            "the agent failed: see session/new (1)",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_error_is_told_in_terms_of_the_step(said: str, told: str) -> None:
    code = -32600 if "-32600" in said else -32603
    assert str(step_error(AgentError("prompt", said, code=code), "mine")) == told


def test_a_run_tells_of_an_agent_that_fails_without_words_of_the_protocol(
    script: Script, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    agent = script("for prompt in prompts():\n    send(error(prompt, -32603, 'The key is not valid'))")
    command = json.dumps(shlex.join(agent.command))
    project.write("flow.yaml", f"steps: [{{id: ask, agent: {command}, prompt: go}}]")

    told = project.coupler_text("run", "./flow.yaml").stderr

    assert "coupler run: ask: the agent failed: The key is not valid\n" in told
    assert "session/" not in told
    assert "-32603" not in told
