"""What was said in the sessions of a run's agents, for an agent that cannot open such a session again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from coupler.relay.session import shortened, transcript_of_turns
from coupler.workflow.journal.happenings import Place
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Json

ASKED = "asked"
"""The decision that has the session of a step, and what its agent was told."""


class Kept(Protocol):
    """The journal of a run, as far as sessions are concerned."""

    def decisions(self, what: str) -> dict[Place, Json]:
        """The last decision of this name at each step that has one."""
        ...

    def result(self, place: Place) -> Result | None:
        """What became of a step, if it is over."""
        ...


def asked(session_id: str, prompt: str | None, *, after: str | None, told: str | None) -> Json:
    """What a step keeps of its prompt; `after` is the session whose transcript this one began with.

    A conversation has no prompt: what was said in it is its result. `told` stands for the instructions that
    the session has heard.
    """
    return {"session": session_id, "prompt": prompt and shortened(prompt), "after": after, "told": told}


def told_to(session_id: str, kept: Kept) -> str | None:
    """What stands for the instructions that a session has heard last; None if it has heard none."""
    told = [value["told"] for value in kept.decisions(ASKED).values() if value["session"] == session_id]
    return told[-1] if told else None


def transcript_of(session_id: str, kept: Kept) -> str | None:
    """What was said in a session, and in those before whose place it took; None if nothing is known."""
    return transcript_of_turns(reversed([*_turns(session_id, kept)]))


def _turns(session_id: str, kept: Kept) -> Iterator[str]:
    decided = kept.decisions(ASKED)
    after = {value["session"]: value["after"] for value in decided.values() if value["after"]}
    sessions = [session_id]
    while (before := after.get(sessions[-1])) is not None and before not in sessions:
        sessions.append(before)
    for each in reversed(sessions):
        for place, value in decided.items():
            if value["session"] == each:
                yield _told(value["prompt"], kept.result(place))


def _told(prompt: str | None, result: Result | None) -> str:
    if prompt is None:
        return told_turns(result.output if result is not None and isinstance(result.output, list) else [])
    answer = "" if result is None else result.text or ""
    return told_turns([{"role": "user", "text": prompt}, {"role": "agent", "text": answer}])


def told_turns(spoken: list[dict[str, str]]) -> str:
    """A conversation as lines of text."""
    names = {"user": "User", "agent": "You"}
    return "\n".join(f"{names[each['role']]}: {shortened(each['text'])}" for each in spoken if each["text"])
