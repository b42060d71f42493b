"""Reads a workflow's file: all that is wrong with it is told at once, with line and column."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, cast

import msgspec

from coupler.workflow.errors import InvalidWorkflowError, Problem, WorkflowError
from coupler.workflow.language import definition as d
from coupler.workflow.language.keys import HOOKS, WORKFLOW
from coupler.workflow.language.keys_shared import FREE_NAME_PATTERN, FREE_NAME_WORDS
from coupler.workflow.language.mending import Gaps, Mending
from coupler.workflow.language.notes import Notes, Written
from coupler.workflow.language.reading_inputs import check_rest, input_of
from coupler.workflow.language.reading_parts import (
    limits_of,
    on_error_of,
    prompted_of,
    retry_of,
    servers_of,
)
from coupler.workflow.language.reading_steps import Setting, read_steps
from coupler.workflow.language.source import MOST_BYTES, Fields, Items, Node, Scalar, parse, plain, type_words
from coupler.workflow.language.table import Record

MOST_ROUNDS = 8
"""How often what is wrong is taken out of a file, before the rest is given up."""
MOST_FILE_BYTES = 1024 * 1024
"""Of a file that a workflow names."""


@dataclass(frozen=True)
class Reading:
    """A workflow, and what is needed to say where something in it stands."""

    workflow: d.Workflow
    root: Fields
    written: tuple[Written, ...]
    """All templates and expressions of the file, in its order."""
    gaps: Gaps | None = None
    """What was left out, of a file that cannot run; None: it is whole."""


class PartlyReadError(InvalidWorkflowError):
    """Raised for a file that is wrong in parts, with the rest of it for more checks."""

    def __init__(self, problems: Sequence[Problem], rest: Reading) -> None:
        super().__init__(problems)
        self.rest = rest


def read_workflow(path: str) -> d.Workflow:
    """Read a file; raises InvalidWorkflowError, or WorkflowError if the file cannot be read."""
    return read_with_places(path).workflow


def read_text(text: str, path: str) -> d.Workflow:
    """The same for text that was loaded already; files that it names are looked for beside `path`."""
    return _read(text, path).workflow


def read_with_places(path: str) -> Reading:
    """Read a file together with the places of its templates and expressions."""
    return _read(load(path, MOST_BYTES), path)


def load(path: str, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """The content of a regular file; raises WorkflowError."""
    try:
        # Opening a pipe would wait for somebody to write into it.
        flags = getattr(os, "O_NONBLOCK", 0)
        with open(path, "rb", opener=lambda path, usual: os.open(path, usual | flags)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise WorkflowError(f"{path} is no file")
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise WorkflowError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(content) > most_bytes:
        raise WorkflowError(f"{path} is too large: at most {most_bytes:,} bytes are read")
    return content


def files_of(workflow: d.Workflow) -> list[tuple[str, d.Position]]:
    """The files that a workflow names, from its directory on, and where it names them."""
    return [(file.name, file.position) for file in workflow.files]


def _read(source: bytes | str, path: str) -> Reading:
    path = str(Path(path).absolute())
    root = parse(source, path)
    notes = Notes(path, root.position)
    if not isinstance(root, Fields):
        notes.wrong(root, f"a workflow is a mapping with `steps`, not {type_words(root)}")
        raise InvalidWorkflowError(notes.problems)
    workflow = _read_keys(root, notes)
    if workflow is None:
        raise _partly_read(root, notes)
    return Reading(workflow, root, (*notes.written,))


def _partly_read(root: Fields, notes: Notes) -> InvalidWorkflowError:
    """All that is wrong with the keys of a file; some of it shows only when the rest is taken out."""
    mending, problems = Mending(), [*notes.problems]
    workflow: d.Workflow | None = None
    for _ in range(MOST_ROUNDS):
        left = mending.mended(root, notes.faulty)
        if left is None:
            break
        root, notes = left, Notes(notes.file, left.position)
        workflow = _read_keys(root, notes)
        # What is wrong with a mapping that lost something may be so for that reason.
        problems += [each for each in notes.problems if each.position not in mending.gaps.places]
        if workflow is not None:
            break
    problems.sort(key=_place)
    if workflow is None:
        return InvalidWorkflowError(problems)
    return PartlyReadError(problems, Reading(workflow, root, (*notes.written,), mending.gaps))


def _read_keys(root: Fields, notes: Notes) -> d.Workflow | None:
    """What the keys say; None if something is wrong."""
    record = WORKFLOW.read(root, "workflow", notes)
    setting = _setting(root, notes)
    steps, hooks = _steps(root.get("steps"), setting), _hooks(root.get("hooks"), setting)
    profiles = {name: _hooks(hooks, setting) for name, hooks in _hooks_of_agents(root).items()}
    if notes.problems:
        return None
    workflow = _workflow(record, steps, hooks, profiles, notes)
    return None if notes.problems else workflow


def _place(problem: Problem) -> tuple[int, int]:
    return problem.position.line, problem.position.column


def _setting(root: Fields, notes: Notes) -> Setting:
    """What steps take from the file around them, also when other things in it are wrong."""
    defaults = root.get("defaults")
    if not isinstance(defaults, Fields):
        return Setting(notes)
    agent, shell = defaults.get("agent"), defaults.get("shell")
    return Setting(notes, *(_text(agent), _text(shell)))


def _text(node: Node | None) -> str | None:
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def _steps(node: Node | None, setting: Setting) -> tuple[d.Step, ...]:
    return read_steps(node, setting) if isinstance(node, Items) else ()


def _hooks(node: Node | None, setting: Setting) -> d.Hooks | None:
    if not isinstance(node, Fields):
        return None
    return d.Hooks(**{moment: _steps(node.get(moment), setting) for moment in HOOKS.names})


def _hooks_of_agents(root: Fields) -> dict[str, Node]:
    agents = root.get("agents")
    profiles = agents.values if isinstance(agents, Fields) else {}
    return {name: profile.values["hooks"] for name, profile in profiles.items() if _has_hooks(profile)}


def _has_hooks(profile: Node) -> TypeGuard[Fields]:
    return isinstance(profile, Fields) and "hooks" in profile.values


def _workflow(
    record: Record,
    steps: tuple[d.Step, ...],
    hooks: d.Hooks | None,
    profiles: Mapping[str, d.Hooks | None],
    notes: Notes,
) -> d.Workflow:
    return d.Workflow(
        name=_name(record, notes),
        file=notes.file,
        digest=_digest(record.node, notes),
        inputs=_inputs(record, notes),
        agents={name: _profile(name, each, profiles) for name, each in record.get("agents", {}).items()},
        mcp_servers=servers_of(record.get("mcp_servers", {})),
        defaults=_defaults(record.get("defaults")),
        budget=limits_of(record.get("budget")),
        steps=steps,
        hooks=hooks or d.Hooks(),
        files=(*notes.files,),
        **record.only("description", "secrets", "max_steps", "outputs"),
    )


def _name(record: Record, notes: Notes) -> str:
    name: str = record.get("name") or Path(notes.file).stem
    if not re.match(FREE_NAME_PATTERN, name):
        notes.wrong(
            record.node, f"the file's name makes no name for a workflow: give it a `name`, {FREE_NAME_WORDS}"
        )
    return name


def _inputs(record: Record, notes: Notes) -> dict[str, d.Input]:
    nodes = record.node.values.get("inputs")
    if not isinstance(nodes, Fields):
        return {}
    written = record.get("inputs").items()
    inputs = {name: _input(name, each, nodes.values[name], notes) for name, each in written}
    check_rest(inputs, nodes.values, notes)
    return inputs


def _input(name: str, written: str | Record, node: Node, notes: Notes) -> d.Input:
    if isinstance(written, Record):
        return input_of(name, written, notes)
    return d.Input(name=name, type=cast(d.InputType, written), position=node.position)


def _profile(name: str, record: Record, hooks: Mapping[str, d.Hooks | None]) -> d.Profile:
    return d.Profile(
        name=name,
        agent=record.get("agent"),
        set_up=prompted_of(record),
        hooks=hooks.get(name),
        position=record.node.position,
        **record.only("env"),
    )


def _defaults(record: Record | None) -> d.Defaults:
    if record is None:
        return d.Defaults()
    return d.Defaults(
        retry=retry_of(record.get("retry")),
        on_error=on_error_of(record.get("on_error")),
        set_up=prompted_of(record),
        **record.only("agent", "shell", "timeout", "env", "cwd"),
    )


def _digest(root: Fields, notes: Notes) -> str:
    """Over what the file says and what the files say that it names, not over how it is laid out."""
    digest = hashlib.sha256(msgspec.json.encode(plain(root)))
    for name in dict.fromkeys(file.name for file in notes.files):
        try:
            content = load(str(Path(notes.file).parent / name))
        except WorkflowError:
            continue  # a missing file is for validation to tell
        digest.update(b"\0" + name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()
