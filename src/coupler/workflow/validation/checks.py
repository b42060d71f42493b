"""Checks whether a workflow can work before anything of it runs: all problems at once, with their positions.

The reader has refused what is no workflow. Here it is what only the whole can tell: names that mean nothing
where they stand, ways that lead nowhere or have no end, and files, agents and workflows that are not there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coupler.agent.factory import split_target
from coupler.config.lookup import ConfigError
from coupler.fields.nodes import Node
from coupler.runtime.extras import MissingExtraError, import_extra
from coupler.runtime.formatting import listed, printable
from coupler.workflow.errors import Problem, WorkflowError
from coupler.workflow.expressions.expression import (
    expression_problem,
    is_plain,
    problem_in,
    references,
    references_of_expression,
)
from coupler.workflow.language.library import why_no_command
from coupler.workflow.language.model import Goto, Json, SourcePosition, Step, Workflow
from coupler.workflow.language.reader import Reading, load
from coupler.workflow.language.shapes import Written
from coupler.workflow.steps.agents import profiles_of
from coupler.workflow.steps.kinds import kind_of
from coupler.workflow.validation.findings import ProblemCollector, nearest, node_at, scalars_in
from coupler.workflow.validation.names import NameCheck, Viewpoint, spelling_of
from coupler.workflow.validation.views import (
    ListView,
    ScopeView,
    ScopeViews,
    StepList,
    targets_of,
)

if TYPE_CHECKING:
    from coupler.providers.catalogue import CatalogueEntry


TextLocator = Callable[[int, re.Pattern[str]], SourcePosition]
"""Finds the position of something in a line of a text."""

_NOTHING = re.compile(r"(?!)")
_DOLLAR = re.compile(r"\$\{\{")

_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*)(?::(acp|native))?")
_TARGET = re.compile(r"[^\s:]+:[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True)
class ValidationContext:
    """The agents, workflows and directory that a workflow is checked against."""

    agents: KnownAgents
    called: Mapping[tuple[str, str], Workflow] = field(default_factory=dict)
    """The called workflows, by the file that calls them and the name by which it does."""
    root: str | None = None
    """The directory out of which no file of a project may lead."""


def validate(reading: Reading, surroundings: ValidationContext) -> list[Problem]:
    """Return all problems of a workflow that could be read."""
    import_extra("jinja2", extra="workflows", feature="A workflow")
    workflow = reading.workflow
    findings, views = ProblemCollector(reading), ScopeViews(workflow)
    check_texts(reading, findings, views, NameCheck(workflow, views, surroundings.called, findings.gaps))
    check_flow(views, findings)
    check_files(workflow, views, findings, surroundings.root)
    check_agents(workflow, views, findings, surroundings.agents)
    check_steps(workflow, views, findings, surroundings.called)
    if reason := why_no_command(workflow.name):
        findings.warn((reading.root.get("name") or reading.root).position, reason)
    return findings.problems


class _Text(NamedTuple):
    text: str
    is_template: bool
    place: TextLocator


def check_texts(reading: Reading, findings: ProblemCollector, views: ScopeViews, names: NameCheck) -> None:
    """Check that all templates and expressions can be parsed, and name what they can see."""
    outputs = {id(node) for node in scalars_in(node_at(reading.root, "outputs"))}
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
    written: Written, is_output: bool, findings: ProblemCollector, views: ScopeViews
) -> Iterator[tuple[ScopeView, Step | None]]:
    """The views that a text is seen from, and the `while` whose test it is."""
    if is_output:
        yield views.end, None
    elif written.owner == findings.root.position:
        # Of an agent, a server or the defaults: it is rendered where a step uses it.
        yield views.anywhere, None
    else:
        for step, view in views.of(written.owner):
            kind = kind_of(step)
            is_test = kind.sees_last_round and findings.node_of(step, kind.name) is written.node
            yield view, step if is_test else None


def _file_text(step: Step) -> _Text | None:
    """Return the text of a step's script or prompt file; None if it has none, or it cannot be read."""
    name = kind_of(step).text_file(step)
    if name is None:
        return None
    path = str(Path(step.position.file).parent / name)
    try:
        text = load(path).decode("utf-8", "replace")
    except (WorkflowError, ValueError):
        return None
    return _Text(text, True, partial(_place_in_file, path, text.splitlines()))


