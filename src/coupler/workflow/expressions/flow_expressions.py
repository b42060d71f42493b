"""What loops and conditions ask of expressions, and the way in which a rehearsal answers it.

In a rehearsal nothing runs, so what a step would give is not known: a mark stands for it, and what cannot
be decided is taken as it was written, as true, and as one item or one round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coupler.workflow.errors import StepError
from coupler.workflow.expressions.expression import Expressions
from coupler.workflow.expressions.references import references_of_expression
from coupler.workflow.expressions.values import kind_of
from coupler.workflow.language.definition import Json

MOST_ITEMS = 100_000
"""How many items a `for_each` may go through."""


class FlowExpressions(Expressions):
    """Of a run that really runs."""

    goes_back = True
    """Whether a `goto` to an earlier step is followed."""

    def items(self, items: str | Sequence[Json], names: Mapping[str, object]) -> list[Json]:
        """What a `for_each` goes through."""
        value = self.evaluate(items, names) if isinstance(items, str) else self.value(list(items), names)
        if not isinstance(value, list | tuple):
            raise StepError("template", f"`for_each` needs a list, and `{items}` is {kind_of(value)}")
        if len(value) > MOST_ITEMS:
            raise StepError("budget", f"`for_each` takes {MOST_ITEMS} items at most, not {len(value)}")
        return list(value)

    def goes_on(self, test: str | bool, names: Mapping[str, object], rounds: int) -> bool:
        """Whether a `while` goes round once more, after so many rounds."""
        return self.test(test, names)


class RehearsedExpressions(FlowExpressions):
    """Of a run in which nothing is started."""

    goes_back = False

    def text(self, template: str, names: Mapping[str, object]) -> str:
        try:
            return super().text(template, names)
        except StepError:
            return template

    def value(self, template: Json, names: Mapping[str, object]) -> Json:
        try:
            return super().value(template, names)
        except StepError:
            return template

    def evaluate(self, expression: str, names: Mapping[str, object]) -> Json:
        try:
            return super().evaluate(expression, names)
        except StepError:
            return f"«{expression}»"

    def test(self, expression: str | bool, names: Mapping[str, object]) -> bool:
        if isinstance(expression, str) and _is_undecided(expression, names):
            return True
        try:
            return super().test(expression, names)
        except StepError:
            return True

    def items(self, items: str | Sequence[Json], names: Mapping[str, object]) -> list[Json]:
        try:
            return super().items(items, names)
        except StepError:
            return ["«item»"]

    def goes_on(self, test: str | bool, names: Mapping[str, object], rounds: int) -> bool:
        return rounds == 0 and super().goes_on(test, names, rounds)


def _is_undecided(expression: str, names: Mapping[str, object]) -> bool:
    """Whether it asks for what became of a step that was not run."""
    steps = names.get("steps")
    if not isinstance(steps, Mapping):
        return False
    asked = {each.names[1] for each in references_of_expression(expression) if _names_a_step(each.names)}
    return any(step in steps and steps[step]["stdout"] == unknown(str(step), "stdout") for step in asked)


def _names_a_step(names: tuple[str | int, ...]) -> bool:
    return len(names) > 1 and names[0] == "steps"


def unknown(id: str, field: str) -> str:
    """The mark that stands for what a step would have given."""
    return f"«steps.{id}.{field}»"
