"""Registers assertions, each a sentence of the protocol with the function that checks it, and scenarios.

There are two kinds of assertions. A *probe* drives the candidate itself: it returns if all is well, raises
`Fault` if not, and `Skip` if it does not apply. A *rule* looks at a trace, whoever made it: it yields one
case for each thing that it judged, None for a good one, and so can also grade a recording. One assertion may
have both, under the same id and with the same sentence. A *scenario* is what an agent does to provoke
something in a client; rules then judge how the client took it. Scenarios stand beside the rules that need
them, in the modules of `conformance.client`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import Side, Trace, TraceEntry


class Level(Enum):
    """The weight of a finding, which alone decides what becomes of it: `must` fails, `should` warns.

    `taste` is only noted: the specification leaves it open, and clients suffer.
    """

    MUST = "must"
    SHOULD = "should"
    TASTE = "taste"


MUST, SHOULD, TASTE = Level

NEAREST = 3
"""Number of similar ids that are suggested for an unknown one."""

PLAIN_TURN = "plain-turn"
"""Name of the scenario that every client must be able to go through; it is played first."""

NOT_PLAYED = "the scenario was not played"


class Fault(Exception):  # noqa: N818
    """Raised when an assertion fails. `level` is for one whose parts matter differently."""

    def __init__(self, message: str, *entries: TraceEntry, level: Level | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.entries = entries
        self.level = level


class UnknownAssertionError(LookupError):
    """No assertion has this id."""

    def __str__(self) -> str:
        return str(self.args[0])


class Skip(Exception):  # noqa: N818
    """Raised when an assertion does not apply, with the reason."""


@dataclass(frozen=True)
class RuleFinding:
    """A fault that a rule found. `level` is for one that weighs less than its assertion."""

    message: str
    entries: tuple[TraceEntry, ...] = ()
    level: Level | None = None


Case: TypeAlias = RuleFinding | None
Rule: TypeAlias = Callable[[Trace], Iterator[Case]]
Probe: TypeAlias = Callable[[Any], Awaitable[None]]

ScenarioScript: TypeAlias = Callable[[ScriptedAgent], Awaitable[None]]


@dataclass(frozen=True)
class Assertion:
    """One assertion. `clause` is the text of the specification that it stands on; none if it is taste.

    `absent` says, for a rule, what was not seen if it had nothing to judge. A rule with `any_version` judges
    also what an agent says that has chosen another version of the protocol than 1.
    """

    id: str
    level: Level
    sentence: str
    section: str
    clause: str
    side: Side
    rule: Rule | None = None
    probe: Probe | None = None
    absent: str = ""
    any_version: bool = False


_assertions: dict[Side, dict[str, Assertion]] = {"agent": {}, "client": {}}


def probe(
    id: str, level: Level, sentence: str, section: str, clause: str = "", *, side: Side = "agent"
) -> Callable[[Probe], Probe]:
    """Register a function as an assertion that drives the candidate."""

    def register(function: Probe) -> Probe:
        _add(Assertion(id, level, sentence, section, clause, side, probe=function))
        return function

    return register


def rule(
    id: str,
    level: Level,
    sentence: str,
    section: str,
    clause: str = "",
    *,
    absent: str,
    side: Side = "agent",
    any_version: bool = False,
) -> Callable[[Rule], Rule]:
    """Register a function as an assertion that judges a trace."""

    def register(function: Rule) -> Rule:
        _add(
            Assertion(
                id,
                level,
                sentence,
                section,
                clause,
                side,
                rule=function,
                absent=absent,
                any_version=any_version,
            )
        )
        return function

    return register


def client_rule(
    id: str, level: Level, sentence: str, section: str, clause: str = "", *, absent: str = NOT_PLAYED
) -> Callable[[Rule], Rule]:
    """Register a function as an assertion that judges how a client took a scenario."""
    return rule(id, level, sentence, section, clause, absent=absent, side="client")


def catalogue(side: Side) -> list[Assertion]:
    """Return all assertions about agents, or about clients, by their ids."""
    package = importlib.import_module(f"coupler.conformance.{side}")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return sorted(_assertions[side].values(), key=lambda assertion: assertion.id)


def chosen(side: Side, ids: Collection[str] = ()) -> list[Assertion]:
    """Return the assertions with these ids, or all; raises UnknownAssertionError."""
    known = {assertion.id: assertion for assertion in catalogue(side)}
    for wanted in ids:
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, NEAREST, cutoff=0.4)
            offer = f"; the nearest are {', '.join(near)}" if near else ""
            raise UnknownAssertionError(f"there is no assertion {wanted}{offer}")
    return [assertion for assertion in known.values() if not ids or assertion.id in ids]


def require(condition: object, message: str, *entries: TraceEntry, level: Level | None = None) -> None:
    """Raise a fault unless the condition holds."""
    if not condition:
        raise Fault(message, *entries, level=level)


def fault_unless(condition: object, message: str, *entries: TraceEntry, level: Level | None = None) -> Case:
    """Return a rule's case: None if the condition holds, otherwise a fault."""
    return None if condition else RuleFinding(message, entries, level)


def _add(assertion: Assertion) -> None:
    if (assertion.level is TASTE) != (not assertion.clause):
        raise ValueError(f"{assertion.id} is taste, or it stands on a clause of the specification")
    known = _assertions[assertion.side].get(assertion.id)
    _assertions[assertion.side][assertion.id] = assertion if known is None else _merged(known, assertion)


def _merged(one: Assertion, other: Assertion) -> Assertion:
    clashes = (one.rule and other.rule) or (one.probe and other.probe)
    same = ("level", "sentence", "section", "clause")
    if clashes or any(getattr(one, name) != getattr(other, name) for name in same):
        raise ValueError(f"there are two assertions {one.id}")
    return replace(
        one,
        rule=one.rule or other.rule,
        probe=one.probe or other.probe,
        absent=one.absent or other.absent,
        any_version=one.any_version or other.any_version,
    )


@dataclass(frozen=True)
class Scenario:
    """Steps of a scripted agent that provoke a client; `look` tells a person at the screen what to do or see.

    `needs_connection`: it changes the handshake or ends the agent, so it cannot be one turn of a chat.
    `needs_person`: only somebody who sees the screen can judge it.
    """

    name: str
    sentence: str
    judged_by: tuple[str, ...]
    play: ScenarioScript
    look: str = ""
    needs_connection: bool = False
    needs_person: bool = False


_scenarios: dict[str, Scenario] = {}


def scenario(
    name: str,
    sentence: str,
    *judged_by: str,
    look: str = "",
    needs_connection: bool = False,
    needs_person: bool = False,
) -> Callable[[ScenarioScript], ScenarioScript]:
    """Register a function as a scenario, named for the command line and judged by these assertions."""

    def register(play: ScenarioScript) -> ScenarioScript:
        if name in _scenarios:
            raise ValueError(f"there are two scenarios {name}")
        _scenarios[name] = Scenario(name, sentence, judged_by, play, look, needs_connection, needs_person)
        return play

    return register


def scenarios() -> list[Scenario]:
    """Return all scenarios, the plain turn first."""
    catalogue("client")
    return sorted(_scenarios.values(), key=lambda each: (each.name != PLAIN_TURN, each.name))