def _place_in_file(path: str, lines: list[str], line: int, spelling: re.Pattern[str]) -> SourcePosition:
    found = spelling.search(lines[line - 1]) if line <= len(lines) else None
    return SourcePosition(path, line, found.start() + 1 if found else 1)


def _can_be_read(text: _Text, findings: ProblemCollector) -> bool:
    problem = problem_in(text.text) if text.is_template else expression_problem(text.text)
    if problem is None:
        return True
    message, line = problem
    what = "template" if text.is_template else "expression"
    findings.wrong(text.place(line, _NOTHING), f"the {what} cannot be read: {message}")
    return False


def _warn_of_dollars(text: _Text, findings: ProblemCollector) -> None:
    """Warn of `${{ }}`, which writes a `$` before the value: hardly anybody means that."""
    from coupler.workflow.expressions.evaluation import lines_with_dollars

    for line in lines_with_dollars(text.text) if text.is_template and "${{" in text.text else ():
        findings.warn(
            text.place(line, _DOLLAR),
            "`${{ }}` writes a `$` before the value: leave the `$` out, as in `{{ }}`",
        )


def _check_names(
    text: _Text, view: ScopeView, rounds: Step | None, findings: ProblemCollector, names: NameCheck
) -> None:
    used = references(text.text) if text.is_template else references_of_expression(text.text)
    sight = Viewpoint(view, rounds, rounds is not None and _has_choice(text.text))
    for reference, problem in () if findings.is_full else names.problems(used, sight):
        findings.wrong(text.place(reference.line, spelling_of(reference.names)), problem)


def _has_choice(expression: str) -> bool:
    """True if parts of an expression may not be evaluated, because of `and`, `or` or `if`."""
    from jinja2 import nodes

    from coupler.workflow.expressions.evaluation import parse_expression

    parsed = parse_expression(expression)
    choices = (nodes.And, nodes.Or, nodes.CondExpr)
    return any(isinstance(node, choices) for node in (parsed, *parsed.find_all(nodes.Expr)))


def check_flow(views: ScopeViews, findings: ProblemCollector) -> None:
    """Check every `goto`, and that every step can be reached."""
    for steps in views.lists:
        _check_ways(steps, views, findings)
        _check_reached(steps, findings)


def _check_ways(steps: StepList, views: ScopeViews, findings: ProblemCollector) -> None:
    numbers = {step.id: number for number, step in enumerate(steps.steps)}
    for number, step in enumerate(steps.steps):
        for target in targets_of(step):
            place = _place_of(target, step, findings)
            if target.step not in numbers:
                findings.wrong(place, _not_a_sibling(target.step, [*numbers], views))
            elif numbers[target.step] <= number and target.most is None and place not in findings.gaps.places:
                findings.wrong(
                    place,
                    f"going back to `{target.step}` may never end: "
                    f"say how often, as in `goto: {{step: {target.step}, max: 3}}`",
                )


def _place_of(target: Goto, step: Step, findings: ProblemCollector) -> SourcePosition:
    for key in ("goto", "on_error"):
        for node in scalars_in(findings.node_of(step, key)):
            if node.value == target.step:
                return node.position
    return step.position


def _not_a_sibling(id: str, siblings: list[str], views: ScopeViews) -> str:
    if views.anywhere.find(id) is not None:
        return f"`{id}` is no step of this list: `goto` leads to one of {listed(siblings)}"
    return f"there is no step `{printable(id, 60)}`; {nearest(id, siblings)}"


def _check_reached(steps: StepList, findings: ProblemCollector) -> None:
    """Warn of steps that are never reached; of several in a row, of the first."""
    if any(step.position in findings.gaps.mappings for step in steps.steps):
        return  # what was taken out may have been the way
    was_reached = True
    for number, step in enumerate(steps.steps):
        is_reached = number in steps.ways.reached
        if was_reached and not is_reached:
            before = steps.steps[number - 1]
            findings.warn(
                step.position,
                f"`{step.id}` is never reached: the step before, `{before.id}`, "
                f"always {'goes elsewhere' if before.goto else kind_of(before).leaves_list}",
            )
        was_reached = is_reached


