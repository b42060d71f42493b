"""What came of a task that was given to another agent."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

Status: TypeAlias = Literal["completed", "stopped", "failed", "cancelled"]
"""Stopped is an agent that has answered, and would have needed more turns or tokens for it."""

LONGEST_TEXT = 100_000
"""Characters of a report that the model gets."""

SAID_NOTHING = "(It has said nothing.)"

_WORDS: dict[Status, str] = {"completed": "done"}
_STOPPED = {
    "max_turn_requests": "It was stopped because it has used all turns that it had.",
    "max_tokens": "It was stopped because its answer became too long.",
    "refusal": "It refused to go on.",
    "cancelled": "It was cancelled.",
}


class Outcome(NamedTuple):
    """How an agent has ended its work, and what it reports."""

    status: Status
    text: str
    turns: int
    """How often its model was asked; of another program, how often it spoke or acted after a tool."""
    stop_reason: str | None = None

    @property
    def in_short(self) -> str:
        """For the end of a title."""
        turns = f"{self.turns} turn{'' if self.turns == 1 else 's'}"
        return f"{_WORDS.get(self.status, self.status)}, {turns}"

    def for_model(self, agent: str) -> str:
        """What the model that has given the task reads."""
        text = self.text.strip() or SAID_NOTHING
        if len(text) > LONGEST_TEXT:
            left = len(text) - LONGEST_TEXT
            text = f"{text[:LONGEST_TEXT]}\n… ({left} characters of the report were left out)"
        if self.status == "failed":
            return f"{agent} could not carry out the task: {text}"
        note = _STOPPED.get(self.stop_reason or "")
        return text if note is None else f"{text}\n\n({note} What it says may be incomplete.)"

    def for_programs(self, agent: str) -> dict[str, Any]:
        """What clients get as the call's raw output."""
        return {
            "agent": agent,
            "status": self.status,
            "turns": self.turns,
            "stop_reason": self.stop_reason,
        }


class Work(Protocol):
    """A task in the hands of an agent."""

    @property
    def turns(self) -> int:
        """How many turns it has taken so far."""
        ...

    async def done(self, task: str) -> Outcome:
        """Have the task carried out; whatever goes wrong is an outcome, and only a cancel is raised."""
        ...
