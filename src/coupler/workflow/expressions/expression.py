"""Renders templates and evaluates expressions over the values of a run, bounded in time and memory.

The language is Jinja2's: `{{ }}` stands in text, expressions stand bare in `if`, `while`, `for_each` and
`set`. Names that are not there are errors, and so is null in the midst of text. A value that is one whole `{{
}}` keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from coupler.runtime.extras import import_extra
from coupler.runtime.formatting import printable
from coupler.workflow.errors import StepError, UnknownNameError
from coupler.workflow.expressions.values import (
    Bounds,
    EvaluationError,
    MissingNameError,
    as_json,
    as_text,
    kind_of,
)
from coupler.workflow.language.model import Json

if TYPE_CHECKING:
    from jinja2 import nodes


LONGEST_SHOWN = 120
"""Characters of an expression that a sentence about it shows."""

Names = Mapping[str, object]
Write = Callable[[object, Bounds, str], str]
"""Makes text of a value; the last argument is the expression that has given it."""


class Expressions:
    """Renders and evaluates for one run; templates that come again are parsed once."""

    def __init__(self) -> None:
        import_extra("jinja2", extra="workflows", feature="a workflow")

    def text(self, template: str, names: Names) -> str:
        """A template as text; lists and mappings in it are JSON."""
        return self.render(template, names, lambda value, bounds, source: as_text(value, bounds))

    def render(self, template: str, names: Names, write: Write) -> str:
        """A template as text, in which each value is written as the caller wants it."""
        from coupler.workflow.expressions.evaluation import Evaluation, parse

        if is_plain(template):
            return template
        with _failures(template):
            parsed = parse(template)
            evaluation = Evaluation(names)

            def written(value: Callable[[], object], node: nodes.Node) -> str:
                source = parsed.source_of(node)
                with _failures(source, "{{ ", " }}"):
                    return write(value(), evaluation.bounds, source)

            return evaluation.bounds.collect(evaluation.render(parsed.body, written))

    def value(self, template: Json, names: Names) -> Json:
        """Render all texts in lists and mappings; a text that is one whole `{{ }}` becomes its value."""
        match template:
            case str():
                return self._value_of_text(template, names)
            case list() | tuple():
                return [self.value(item, names) for item in template]
            case Mapping():
                return {key: self.value(item, names) for key, item in template.items()}
        return template

    def evaluate(self, expression: str, names: Names) -> Json:
        """Return the value of a bare expression."""
        from coupler.workflow.expressions.evaluation import parse_expression

        with _failures(expression):
            return _evaluate(parse_expression(expression), names)

    def test(self, expression: str | bool, names: Names) -> bool:
        """Tell whether an expression counts as true: null, zero and what is empty do not."""
        if isinstance(expression, bool):
            return expression
        return bool(self.evaluate(expression, names))

    def _value_of_text(self, template: str, names: Names) -> Json:
        from coupler.workflow.expressions.evaluation import parse

        if is_plain(template):
            return template
        with _failures(template):
            whole = parse(template).whole
            if whole is not None:
                return _evaluate(whole, names)
        return self.text(template, names)


def problem_in(template: str) -> tuple[str, int] | None:
    """Return the syntax error of a template and its line, from 1; None if there is none."""
    from coupler.workflow.expressions.evaluation import parse

    return None if is_plain(template) else _problem(parse, template)


def expression_problem(expression: str) -> tuple[str, int] | None:
    """Return the syntax error of a bare expression and its line."""
    from coupler.workflow.expressions.evaluation import parse_expression

    return _problem(parse_expression, expression)


def _problem(parse: Callable[[str], object], text: str) -> tuple[str, int] | None:
    from coupler.workflow.expressions.evaluation import ParseError

    try:
        parse(text)
    except ParseError as problem:
        return problem.message, problem.line
    return None


def is_plain(text: str) -> bool:
    """Tell whether a text is no template at all."""
    return "{{" not in text and "{%" not in text


def _evaluate(node: nodes.Expr, names: Names) -> Json:
    from coupler.workflow.expressions.evaluation import Evaluation

    evaluation = Evaluation(names)
    return as_json(evaluation.value(node), evaluation.bounds)


@contextmanager
def _failures(expression: str, before: str = "", after: str = "") -> Iterator[None]:
    """Turn whatever an expression raises into the failure of its step."""
    from coupler.workflow.expressions.evaluation import ParseError

    where = f"`{before}{printable(expression, LONGEST_SHOWN)}{after}`"
    try:
        yield
    except StepError:
        raise
    except MissingNameError as error:
        raise UnknownNameError(f"{where}: {error}") from None
    except EvaluationError as error:
        raise StepError("template", f"{where}: {error}") from None
    except ParseError as error:
        line = f" in line {error.line}" if error.line > 1 else ""
        raise StepError("template", f"{where}{line}: {error}") from None
    except RecursionError:
        raise StepError("template", f"{where}: it is nested too deep: split it into steps") from None
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError, AttributeError) as error:
        # Operations on values of the wrong type, or arguments that a filter does not take.
        raise StepError("template", f"{where}: {printable(str(error))}") from None


ReferencePath = tuple[str | int, ...]


class Reference(NamedTuple):
    """A name and what is taken of it, as in `steps.diff.stdout`, up to where it is only known at run time."""

    names: ReferencePath
    line: int
    """Line in the template, from 1."""
    guarded: bool = False
    """True if it may be undefined, because `is defined` or `default(…)` follows."""


def references(template: str) -> list[Reference]:
    """Return all names that a text with `{{ }}` uses, in its order; none if it cannot be parsed."""
    from coupler.workflow.expressions.evaluation import ParseError, parse

    try:
        return [] if is_plain(template) else _references(*parse(template).body)
    except ParseError:
        return []


def references_of_expression(expression: str) -> list[Reference]:
    """Return all names that a bare expression uses, in its order; none if it cannot be parsed."""
    from coupler.workflow.expressions.evaluation import ParseError, parse_expression

    try:
        return _references(parse_expression(expression))
    except ParseError:
        return []


def _references(*parsed: nodes.Node) -> list[Reference]:
    """The names that are the run's, without those that the template itself gives to something."""
    from jinja2 import nodes

    own = {"range"}
    for node in parsed:
        own.update(name.name for name in node.find_all(nodes.Name) if name.ctx == "store")
        if isinstance(node, nodes.For) or node.find(nodes.For):
            own.add("loop")
    found = (reference for node in parsed for reference in _found(node, False))
    return [reference for reference in found if reference.names[0] not in own]