def check_files(workflow: Workflow, views: ScopeViews, findings: ProblemCollector, root: str | None) -> None:
    """Check scripts, prompts, schemas, context and skills, and the schemas in the workflow itself."""
    directory = Path(workflow.file).parent
    unusable = set()
    for file in dict.fromkeys(workflow.files):
        problem = _problem_with(directory, file.name, root)
        if problem is not None:
            unusable.add(file.name)
            findings.wrong(file.position, problem)
    for output, position in _schemas(workflow, views, findings):
        if not isinstance(output, str) or output not in unusable:
            problem = _schema_problem(output, directory)
            if problem is not None:
                findings.wrong(position, problem)


def leads_out(path: str, root: str | None) -> bool:
    """Tell whether a file is, in the end, outside of the directory that it must stay in."""
    return root is not None and not os.path.realpath(path).startswith(os.path.join(root, ""))  # noqa: PTH118


def _problem_with(directory: Path, name: str, root: str | None) -> str | None:
    path = directory / name
    if leads_out(str(path), root):
        return (
            f"{printable(name, 100)} leads out of the project: a project's workflow uses its own files only"
        )
    try:
        load(str(path))
    except (WorkflowError, ValueError) as error:
        if not path.exists():
            return f"there is no file {printable(name, 100)}{_nearest(path)}"
        return str(error)
    return None


