"""Matches regular expressions in bounded time.

Python's own engine tries one way after the other, and a few characters can keep it, and with it the whole
process, busy for ever. Here all ways are followed at once, one character after the other. What only
backtracking can do, such as looking around or back, is refused when the pattern is made.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple, TypeAlias

LONGEST_PATTERN = 1_000
"""Characters of a pattern, at most."""
LONGEST_MATCHED = 4_096
"""Characters of a text that is matched, at most."""
MOST_STATES = 2_000
"""States of a pattern, with repetitions written out, at most."""
MOST_STEPS = 250_000
"""Comparisons that one text may take: about a tenth of a second."""

LINE_ENDS = "\n\r\u2028\u2029"
SPACES = " \t\n\r\f\v\u00a0\ufeff\u2028\u2029"

Test: TypeAlias = Callable[[str], bool]


class _State(NamedTuple):
    """A state of the automaton: a test of the next character or of the position, and the next states."""

    test: Test | None
    position: Callable[[str, int], bool] | None
    to: tuple[int, ...]
    cost: int = 1


class Pattern:
    """A pattern as JSON Schema means it: found anywhere in the text unless it is anchored."""

    def __init__(self, source: str) -> None:
        if len(source) > LONGEST_PATTERN:
            raise ValueError(f"the pattern has more than {LONGEST_PATTERN} characters: shorten it")
        self.source = source
        self._states: list[_State] = []
        self._end = self._add()
        try:
            self._start = self._sequence(_parse(source), self._end)
        except RecursionError:
            raise ValueError("the pattern is nested too deep: write it with fewer groups") from None

    def __repr__(self) -> str:
        return f"Pattern({self.source!r})"

    def found_in(self, text: str) -> bool:
        """Tell whether it occurs in the text; False for a text that would take too long to search."""
        if len(text) > LONGEST_MATCHED:
            return False
        steps = MOST_STEPS
        places: set[int] = set()
        for position in range(len(text) + 1):
            reached = self._reach({*places, self._start}, text, position)
            steps -= sum(self._states[place].cost for place in reached)
            if self._end in reached:
                return True
            if steps < 0 or position == len(text):
                return False
            places = self._step(reached, text[position])
        return False

    def _reach(self, places: Iterable[int], text: str, position: int) -> set[int]:
        """Return these states and all that can be reached from them without a character."""
        reached: set[int] = set()
        open_places = list(places)
        while open_places:
            place = open_places.pop()
            if place in reached:
                continue
            reached.add(place)
            state = self._states[place]
            if state.test is None and (state.position is None or state.position(text, position)):
                open_places.extend(state.to)
        return reached

    def _step(self, places: Iterable[int], character: str) -> set[int]:
        following: set[int] = set()
        for place in places:
            state = self._states[place]
            if state.test is not None and state.test(character):
                following.update(state.to)
        return following

    # Each of these adds what one part of the pattern needs, in front of the place `to`, and returns where
    # the part begins.

    def _add(
        self,
        *to: int,
        test: Test | None = None,
        position: Callable[[str, int], bool] | None = None,
        cost: int = 1,
    ) -> int:
        if len(self._states) >= MOST_STATES:
            raise ValueError(f"the pattern has more than {MOST_STATES} places: repeat less")
        self._states.append(_State(test, position, to, cost))
        return len(self._states) - 1

    def _sequence(self, parts: Iterable[tuple[Any, Any]], to: int) -> int:
        for part in reversed(list(parts)):
            to = self._part(part, to)
        return to

    def _part(self, part: tuple[Any, Any], to: int) -> int:
        kind, argument = str(part[0]), part[1]
        match kind:
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(argument, to)
            case "BRANCH":
                return self._add(*(self._sequence(branch, to) for branch in argument[1]))
            case "SUBPATTERN":
                _, added, removed, parts = argument
                if added or removed:
                    raise ValueError("the pattern sets flags: write what they mean into the pattern")
                return self._sequence(parts, to)
            case "AT":
                return self._add(to, position=_position(str(argument)))
        cost = len(argument) if kind == "IN" else 1
        return self._add(to, test=_test(kind, argument), cost=cost)

    def _repeat(self, argument: tuple[int, int, Any], to: int) -> int:
        least, most, parts = argument
        if str(most) == "MAXREPEAT":
            loop = self._add()
            body = self._sequence(parts, loop)
            self._states[loop] = _State(None, None, (body, to))
            start = loop
        else:
            start = to
            for _ in range(most - least):
                start = self._add(self._sequence(parts, start), to)
        for _ in range(least):
            # The place of its own makes repetitions of nothing count, too.
            start = self._add(self._sequence(parts, start))
        return start


def _parse(source: str) -> Any:
    try:
        with warnings.catch_warnings():
            # Python means to read `[[` differently one day; clients do not.
            warnings.simplefilter("ignore", FutureWarning)
            parsed = _parser.parse(source)
    except (re.error, OverflowError) as error:
        raise ValueError(f"the pattern cannot be read: {error}") from None
    if parsed.state.flags & ~re.UNICODE.value:
        raise ValueError("the pattern sets flags: write what they mean into the pattern")
    if parsed.state.groupdict:
        raise ValueError("the pattern has named groups, which clients do not know: take the names out")
    return parsed


def _test(kind: str, argument: Any) -> Test:
    match kind:
        case "LITERAL":
            literal = chr(argument)
            return lambda character: character == literal
        case "NOT_LITERAL":
            excluded = chr(argument)
            return lambda character: character != excluded
        case "ANY":
            return lambda character: character not in LINE_ENDS
        case "IN":
            return _one_of(argument)
        case "CATEGORY":
            return _category(str(argument))
        case "RANGE":
            first, last = chr(argument[0]), chr(argument[1])
            return lambda character: first <= character <= last
    what = kind.lower().replace("_", " ")
    raise ValueError(f"the pattern uses {what}, which cannot be matched in bounded time: write it without")


def _one_of(items: list[tuple[Any, Any]]) -> Test:
    negated = bool(items) and str(items[0][0]) == "NEGATE"
    tests = [_test(str(kind), argument) for kind, argument in items[negated:]]
    return lambda character: any(test(character) for test in tests) is not negated


def _category(name: str) -> Test:
    """Return the test of a character class as JavaScript has it, like clients: digits and words are ASCII."""
    test = _CATEGORIES[name.replace("_NOT_", "_")]
    return (lambda character: not test(character)) if "_NOT_" in name else test


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _is_digit(character: str) -> bool:
    return character.isascii() and character.isdigit()


def _is_space(character: str) -> bool:
    return character in SPACES


_CATEGORIES: dict[str, Test] = {
    "CATEGORY_WORD": _is_word,
    "CATEGORY_DIGIT": _is_digit,
    "CATEGORY_SPACE": _is_space,
}


def _position(name: str) -> Callable[[str, int], bool]:
    if name not in _POSITIONS:
        raise ValueError("the pattern has anchors that clients do not know: use ^ and $")
    return _POSITIONS[name]


def _is_at_boundary(text: str, position: int) -> bool:
    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return before is not after


_POSITIONS: dict[str, Callable[[str, int], bool]] = {
    "AT_BEGINNING": lambda text, position: position == 0,
    "AT_END": lambda text, position: position == len(text),
    "AT_BOUNDARY": _is_at_boundary,
    "AT_NON_BOUNDARY": lambda text, position: not _is_at_boundary(text, position),
}
