"""Reads a workflow file into the model; reports all problems at once, with line and column."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from coupler.fields.nodes import ListNode, MappingNode, Node, Problem, ScalarNode, plain_value
from coupler.fields.shapes import WRONG
from coupler.fields.tables import Table
from coupler.runtime.formatting import listed, printable
from coupler.workflow.errors import InvalidWorkflowError, WorkflowError
from coupler.workflow.language import model as d
from coupler.workflow.language.error_recovery import ErrorRecovery, RemovedParts
from coupler.workflow.language.model import Input
from coupler.workflow.language.shapes import FREE_NAMES, WorkflowNotes, Written
from coupler.workflow.language.yaml_source import MOST_BYTES, parse_yaml

MOST_ROUNDS = 8
"""Most rounds in which faulty parts are removed from a file."""
MOST_FILE_BYTES = 1024 * 1024
"""Most bytes of a file that a workflow names."""


@dataclass(frozen=True)
class Reading:
    """A workflow, and what is needed to locate something in its file."""

    workflow: d.Workflow
    root: MappingNode
    written: tuple[Written, ...]
    """All templates and expressions of the file, in its order."""
    gaps: RemovedParts | None = None
    """The parts that were removed from a faulty file; None if it is whole."""


class PartlyReadError(InvalidWorkflowError):
    """A file is wrong in parts; has the rest of it for more checks."""

    def __init__(self, problems: Sequence[Problem], rest: Reading) -> None:
        super().__init__(problems)
        self.rest = rest


def read_workflow(path: str) -> d.Workflow:
    """Read a file; raises InvalidWorkflowError, or WorkflowError if the file cannot be read."""
    return read_with_places(path).workflow


def read_text(text: str, path: str) -> d.Workflow:
    """Read text that was loaded already; files that it names are looked for beside `path`."""
    return _read(text, path).workflow


def read_with_places(path: str) -> Reading:
    """Read a file together with the places of its templates and expressions."""
    return _read(load(path, MOST_BYTES), path)


def load(path: str, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """Return the content of a regular file; raises WorkflowError."""
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


def files_of(workflow: d.Workflow) -> list[tuple[str, d.SourcePosition]]:
    """Return the files that a workflow names, relative to its directory, and where it names them."""
    return [(file.name, file.position) for file in workflow.files]


def _read(source: bytes | str, path: str) -> Reading:
    path = str(Path(path).absolute())
    root = parse_yaml(source, path)
    notes = _StepNotes(path, root)
    if not isinstance(root, MappingNode):
        notes.wrong(root, f"a workflow is a mapping with `steps`, not {root.words}")
        raise InvalidWorkflowError(notes.problems)
    workflow = _read_keys(root, notes)
    if workflow is None:
        raise _partly_read(root, notes)
    return Reading(workflow, root, (*notes.written,))


def _partly_read(root: MappingNode, notes: _StepNotes) -> InvalidWorkflowError:
    """Return all problems with the keys of a file; some show only when other faulty parts are removed."""
    mending, problems = ErrorRecovery(), [*notes.problems]
    workflow: d.Workflow | None = None
    for _ in range(MOST_ROUNDS):
        left = mending.mended(root, notes.faulty)
        if left is None:
            break
        root, notes = left, _StepNotes(notes.file, left)
        workflow = _read_keys(root, notes)
        # What is wrong with a mapping that lost something may be so for that reason.
        problems += [each for each in notes.problems if each.position not in mending.gaps.places]
        if workflow is not None:
            break
    problems.sort(key=_place)
    if workflow is None:
        return InvalidWorkflowError(problems)
    return PartlyReadError(problems, Reading(workflow, root, (*notes.written,), mending.gaps))


def _read_keys(root: MappingNode, notes: _StepNotes) -> d.Workflow | None:
    """The workflow that the keys declare; None if something is wrong."""
    # The steps come first, but what they name counts behind what other keys name: digests depend on it.
    steps = _StepNotes(notes.file, root)
    notes.known = {id(node): steps.read_steps(node) for node in _lists_of_steps(root)}
    table = d.workflow_table()
    values = table.values(root, "workflow", notes)
    notes.take(steps)
    if notes.problems:
        return None
    _check_rest(values.get("inputs", {}), root, notes)
    name, digest = _name(root, values, notes), _digest(root, notes)
    of_file = {"name": name, "file": notes.file, "digest": digest, "files": (*notes.files,)}
    workflow: d.Workflow = table.make(values, root, "workflow", notes, **of_file)
    return None if notes.problems else workflow


def _lists_of_steps(root: MappingNode) -> Iterator[ListNode]:
    """Yield the outermost lists of steps: of the workflow, of its hooks, and of those of its agents."""
    agents = root.get("agents")
    profiles = [*agents.values.values()] if isinstance(agents, MappingNode) else []
    hooks = [each.get("hooks") if isinstance(each, MappingNode) else None for each in (root, *profiles)]
    moments = [each.get(moment) for each in hooks if isinstance(each, MappingNode) for moment in d.MOMENTS]
    yield from (node for node in (root.get("steps"), *moments) if isinstance(node, ListNode))


def _place(problem: Problem) -> tuple[int, int]:
    return problem.position.line, problem.position.column


def _name(root: MappingNode, values: Mapping[str, Any], notes: WorkflowNotes) -> str:
    name: str = values.get("name") or Path(notes.file).stem
    if not re.match(FREE_NAMES.pattern, name):
        notes.wrong(
            root, f"the file's name makes no name for a workflow: give it a `name`, {FREE_NAMES.words}"
        )
    return name


def _digest(root: MappingNode, notes: WorkflowNotes) -> str:
    """A digest of what the file and the files that it names say, not of how it is laid out."""
    digest = hashlib.sha256(msgspec.json.encode(plain_value(root)))
    for name in dict.fromkeys(file.name for file in notes.files):
        try:
            content = load(str(Path(notes.file).parent / name))
        except WorkflowError:
            continue  # a missing file is for validation to tell
        digest.update(b"\0" + name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def _check_rest(inputs: Mapping[str, Input], root: MappingNode, notes: WorkflowNotes) -> None:
    """Note a second input that takes the rest: only one can."""
    takers = [each.name for each in inputs.values() if each.rest]
    nodes = root.get("inputs")
    if not isinstance(nodes, MappingNode):
        return
    for name in takers[1:]:
        notes.wrong(nodes.values[name], f"only one input can have `rest`: it is {listed(takers)}")


_PROMPTS = ("prompt", "prompt_file")
_BESIDE_OTHERS = ("approve", "continue")
"""Kinds whose key means something else in a step of another kind: its gate, and the session to go on with."""
_OF_DEFAULTS = ("agent", "shell")
"""Keys of steps that `defaults` have for those that do not say them."""


@dataclass
class _Scope:
    """Ids of steps that must be unique together: those of a list, and of branches in it."""

    prefix: str = ""
    places: dict[str, Node] = field(default_factory=dict)


class _StepNotes(WorkflowNotes):
    """Collects what is found in a file, and reads its steps; one that is wrong is left out."""

    def __init__(self, file: str, root: Node) -> None:
        super().__init__(file, root.position)
        self.known: dict[int, tuple[d.Step, ...]] = {}
        """Lists of steps that were read before, by the identity of their nodes."""
        defaults = root.get("defaults") if isinstance(root, MappingNode) else None
        self._defaults = {
            name: node.value
            for name, node in (defaults.values.items() if isinstance(defaults, MappingNode) else ())
            if name in _OF_DEFAULTS and isinstance(node, ScalarNode) and isinstance(node.value, str)
        }
        self._scope, self._id = _Scope(), ""

    def take(self, others: _StepNotes) -> None:
        """Add what others have collected."""
        for problem in others.problems:
            self.add(problem)
        self.faulty |= others.faulty
        self.written += others.written
        self.files += others.files

    def read_steps(self, node: ListNode) -> tuple[d.Step, ...]:
        """Read a list of steps whose ids are its own."""
        known = self.known.get(id(node))
        return self._list(node, _Scope()) if known is None else known

    def read_branches(self, node: ListNode) -> tuple[tuple[d.Step, ...], ...]:
        """Read branches, whose unnamed steps are called after the step around them."""
        return (*self._branches(node, _Scope(f"{self._id}_", self._scope.places)),)

    def _branches(self, node: ListNode, scope: _Scope) -> Iterator[tuple[d.Step, ...]]:
        for number, branch in enumerate(node.nodes, 1):
            if not isinstance(branch, ListNode):
                step = self._step(branch, self._id_of(branch, number, scope), scope)
                yield (step,) if step is not None else ()
            elif not branch.nodes:
                self.wrong(branch, "a branch of `parallel` must have at least one step")
            else:
                yield self._list(branch, _Scope(f"{scope.prefix}{number}_", scope.places))

    def _list(self, node: ListNode, scope: _Scope) -> tuple[d.Step, ...]:
        ids = [self._id_of(each, number, scope) for number, each in enumerate(node.nodes, 1)]
        steps = [self._step(each, name, scope) for each, name in zip(node.nodes, ids, strict=True)]
        return tuple(step for step in steps if step is not None)

    def _id_of(self, node: Node, number: int, scope: _Scope) -> str:
        if not isinstance(node, MappingNode):
            return ""
        written = node.get("id")
        if isinstance(written, ScalarNode) and isinstance(written.value, str):
            self._claim(written.value, written, scope)
            return written.value
        made = f"{scope.prefix}{next(iter(_kinds_of(node)), 'step')}_{number}"
        self._claim(made, node, scope)
        return made

    def _claim(self, id: str, node: Node, scope: _Scope) -> None:
        if first := scope.places.get(id):
            line = first.position.line
            self.wrong(
                node, f"the id `{printable(id, 60)}` is taken by the step in line {line}: choose another"
            )
        else:
            scope.places[id] = node

    def _step(self, node: Node, id: str, scope: _Scope) -> d.Step | None:
        if not isinstance(node, MappingNode):
            self.wrong(
                node, f"a step must be a mapping with one of {listed(d.step_tables())}, not {node.words}"
            )
            return None
        kind = self._kind_of(node)
        if kind is None:
            return None
        around = self.owner, self._scope, self._id
        self.owner, self._scope, self._id = node.position, scope, id
        try:
            table = d.step_tables()[kind]
            values = table.values(node, "step", self)
            if values is WRONG:
                return None
            step: d.Step = table.make(
                values, node, "step", self, id=id, is_named="id" in values, **self._defaults_of(table, values)
            )
            return step
        finally:
            self.owner, self._scope, self._id = around

    def _defaults_of(self, table: Table, values: Mapping[str, Any]) -> dict[str, str | None]:
        """Return what the file's defaults have for keys of a step that are not written."""
        names = [name for name in _OF_DEFAULTS if name in table.names and name not in values]
        return {name: self._defaults.get(name) for name in names if name in self._defaults or name == "agent"}

    def _kind_of(self, node: MappingNode) -> str | None:
        kinds = _kinds_of(node)
        if not kinds:
            self.wrong(node, f"the step does nothing; {self._nearest_kind(node)}")
            return None
        if len(kinds) > 1:
            other = next(name for name in node.values if d.kind_keys().get(name) == kinds[1])
            either = " or ".join(f"`{kind}`" for kind in kinds)
            self.wrong(node.key(other), f"a step does one thing: either {either}")
            return None
        if kinds == ["agent"] and "agent" not in node.values and "agent" not in self._defaults:
            self.wrong(node, "the step has a prompt and no `agent`: name one here, or in `defaults`")
        return kinds[0]

    def _nearest_kind(self, node: MappingNode) -> str:
        kinds = d.kind_keys()
        for name in node.values:
            near = [f"`{each}`" for each in get_close_matches(name[:60], kinds, n=1)]
            if meant := self.meant(name, [*kinds, *_PROMPTS]) or "".join(near):
                return f"did you mean {meant} by `{printable(name, 60)}`?"
            if advice := self.advice(name):
                return f"`{printable(name, 60)}` is no key here: {advice}"
        return f"say what with one of {listed(d.step_tables())}"


def _kinds_of(node: MappingNode) -> list[str]:
    """The kinds of a step; some mean another thing beside another one, and a prompt alone is for an agent."""
    by_key = d.kind_keys()
    kinds = [*dict.fromkeys(by_key[name] for name in node.values if name in by_key)]
    others = [kind for kind in kinds if kind not in _BESIDE_OTHERS]
    is_prompted = any(name in node.values for name in _PROMPTS)
    return others or (["agent"] if is_prompted else kinds)