def _nearest(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = [each.name for each in path.parent.iterdir() if each.exists()]
    except OSError:
        return f": there is no directory {printable(path.parent.name, 100)} beside the workflow"
    near = get_close_matches(path.name, names, n=1)
    return (
        f"; did you mean `{printable(near[0], 100)}`?" if near else ": file names start where the workflow is"
    )


def _schemas(
    workflow: Workflow, views: ScopeViews, findings: ProblemCollector
) -> Iterator[tuple[Json, SourcePosition]]:
    for step, _ in views:
        output = kind_of(step).schema(step)
        if output is not None:
            yield output, findings.place_of(step, "output")
    for name, profile in workflow.agents.items():
        node: Node | None = node_at(findings.root, "agents", name, "output")
        if profile.set_up.output is not None and node is not None:
            yield profile.set_up.output, node.position


def _schema_problem(output: Json, directory: Path) -> str | None:
    from coupler.fields.json_types import json_type_of

    name = f"{printable(output, 100)} " if isinstance(output, str) else "this "
    try:
        schema = msgspec.json.decode(load(str(directory / output))) if isinstance(output, str) else output
        if not isinstance(schema, Mapping):
            return f"{name}is no JSON Schema: that is an object"
        json_type_of(dict(schema))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"{name}is no JSON: {printable(str(error))}"
    except TypeError as error:
        return f"{name}cannot be used: {printable(str(error), 300)}"
    except MissingExtraError as error:
        return str(error)
    return None


def check_agents(
    workflow: Workflow, views: ScopeViews, findings: ProblemCollector, agents: KnownAgents
) -> None:
    """Check every agent that a step, a profile or the defaults name; a template's is not known yet.

    An agent that is not installed is only a warning: the same file may be checked where it does not run.
    """
    for agent, place in _named_agents(workflow, views, findings):
        problem = agents.problem_with(agent, workflow) if is_plain(agent) else None
        if problem is not None:
            message, is_unknown = problem
            (findings.wrong if is_unknown else findings.warn)(place, message)
    for name in workflow.agents:
        _check_round(name, workflow, findings)


def _named_agents(
    workflow: Workflow, views: ScopeViews, findings: ProblemCollector
) -> Iterator[tuple[str, SourcePosition]]:
    """Yield the named agents that are no profiles, and the position of each name."""
    default = node_at(findings.root, "defaults", "agent")
    for step, _ in views:
        kind = kind_of(step)
        agent = kind.agent(step)
        if agent is not None and agent not in workflow.agents:
            node = findings.node_of(step, kind.name) or default
            yield agent, step.position if node is None else node.position
    for name, profile in workflow.agents.items():
        if profile.agent not in workflow.agents:
            node = node_at(findings.root, "agents", name, "agent")
            yield profile.agent, profile.position if node is None else node.position


def _check_round(name: str, workflow: Workflow, findings: ProblemCollector) -> None:
    """Report profiles that lead back to themselves."""
    profiles = profiles_of(name, workflow)
    if workflow.agents[profiles[-1]].agent == name:
        chain = " → ".join([*profiles, name])
        node = node_at(findings.root, "agents", name, "agent")
        place = workflow.agents[name].position if node is None else node.position
        findings.wrong(place, f"this agent leads back to itself: {chain}: give it another name")


class KnownAgents:
    """The agents of the catalogue and of `coupler.toml` in a directory."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd

    @cached_property
    def _entries(self) -> dict[str, CatalogueEntry]:
        from coupler.providers.catalogue import entries

        return entries(self._cwd)

    @cached_property
    def _ignored(self) -> frozenset[str]:
        """The agents of a project that is not trusted."""
        from coupler.providers.catalogue import configuration

        untrusted = configuration(self._cwd).untrusted_setting("agents")
        return frozenset(table.name for table in (untrusted.value if untrusted is not None else ()))

    def problem_with(self, agent: str, workflow: Workflow) -> tuple[str, bool] | None:
        """Return the problem of an agent, and whether it is unknown; None if it can be started."""
        match = _NAME.fullmatch(agent)
        place = split_target(agent)[0]
        if place.endswith(".py") and not any(map(str.isspace, agent)):
            return self._problem_with_file(place, workflow)
        if match is None:
            return None if _TARGET.fullmatch(agent) else self._problem_with_command(agent)
        try:
            return self._problem_with_name(match[1], match[2], workflow)
        except ConfigError as error:
            return str(error), True

    def _problem_with_name(self, name: str, form: str | None, workflow: Workflow) -> tuple[str, bool] | None:
        from coupler.client.errors import AgentError
        from coupler.providers.catalogue import choose_form

        entry = self._entries.get(name)
        if entry is None:
            is_command = form is None and shutil.which(name) is not None
            return None if is_command else (self._unknown(name, [*workflow.agents]), True)
        try:
            choose_form(entry, form)
        except AgentError as error:
            return error.message, False
        return None

    def _problem_with_file(self, place: str, workflow: Workflow) -> tuple[str, bool] | None:
        """Return the problem of a Python agent's file that is neither beside the workflow nor in the cwd."""
        if any(Path(start, place).is_file() for start in (Path(workflow.file).parent, self._cwd)):
            return None
        return f"there is no file {printable(place, 100)} with this agent, beside the workflow or here", True

    def _problem_with_command(self, agent: str) -> tuple[str, bool] | None:
        from coupler.runtime.environment import SpawnError, split_command

        try:
            program = split_command(agent)[0]
        except SpawnError as error:
            return str(error), True
        if program == "coupler" or shutil.which(Path(self._cwd, program) if "/" in program else program):
            return None
        return f"the program {printable(program, 100)} of this agent was not found: install it first", False

    def _unknown(self, name: str, profiles: list[str]) -> str:
        from difflib import get_close_matches

        if name in self._ignored:
            return (
                f"the project's coupler.toml has the agent `{printable(name, 60)}`, and is not trusted yet: "
                "read it, and trust it with `coupler trust`"
            )
        near = get_close_matches(name.lower(), [*profiles, *self._entries], 1)
        hint = f"; did you mean `{near[0]}`?" if near else ":"
        return f"there is no agent `{printable(name, 60)}`{hint} `coupler agents` lists those that are known"


@dataclass(frozen=True)
class StepCheck:
    """Gives the kind of a step what it needs to check it."""

    view: ListView
    """The names that the step can see."""
    workflow: Workflow
    called: Mapping[tuple[str, str], Workflow]
    """The called workflows, by the file that calls them and the name by which it does."""
    findings: ProblemCollector


def check_steps(
    workflow: Workflow,
    views: ScopeViews,
    findings: ProblemCollector,
    called: Mapping[tuple[str, str], Workflow],
) -> None:
    """Check what only the kind of each step knows."""
    for step, view in views:
        kind_of(step).check(step, StepCheck(view, workflow, called, findings))
        if step.needs and (problem := _misplaced_needs(step, view.list)) is not None:
            findings.wrong(findings.place_of(step, "needs"), problem)


def _misplaced_needs(step: Step, steps: StepList) -> str | None:
    if steps.inside is None or not kind_of(steps.inside).has_branches:
        return "`needs` is for branches of `parallel`: the steps of a list run one after the other"
    if steps.steps[0] is not step:
        return "`needs` stands at the first step of a branch, and holds for all of it"
    return None
