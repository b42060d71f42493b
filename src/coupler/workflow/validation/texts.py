"""The templates and expressions of a workflow and of the files that it names: their syntax and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from coupler.workflow.errors import WorkflowError
from coupler.workflow.expressions.expression import expression_problem, problem_in
from coupler.workflow.expressions.references import references, references_of_expression
from coupler.workflow.language.definition import Agent, Converse, Position, Run, Step, While
from coupler.workflow.language.notes import Written
from coupler.workflow.language.reading import Reading, load
from coupler.workflow.validation.findings import Findings, inner_node, scalars_in
from coupler.workflow.validation.names import NameCheck, Sight, spelling_of
from coupler.workflow.validation.views import View, Views

Place = Callable[[int, re.Pattern[str]], Position]
"""Where something stands that a line of a text says."""

_NOTHING = re.compile(r"(?!)")
_DOLLAR = re.compile(r"\$\{\{")


class _Text(NamedTuple):
    text: str
    is_template: bool
    place: Place


def check_texts(reading: Reading, findings: Findings, views: Views, names: NameCheck) -> None:
    """Whether all of them can be read, and name what they can see."""
    outputs = {id(node) for node in scalars_in(inner_node(reading.root, "outputs"))}
    for written in reading.written:
        text = _Text(written.text, written.kind == "template", partial(findings.place_in, written.node))
        if _can_be_read(text, findings):
            _warn_of_dollars(text, findings)
            for view, rounds in _seen_from(written, id(written.node) in outputs, findings, views):
                _check_names(text, view, rounds, findings, names)
    for step, view in views:
        text_of_file = _file_text(step)
        if text_of_file is not None and _can_be_read(text_of_file, findings):
            _warn_of_dollars(text_of_file, findings)
            _check_names(text_of_file, view, None, findings, names)


def _seen_from(
    written: Written, is_output: bool, findings: Findings, views: Views
) -> Iterator[tuple[View, While | None]]:
    """From where a text sees, and the `while` whose test it is."""
    if is_output:
        yield views.end, None
    elif written.owner == findings.root.position:
        # Of an agent, a server or the defaults: it is rendered where a step uses it.
        yield views.anywhere, None
    else:
        for step, view in views.of(written.owner):
            is_test = isinstance(step, While) and findings.node_of(step, "while") is written.node
            yield view, step if is_test and isinstance(step, While) else None


def _file_text(step: Step) -> _Text | None:
    """A script or a prompt in a file of its own; one that is not there is told elsewhere."""
    name = step.file if isinstance(step, Run) else None
    if isinstance(step, Agent | Converse):
        name = step.set_up.prompt_file
    if name is None:
        return None
    path = str(Path(step.position.file).parent / name)
    try:
        text = load(path).decode("utf-8", "replace")
    except (WorkflowError, ValueError):
        return None
    return _Text(text, True, partial(_place_in_file, path, text.splitlines()))


def _place_in_file(path: str, lines: list[str], line: int, spelling: re.Pattern[str]) -> Position:
    found = spelling.search(lines[line - 1]) if line <= len(lines) else None
    return Position(path, line, found.start() + 1 if found else 1)


def _can_be_read(text: _Text, findings: Findings) -> bool:
    problem = problem_in(text.text) if text.is_template else expression_problem(text.text)
    if problem is None:
        return True
    message, line = problem
    what = "template" if text.is_template else "expression"
    findings.wrong(text.place(line, _NOTHING), f"the {what} cannot be read: {message}")
    return False


def _warn_of_dollars(text: _Text, findings: Findings) -> None:
    """`${{ }}` gives a value with a `$` before it, which hardly anybody means."""
    from coupler.workflow.expressions.template import lines_with_dollars

    for line in lines_with_dollars(text.text) if text.is_template and "${{" in text.text else ():
        findings.warn(
            text.place(line, _DOLLAR),
            "`${{ }}` writes a `$` before the value: leave the `$` out, as in `{{ }}`",
        )


def _check_names(text: _Text, view: View, rounds: While | None, findings: Findings, names: NameCheck) -> None:
    used = references(text.text) if text.is_template else references_of_expression(text.text)
    sight = Sight(view, rounds, rounds is not None and _has_choice(text.text))
    for reference, problem in () if findings.is_full else names.problems(used, sight):
        findings.wrong(text.place(reference.line, spelling_of(reference.names)), problem)


def _has_choice(expression: str) -> bool:
    """Whether a part of an expression may be left out when it is evaluated."""
    from jinja2 import nodes

    from coupler.workflow.expressions.template import parse_expression

    parsed = parse_expression(expression)
    choices = (nodes.And, nodes.Or, nodes.CondExpr)
    return any(isinstance(node, choices) for node in (parsed, *parsed.find_all(nodes.Expr)))
