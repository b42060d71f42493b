"""Templates and expressions of workflows: Jinja2's language over the values of a run, with every evaluation
bounded in time and memory.

`{{ }}` stands in text, expressions stand bare in `if`, `while`, `for_each` and `set`. Names that are not
there are errors, and so is null in the midst of text. A value that is one whole `{{ }}` keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coupler.config.lookup import shown
from coupler.runtime.extras import need
from coupler.workflow.errors import StepError, UnknownNameError
from coupler.workflow.expressions.bounds import Bounds, EvaluationError, MissingNameError, check_length
from coupler.workflow.expressions.values import as_json, as_text
from coupler.workflow.language.definition import Json

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
        need("jinja2", extra="workflows", feature="a workflow")

    def text(self, template: str, names: Names) -> str:
        """A template as text; lists and mappings in it are JSON."""
        return self.render(template, names, lambda value, bounds, source: as_text(value, bounds))

    def render(self, template: str, names: Names, write: Write) -> str:
        """A template as text, in which each value is written as the caller wants it."""
        from coupler.workflow.expressions.evaluation import Evaluation
        from coupler.workflow.expressions.template import is_plain, parse

        if is_plain(template):
            return template
        with _failures(template):
            parsed = parse(template)
            evaluation = Evaluation(names)

            def written(value: Callable[[], object], node: nodes.Node) -> str:
                source = parsed.source_of(node)
                with _failures(source, "{{ ", " }}"):
                    return write(value(), evaluation.bounds, source)

            return "".join(_counted(evaluation.render(parsed.body, written)))

    def value(self, template: Json, names: Names) -> Json:
        """Texts are rendered, one whole `{{ }}` keeps its type; lists and mappings are gone through."""
        match template:
            case str():
                return self._value_of_text(template, names)
            case list() | tuple():
                return [self.value(item, names) for item in template]
            case Mapping():
                return {key: self.value(item, names) for key, item in template.items()}
        return template

    def evaluate(self, expression: str, names: Names) -> Json:
        """What a bare expression gives."""
        from coupler.workflow.expressions.template import parse_expression

        with _failures(expression):
            return _evaluate(parse_expression(expression), names)

    def test(self, expression: str | bool, names: Names) -> bool:
        """Whether it counts as true: null, zero and what is empty do not."""
        if isinstance(expression, bool):
            return expression
        return bool(self.evaluate(expression, names))

    def _value_of_text(self, template: str, names: Names) -> Json:
        from coupler.workflow.expressions.template import is_plain, parse

        if is_plain(template):
            return template
        with _failures(template):
            whole = parse(template).whole
            if whole is not None:
                return _evaluate(whole, names)
        return self.text(template, names)


def problem_in(template: str) -> tuple[str, int] | None:
    """What is wrong with how a template is written, and in which of its lines, from 1."""
    from coupler.workflow.expressions.template import ParseError, is_plain, parse

    try:
        if not is_plain(template):
            parse(template)
    except ParseError as problem:
        return problem.message, problem.line
    return None


def expression_problem(expression: str) -> tuple[str, int] | None:
    """The same of a bare expression."""
    from coupler.workflow.expressions.template import ParseError, parse_expression

    try:
        parse_expression(expression)
    except ParseError as problem:
        return problem.message, problem.line
    return None


def _counted(pieces: Iterator[str]) -> Iterator[str]:
    """Pieces of a text, until they are too many."""
    length = 0
    for piece in pieces:
        length += len(piece)
        check_length(length)
        yield piece


def _evaluate(node: nodes.Expr, names: Names) -> Json:
    from coupler.workflow.expressions.evaluation import Evaluation

    evaluation = Evaluation(names)
    return as_json(evaluation.value(node), evaluation.bounds)


@contextmanager
def _failures(expression: str, before: str = "", after: str = "") -> Iterator[None]:
    """Whatever an expression brings about is the failure of its step."""
    from coupler.workflow.expressions.template import ParseError

    where = f"`{before}{shown(expression, LONGEST_SHOWN)}{after}`"
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
        raise StepError("template", f"{where}: {shown(str(error))}") from None
