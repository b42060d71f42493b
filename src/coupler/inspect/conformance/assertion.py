"""An assertion: one sentence of the protocol, and the function that finds out whether it is kept.

There are two kinds. A *probe* drives the candidate itself: it returns if all is well, raises `Fault` if not,
and `Skip` if it does not apply. A *rule* looks at a trace, whoever made it: it yields one case for each thing
that it judged, None for a good one, and so can also grade a recording. One assertion may have both, under the
same id and with the same sentence.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from coupler.inspect.trace import Entry, Side, Trace


class Level(Enum):
    """How much an assertion matters. Only a mandatory one decides whether the candidate passes."""

    MUST = "M"
    SHOULD = "S"
    ROBUST = "R"


MUST, SHOULD, ROBUST = Level

NEAREST = 3
"""How many ids are offered for one that there is not."""


class Fault(Exception):  # noqa: N818
    """The assertion does not hold. `level` is for one whose parts matter differently."""

    def __init__(self, message: str, *entries: Entry, level: Level | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.entries = entries
        self.level = level


class UnknownAssertionError(LookupError):
    """An id that no assertion has."""

    def __str__(self) -> str:
        return str(self.args[0])


class Skip(Exception):  # noqa: N818
    """The assertion does not apply, and why."""


@dataclass(frozen=True)
class Finding:
    """What a rule found. A note is worth knowing, but no fault."""

    message: str
    entries: tuple[Entry, ...] = ()
    is_note: bool = False


Case: TypeAlias = Finding | None
Rule: TypeAlias = Callable[[Trace], Iterator[Case]]
Probe: TypeAlias = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Assertion:
    """What is asserted. `absent` says, for a rule, what was not seen if it had nothing to judge."""

    id: str
    level: Level
    sentence: str
    section: str
    side: Side
    rule: Rule | None = None
    probe: Probe | None = None
    absent: str = ""


_found: dict[Side, dict[str, Assertion]] = {"agent": {}, "client": {}}


def probe(
    id: str, level: Level, sentence: str, section: str, *, side: Side = "agent"
) -> Callable[[Probe], Probe]:
    """Make a function an assertion that drives the candidate."""

    def register(function: Probe) -> Probe:
        _add(Assertion(id, level, sentence, section, side, probe=function))
        return function

    return register


def rule(
    id: str, level: Level, sentence: str, section: str, *, absent: str, side: Side = "agent"
) -> Callable[[Rule], Rule]:
    """Make a function an assertion that judges a trace."""

    def register(function: Rule) -> Rule:
        _add(Assertion(id, level, sentence, section, side, rule=function, absent=absent))
        return function

    return register


def catalogue(side: Side) -> list[Assertion]:
    """All assertions about agents, or about clients, by their ids."""
    package = importlib.import_module(f"coupler.inspect.conformance.{side}")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return sorted(_found[side].values(), key=lambda assertion: assertion.id)


def chosen(side: Side, ids: Collection[str] = ()) -> list[Assertion]:
    """The assertions with these ids, or all; raises UnknownAssertionError."""
    known = {assertion.id: assertion for assertion in catalogue(side)}
    for wanted in ids:
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, NEAREST, cutoff=0.4)
            offer = f"; the nearest are {', '.join(near)}" if near else ""
            raise UnknownAssertionError(f"there is no assertion {wanted}{offer}")
    return [assertion for assertion in known.values() if not ids or assertion.id in ids]


def require(condition: object, message: str, *entries: Entry, level: Level | None = None) -> None:
    """Raise a fault unless the condition holds."""
    if not condition:
        raise Fault(message, *entries, level=level)


def fault_unless(condition: object, message: str, *entries: Entry) -> Case:
    """A rule's case: good if the condition holds."""
    return None if condition else Finding(message, entries)


def _add(assertion: Assertion) -> None:
    known = _found[assertion.side].get(assertion.id)
    _found[assertion.side][assertion.id] = assertion if known is None else _merged(known, assertion)


def _merged(one: Assertion, other: Assertion) -> Assertion:
    clashes = (one.rule and other.rule) or (one.probe and other.probe)
    if clashes or (one.level, one.sentence, one.section) != (other.level, other.sentence, other.section):
        raise ValueError(f"there are two assertions {one.id}")
    return replace(
        one, rule=one.rule or other.rule, probe=one.probe or other.probe, absent=one.absent or other.absent
    )