def _found(node: nodes.Node, guarded: bool) -> Iterator[Reference]:
    from jinja2 import nodes

    match node:
        case nodes.Name(ctx="load"):
            yield Reference((node.name,), node.lineno, guarded)
        case nodes.Getattr() | nodes.Getitem():
            yield from _path(node, guarded)
        case nodes.Call(node=nodes.Getattr() as method):
            # What is called is a method, and no part of the value.
            yield from _found(method.node, guarded)
            yield from _all_found([*node.args, *node.kwargs])
        case nodes.Filter(name="default" | "d", node=nodes.Node() as value):
            yield from _found(value, True)
            yield from _all_found([*node.args, *node.kwargs])
        case nodes.Test(name="defined" | "undefined"):
            yield from _found(node.node, True)
        case _:
            yield from _all_found(node.iter_child_nodes())


def _all_found(inner: Iterator[nodes.Node] | list[nodes.Node]) -> Iterator[Reference]:
    for node in inner:
        yield from _found(node, False)


def _path(node: nodes.Getattr | nodes.Getitem, guarded: bool) -> Iterator[Reference]:
    """The reference that ends here, and those of the keys that are expressions themselves."""
    from jinja2 import nodes

    names: list[str | int] = []
    keys: list[nodes.Node] = []
    inner: nodes.Node = node
    while isinstance(inner, nodes.Getattr | nodes.Getitem):
        match inner:
            case nodes.Getattr():
                names.insert(0, inner.attr)
            case nodes.Getitem(arg=nodes.Const(value=str() | int() as key)):
                names.insert(0, key)
            case nodes.Getitem():
                names.clear()
                keys.append(inner.arg)
        inner = inner.node
    if isinstance(inner, nodes.Name):
        yield Reference((inner.name, *names), inner.lineno, guarded)
    else:
        yield from _found(inner, guarded)
    yield from _all_found(keys)


REHEARSED_FIELDS = frozenset((field,) for field in ("stdout", "stderr", "text", "exit_code", "approved"))
"""What a step has in a dry run, too."""

MOST_ITEMS = 100_000
"""Most items of a `for_each`."""


class FlowExpressions(Expressions):
    """Evaluates the expressions of loops and conditions in a real run."""

    goes_back = True
    """True if a `goto` to an earlier step is followed."""

    def items(self, items: str | Sequence[Json], names: Mapping[str, object]) -> list[Json]:
        """Return the items of a `for_each`."""
        value = self.evaluate(items, names) if isinstance(items, str) else self.value(list(items), names)
        if not isinstance(value, list | tuple):
            raise StepError("template", f"`for_each` needs a list, and `{items}` is {kind_of(value)}")
        if len(value) > MOST_ITEMS:
            raise StepError("budget", f"`for_each` takes {MOST_ITEMS} items at most, not {len(value)}")
        return list(value)

    def goes_on(self, test: str | bool, names: Mapping[str, object], rounds: int) -> bool:
        """Tell whether a `while` goes round once more, after so many rounds."""
        return self.test(test, names)


class RehearsedExpressions(FlowExpressions):
    """Evaluates the expressions of loops and conditions in a dry run.

    Nothing runs, so what a step would give is not known: a mark stands for it, and what cannot be decided is
    taken as it was written, as true, and as one item or one round.
    """

    goes_back = False

    def text(self, template: str, names: Mapping[str, object]) -> str:
        if _has_unknown_default(references(template), names):
            return template
        try:
            return super().text(template, names)
        except StepError:
            return template

    def value(self, template: Json, names: Mapping[str, object]) -> Json:
        if isinstance(template, str) and _has_unknown_default(references(template), names):
            return template
        try:
            return super().value(template, names)
        except StepError:
            return template

    def evaluate(self, expression: str, names: Mapping[str, object]) -> Json:
        if _has_unknown_default(references_of_expression(expression), names):
            return f"«{expression}»"
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
    """True if the expression uses the result of a step that was not run."""
    asked = {each.names[1] for each in references_of_expression(expression) if _names_a_step(each.names)}
    return any(_is_unknown(step, names) for step in asked)


def _has_unknown_default(used: Sequence[Reference], names: Mapping[str, object]) -> bool:
    """True if a `default(…)` would stand for what a step that was not run gives, and hide that."""
    return any(
        each.guarded
        and _names_a_step(each.names)
        and each.names[2:] not in REHEARSED_FIELDS
        and _is_unknown(each.names[1], names)
        for each in used
    )


def _is_unknown(step: str | int, names: Mapping[str, object]) -> bool:
    steps = names.get("steps")
    return (
        isinstance(steps, Mapping)
        and step in steps
        and bool(steps[step]["stdout"] == unknown(str(step), "stdout"))
    )


def _names_a_step(names: tuple[str | int, ...]) -> bool:
    return len(names) > 1 and names[0] == "steps"


def unknown(id: str, field: str) -> str:
    """Return the mark that stands for a field of a step that was not run."""
    return f"«steps.{id}.{field}»"
