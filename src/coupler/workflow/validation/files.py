"""The files that a workflow names: whether they are there, in the project, and what they should be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from coupler.config.lookup import shown
from coupler.runtime.extras import MissingExtraError
from coupler.workflow.errors import WorkflowError
from coupler.workflow.language.definition import Agent, Converse, Json, Position, Run, Workflow
from coupler.workflow.language.reading import load
from coupler.workflow.language.source import Node
from coupler.workflow.validation.findings import Findings, inner_node
from coupler.workflow.validation.views import Views


def check_files(workflow: Workflow, views: Views, findings: Findings, root: str | None) -> None:
    """Scripts, prompts, schemas, context and skills, and the schemas that stand in the workflow itself."""
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
    """Whether a file is, in the end, outside of the directory that it must stay in."""
    return root is not None and not os.path.realpath(path).startswith(os.path.join(root, ""))  # noqa: PTH118


def _problem_with(directory: Path, name: str, root: str | None) -> str | None:
    path = directory / name
    if leads_out(str(path), root):
        return f"{shown(name, 100)} leads out of the project: a project's workflow uses its own files only"
    try:
        load(str(path))
    except (WorkflowError, ValueError) as error:
        if not path.exists():
            return f"there is no file {shown(name, 100)}{_nearest(path)}"
        return str(error)
    return None


def _nearest(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        return f": there is no directory {shown(path.parent.name, 100)} beside the workflow"
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean `{shown(near[0], 100)}`?" if near else ": file names start where the workflow is"


def _schemas(workflow: Workflow, views: Views, findings: Findings) -> Iterator[tuple[Json, Position]]:
    for step, _ in views:
        output = step.output if isinstance(step, Run) else None
        if isinstance(step, Agent | Converse):
            output = step.set_up.output
        if output is not None and output not in ("json", "lines"):
            yield output, findings.place_of(step, "output")
    for name, profile in workflow.agents.items():
        node: Node | None = inner_node(findings.root, "agents", name, "output")
        if profile.set_up.output is not None and node is not None:
            yield profile.set_up.output, node.position


def _schema_problem(output: Json, directory: Path) -> str | None:
    from coupler.mcp.shape import shape_of

    name = f"{shown(output, 100)} " if isinstance(output, str) else "this "
    try:
        schema = msgspec.json.decode(load(str(directory / output))) if isinstance(output, str) else output
        if not isinstance(schema, Mapping):
            return f"{name}is no JSON Schema: that is an object"
        shape_of(dict(schema))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"{name}is no JSON: {shown(str(error))}"
    except TypeError as error:
        return f"{name}cannot be used: {shown(str(error), 300)}"
    except MissingExtraError as error:
        return str(error)
    return None
