"""Which steps of a list can come after which, by what is written: `goto`, `on_error`, `if` and `stop`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coupler.workflow.language.definition import (
    Agent,
    Approve,
    Defaults,
    Gate,
    Goto,
    OnError,
    Run,
    Step,
    Stop,
)


class Succession:
    """The ways through one list of steps."""

    def __init__(self, steps: Sequence[Step], defaults: Defaults) -> None:
        self._length = len(steps)
        numbers = {step.id: number for number, step in enumerate(steps)}
        self._next = [_next_of(step, number, numbers, defaults) for number, step in enumerate(steps)]
        self._is_straight = all(ways == (number + 1,) for number, ways in enumerate(self._next))
        self._after: dict[int, frozenset[int]] = {}
        self.reached = self._all_reached()
        """The steps that can come at all."""

    def can_precede(self, earlier: int, later: int) -> bool:
        """Whether one step can be over when another one begins; it may be the same, in a round."""
        if self._is_straight:
            return earlier < later
        if later == self._length:
            return earlier in self.reached
        if later not in self.reached:
            # Nothing leads there, which is told by itself: its names are judged as if something did.
            return earlier < later
        return earlier in self.reached and later in self._all_after(earlier)

    def _all_reached(self) -> frozenset[int]:
        if self._is_straight:
            return frozenset(range(self._length))
        return frozenset({0}) | self._all_after(0)

    def _all_after(self, number: int) -> frozenset[int]:
        if number not in self._after:
            found: set[int] = set()
            waiting = [*self._next[number]]
            while waiting:
                each = waiting.pop()
                if each < self._length and each not in found:
                    found.add(each)
                    waiting.extend(self._next[each])
            self._after[number] = frozenset(found)
        return self._after[number]


def _next_of(step: Step, number: int, numbers: Mapping[str, int], defaults: Defaults) -> tuple[int, ...]:
    """Where it can go on from a step; the list's length is its end."""
    targets = [target.step for target in targets_of(step)]
    # A target that is not there is told by itself, and does not make the steps after it unreachable.
    goes_straight_on = goes_on(step, defaults) or any(each not in numbers for each in targets)
    return (
        *([number + 1] if goes_straight_on else []),
        *(numbers[each] for each in targets if each in numbers),
    )


def targets_of(step: Step) -> list[Goto]:
    """Where a step says that it goes on."""
    found = [] if step.goto is None else [step.goto]
    if step.on_error is not None:
        handlings = [step.on_error.default, *step.on_error.of_kinds.values()]
        found += [each for each in handlings if isinstance(each, Goto)]
    return found


def goes_on(step: Step, defaults: Defaults) -> bool:
    """Whether the next step of the list can come after this one."""
    if not isinstance(step, Stop) and step.goto is None:
        return True
    return _can_be_left_out(step) or _continues(on_error_of(step, defaults))


def on_error_of(step: Step, defaults: Defaults) -> OnError | None:
    """The workflow's defaults hold for steps that work, and not for those that ask or hold others."""
    return step.on_error or (defaults.on_error if isinstance(step, Run | Agent) else None)


def _can_be_left_out(step: Step) -> bool:
    return step.condition not in (None, True) or any(gate.on_deny == "skip" for gate in _gates(step))


def _gates(step: Step) -> Iterator[Gate]:
    if isinstance(step, Approve):
        yield step.question
    if step.gate is not None:
        yield step.gate


def _continues(on_error: OnError | None) -> bool:
    return on_error is not None and "continue" in (on_error.default, *on_error.of_kinds.values())
