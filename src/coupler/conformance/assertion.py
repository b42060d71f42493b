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
    """The weight of an assertion; only mandatory ones decide whether the candidate passes."""

    MUST = "M"
    SHOULD = "S"
    ROBUST = "R"


MUST, SHOULD, ROBUST = Level

NEAREST = 3
"""Number of similar ids that are suggested for an unknown one."""

PLAIN_TURN = "plain-turn"
"""Name of the scenario that every client must be able to go through; it is played first."""


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
    """A fault that a rule found, or a note: worth knowing, but no fault."""

    message: str
    entries: tuple[TraceEntry, ...] = ()
    is_note: bool = False


Case: TypeAlias = RuleFinding | None
Rule: TypeAlias = Callable[[Trace], Iterator[Case]]
Probe: TypeAlias = Callable[[Any], Awaitable[None]]

ScenarioScript: TypeAlias = Callable[[ScriptedAgent], Awaitable[None]]


@dataclass(frozen=True)
class Assertion:
    """One assertion. `absent` says, for a rule, what was not seen if it had nothing to judge."""

    id: str
    level: Level
    sentence: str
    section: str
    side: Side
    rule: Rule | None = None
    probe: Probe | None = None
    absent: str = ""


_assertions: dict[Side, dict[str, Assertion]] = {"agent": {}, "client": {}}


def probe(
    id: str, level: Level, sentence: str, section: str, *, side: Side = "agent"
) -> Callable[[Probe], Probe]:
    """Register a function as an assertion that drives the candidate."""

    def register(function: Probe) -> Probe:
        _add(Assertion(id, level, sentence, section, side, probe=function))
        return function

    return register


def rule(
    id: str, level: Level, sentence: str, section: str, *, absent: str, side: Side = "agent"
) -> Callable[[Rule], Rule]:
    """Register a function as an assertion that judges a trace."""

    def register(function: Rule) -> Rule:
        _add(Assertion(id, level, sentence, section, side, rule=function, absent=absent))
        return function

    return register


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


def fault_unless(condition: object, message: str, *entries: TraceEntry) -> Case:
    """Return a rule's case: None if the condition holds, otherwise a fault."""
    return None if condition else RuleFinding(message, entries)


def _add(assertion: Assertion) -> None:
    known = _assertions[assertion.side].get(assertion.id)
    _assertions[assertion.side][assertion.id] = assertion if known is None else _merged(known, assertion)


def _merged(one: Assertion, other: Assertion) -> Assertion:
    clashes = (one.rule and other.rule) or (one.probe and other.probe)
    if clashes or (one.level, one.sentence, one.section) != (other.level, other.sentence, other.section):
        raise ValueError(f"there are two assertions {one.id}")
    return replace(
        one, rule=one.rule or other.rule, probe=one.probe or other.probe, absent=one.absent or other.absent
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
