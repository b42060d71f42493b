"""Finds workflows in the project, among the user's own or at a path, reads what they call, and checks trust.

A broken file hides none of the others. Of two with one name the project's counts; a project's files must not
lead out of it, because a cloned repository may hold links to anywhere.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NamedTuple

from coupler.agent.factory import split_target
from coupler.config.config import TrustedFiles
from coupler.config.lookup import project_workflows, workflows_directory
from coupler.fields.nodes import MappingNode, ScalarNode
from coupler.runtime.formatting import printable
from coupler.store.choices import Trust
from coupler.workflow.errors import InvalidWorkflowError, Problem, StepError, WorkflowError
from coupler.workflow.language.model import (
    SourcePosition,
    Step,
    Workflow,
    all_steps,
    lists_of,
)
from coupler.workflow.language.reader import PartlyReadError, Reading, load, read_with_places
from coupler.workflow.language.yaml_source import parse_yaml
from coupler.workflow.steps.agents import agent_steps
from coupler.workflow.steps.kinds import kind_of

WorkflowOrigin = Literal["project", "user"]

ABORT, DONE, RESUME, RUNS = RESERVED = ("abort", "done", "resume", "runs")
"""The slash commands about runs, which no workflow can have."""

SUFFIXES = (".yaml", ".yml")
"""The suffixes of workflow files; a name that ends so is taken for a path."""

DEEPEST_CALLS = 16
"""Most workflows that may call each other in a row."""

FindWorkflow = Callable[[str, Workflow], Workflow]
"""Reads the workflow that another one calls by a name or a path; raises `WorkflowError`."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Found:
    """A workflow that can be called by its name."""

    name: str
    file: str
    origin: WorkflowOrigin
    reading: Reading = field(repr=False)

    @property
    def workflow(self) -> Workflow:
        return self.reading.workflow


@dataclass(frozen=True)
class Broken:
    """A file that should be a workflow, and its problems."""

    name: str
    file: str
    origin: WorkflowOrigin
    problems: tuple[Problem, ...]
    rest: Reading | None = field(default=None, repr=False)
    """The part of it that could be read."""

    @property
    def error(self) -> InvalidWorkflowError:
        return (
            InvalidWorkflowError(self.problems)
            if self.rest is None
            else PartlyReadError(self.problems, self.rest)
        )


@dataclass(frozen=True)
class CheckedWorkflow:
    """A workflow and all that it calls, with the problems of all of them."""

    problems: tuple[Problem, ...]
    bundle: Bundle | None = None
    """None if there are errors."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(each for each in self.problems if each.severity == "error")


@dataclass(frozen=True)
class _Placed:
    """A workflow that was read, and the directory that its files must not lead out of."""

    reading: Reading
    root: str | None


class Library:
    """The workflows that can be used in a directory; files are read once."""

    def __init__(self, directory: str, environ: Mapping[str, str] = os.environ) -> None:
        self.directory = str(Path(directory).absolute())
        self.user_directory = workflows_directory(environ)
        self.project = project_workflows(self.directory, environ)
        self._named: dict[str, Found | Broken] | None = None

    def all(self) -> list[Found | Broken]:
        """Return every workflow with a name, sorted by name; broken files are among them."""
        by_name = self._by_name()
        return [by_name[name] for name in sorted(by_name)]

    def hidden(self) -> list[str]:
        """Return the names of the user's own workflows that are hidden by the project's."""
        own = {name for name, found in self._by_name().items() if found.origin == "project"}
        users = {} if self.user_directory is None else _found_in(self.user_directory, "user", None)
        return sorted(own & users.keys())

    def find(self, given: str, caller: Workflow | None = None) -> Workflow:
        """Find a workflow by its name, or a path that starts at the caller's file, else in the directory.

        Raises `InvalidWorkflowError`, or `WorkflowError` if there is none.
        """
        return self._placed(given, caller, None).reading.workflow

    def check(self, given: str) -> CheckedWorkflow:
        """Read and check a workflow and all that it calls; raises `WorkflowError` if there is none."""
        try:
            main = self._placed(given, None, None)
        except PartlyReadError as error:
            return self._checked(_Placed(error.rest, self._root_of(given, None)), error.problems)
        except InvalidWorkflowError as error:
            return CheckedWorkflow(error.problems)
        return self._checked(main)

    def bundle_of(self, given: str) -> Bundle:
        """Return a workflow and all that it calls; raises `InvalidWorkflowError` with all problems."""
        checked = self.check(given)
        if checked.bundle is None:
            raise InvalidWorkflowError(checked.errors)
        return checked.bundle

    def gathered(self, found: Found) -> tuple[Workflow, ...]:
        """Return a workflow and those that it calls, as far as they are there."""
        placed = self._gather(self._place(found))[0].values()
        return tuple(each.reading.workflow for each in placed if each.reading.gaps is None)

    def _by_name(self) -> dict[str, Found | Broken]:
        if self._named is None:
            users = {} if self.user_directory is None else _found_in(self.user_directory, "user", None)
            own = {} if self.project is None else _found_in(self.project.path, "project", self.project.root)
            self._named = {**users, **own}
        return self._named

    def _place(self, found: Found) -> _Placed:
        return _Placed(found.reading, self._root_of(found.name, None))

    def _root_of(self, given: str, around: str | None) -> str | None:
        """The directory that a workflow's files must not lead out of; of a path, that of its caller."""
        if is_path(given):
            return around
        is_projects = self._by_name()[given].origin == "project"
        return self.project.root if is_projects and self.project is not None else None

    def _placed(self, given: str, caller: Workflow | None, root: str | None) -> _Placed:
        if is_path(given):
            start = self.directory if caller is None else str(Path(caller.file).parent)
            return _Placed(_read(str(Path(start, given)), root), root)
        match self._by_name().get(given):
            case Found() as found:
                return self._place(found)
            case Broken() as broken:
                raise broken.error
            case None:
                raise WorkflowError(self._unknown(given, caller))

    def _unknown(self, given: str, caller: Workflow | None) -> str:
        beside = Path(self.directory if caller is None else caller.file)
        beside = beside if caller is None else beside.parent
        for suffix in SUFFIXES:
            if (beside / f"{given}{suffix}").is_file():
                return f"there is no workflow `{given}`; did you mean the file `{given}{suffix}`?"
        near = get_close_matches(given[:60], self._by_name(), n=1)
        hint = f"; did you mean `{printable(near[0], 100)}`?" if near else ":"
        return (
            f"there is no workflow `{printable(given, 60)}`{hint} `coupler workflows list` shows "
            "those there are"
        )

    def _checked(self, main: _Placed, known: Sequence[Problem] = ()) -> CheckedWorkflow:
        from coupler.workflow.validation.checks import KnownAgents, ValidationContext, validate

        placed, called, gathered = self._gather(main)
        problems = [*known, *gathered.problems]
        surroundings = ValidationContext(KnownAgents(self.directory), called)
        for each in placed.values():
            problems += validate(each.reading, replace(surroundings, root=each.root))
        checked = CheckedWorkflow(_sorted(problems, [*placed]))
        return checked if checked.errors else replace(checked, bundle=gathered.bundle)

    def _gather(
        self, main: _Placed
    ) -> tuple[dict[str, _Placed], dict[tuple[str, str], Workflow], CheckedWorkflow]:
        """Collect the workflows that one calls, by file and by call, with the bundle or its problems."""
        placed = {main.reading.workflow.file: main}
        called: dict[tuple[str, str], Workflow] = {}

        def find(name: str, caller: Workflow) -> Workflow:
            root = placed[caller.file].root
            try:
                found = self._placed(name, caller, root)
            except PartlyReadError as error:
                rest = _Placed(error.rest, self._root_of(name, root))
                placed.setdefault(error.rest.workflow.file, rest)
                raise
            workflow = found.reading.workflow
            placed.setdefault(workflow.file, found)
            called[caller.file, name] = workflow
            return workflow

        try:
            return placed, called, CheckedWorkflow((), build_bundle(main.reading.workflow, find))
        except InvalidWorkflowError as error:
            return placed, called, CheckedWorkflow(error.problems)


def is_path(given: str) -> bool:
    """Tell whether a workflow is named by its file, and not by its name."""
    return "/" in given or os.sep in given or given.endswith(SUFFIXES)


def why_no_command(name: str) -> str | None:
    """Return why a workflow of this name is no slash command, and what to do about it; None if it is."""
    if name in RESERVED:
        return f"editors have no command for it, because `/{name}` is about runs: give it another `name`"
    if name.endswith(SUFFIXES):
        return f"it cannot be called, because `{name}` means the path of a file: give it another `name`"
    return None


def read_file_beside(name: str, workflow_file: str) -> str:
    """Return the text of a file beside a workflow (`surrogateescape`); raises `StepError`."""
    try:
        content = load(str(Path(workflow_file).parent / name))
    except (WorkflowError, ValueError) as error:
        raise StepError("not_found", f"{error}.") from None
    return content.decode("utf-8", "surrogateescape")


def _sorted(problems: list[Problem], files: list[str]) -> tuple[Problem, ...]:
    """Return each problem once, by file in the order of the calls, then by position."""
    places = {file: number for number, file in enumerate(files)}

    def order(problem: Problem) -> tuple[int, str, int, int]:
        place = problem.position
        return places.get(place.file, len(files)), place.file, place.line, place.column

    return (*dict.fromkeys(sorted(problems, key=order)),)


def _read(path: str, root: str | None) -> Reading:
    from coupler.workflow.validation.checks import leads_out

    path = os.path.normpath(path)
    if leads_out(path, root):
        raise WorkflowError(
            f"{printable(path, 300)} leads out of the project: a project calls its own workflows"
        )
    if not Path(path).exists():
        raise WorkflowError(f"there is no file {printable(path, 300)}{_nearest_file(Path(path))}")
    return read_with_places(path)


def _nearest_file(path: Path) -> str:
    """Return a hint to a file of a similar name, as the end of a sentence; empty if there is none."""
    files = [file for file in map(Path, _files_in(str(path.parent))) if file.exists()]  # no links to nowhere
    names = {file.stem: file.name for file in files}
    near = get_close_matches(path.stem[:60], names, n=1)
    return f"; did you mean `{printable(names[near[0]], 100)}`?" if near else ""


def _found_in(directory: str, origin: WorkflowOrigin, root: str | None) -> dict[str, Found | Broken]:
    by_name: dict[str, list[Found | Broken]] = defaultdict(list)
    for file in _files_in(directory):
        found = _found(file, origin, root)
        by_name[found.name].append(found)
    return {name: found[0] if len(found) == 1 else _clash(found) for name, found in by_name.items()}


def _files_in(directory: str) -> Iterator[str]:
    try:
        files = sorted(Path(directory).iterdir())
    except OSError:
        return  # there is none, or none that this user may look into
    yield from (str(file) for file in files if file.suffix in SUFFIXES and not file.name.startswith("."))


def _found(file: str, origin: WorkflowOrigin, root: str | None) -> Found | Broken:
    start = SourcePosition(file, 1, 1)
    try:
        reading = _read(file, root)
    except PartlyReadError as error:
        return Broken(_name_in(file), file, origin, error.problems, error.rest)
    except InvalidWorkflowError as error:
        return Broken(_name_in(file), file, origin, error.problems)
    except WorkflowError as error:
        return Broken(Path(file).stem, file, origin, (Problem(start, str(error)),))
    return Found(reading.workflow.name, file, origin, reading)


def _name_in(file: str) -> str:
    """The name of a broken file's workflow, so that it is not taken for one that is not there."""
    try:
        root = parse_yaml(load(file), file)
    except WorkflowError:
        return Path(file).stem
    name = root.get("name") if isinstance(root, MappingNode) else None
    return str(name.value) if isinstance(name, ScalarNode) and name.value else Path(file).stem


def _clash(found: list[Found | Broken]) -> Broken:
    """The error for several files with one name: nobody can tell which of them is meant."""
    first = found[0]
    problems = [problem for each in found if isinstance(each, Broken) for problem in each.problems]
    problems += [
        Problem(
            SourcePosition(each.file, 1, 1),
            f"the name `{first.name}` is taken by {Path(first.file).name}: give one of them another `name`",
        )
        for each in found[1:]
    ]
    return Broken(first.name, first.file, first.origin, (*problems,))


@dataclass(frozen=True)
class Bundle:
    """A workflow and all that it calls, by the file that calls each and the name by which it does.

    It is read before anything runs, so that a mistake in the last of them is known first, a resumed run has
    what it began with, and a workflow that calls itself is refused.
    """

    main: Workflow
    called: Mapping[tuple[str, str], Workflow]

    def digest_in(self, cwd: str) -> str:
        """Return a hash that changes when one of them does, or code that they name, also in `cwd`."""
        digests = {workflow.file: workflow.digest for workflow in self.workflows}
        for workflow in self.workflows:
            for program in programs_of(workflow, [Path(workflow.file).parent, Path(cwd)]):
                with suppress(OSError, ValueError):  # one that is not there is told when it is needed
                    digests[str(program)] = hashlib.sha256(program.read_bytes()).hexdigest()
        text = "\n".join(f"{digests[file]}" for file in sorted(digests))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """Each of them once, the main one first."""
        by_file = {self.main.file: self.main}
        by_file.update((workflow.file, workflow) for workflow in self.called.values())
        return tuple(by_file.values())

    def called_by(self, caller: Workflow, name: str) -> Workflow:
        """Return the workflow that another one calls by a name."""
        return self.called[caller.file, name]


def build_bundle(main: Workflow, find: FindWorkflow) -> Bundle:
    """Read what a workflow calls, and what that calls; raises `InvalidWorkflowError` with all problems."""
    called: dict[tuple[str, str], Workflow] = {}
    problems: list[Problem] = []
    _gather(main, (main,), find, called, problems)
    if problems:
        raise InvalidWorkflowError(problems)
    return Bundle(main, called)


def _gather(
    caller: Workflow,
    chain: tuple[Workflow, ...],
    find: FindWorkflow,
    called: dict[tuple[str, str], Workflow],
    problems: list[Problem],
) -> None:
    for step, name in calls_in(caller):
        key = (caller.file, name)
        try:
            workflow = called.get(key) or find(name, caller)
        except InvalidWorkflowError as error:
            problems.extend(error.problems)
            continue
        except WorkflowError as error:
            problems.append(Problem(step.position, str(error)))
            continue
        problem = _wrong_chain(step.position, chain, workflow)
        if problem is not None:
            problems.append(problem)
        elif key not in called:
            called[key] = workflow
            _gather(workflow, (*chain, workflow), find, called, problems)


def _wrong_chain(position: SourcePosition, chain: tuple[Workflow, ...], workflow: Workflow) -> Problem | None:
    names = " → ".join(each.name for each in (*chain, workflow))
    if any(workflow.file == each.file for each in chain):
        return Problem(position, f"a workflow must not call itself: {names}")
    if len(chain) >= DEEPEST_CALLS:
        return Problem(position, f"more than {DEEPEST_CALLS} workflows call each other in a row: {names}")
    return None


def calls_in(workflow: Workflow) -> list[tuple[Step, str]]:
    """Return the steps of a workflow that call another one, and the names of those."""
    steps = [step for each in lists_of(workflow) for step in all_steps(each)]
    return [(step, name) for step in steps if (name := kind_of(step).called(step)) is not None]


def programs_of(workflow: Workflow, directories: Sequence[Path]) -> Iterator[Path]:
    """Yield the code files that a workflow names: of Python agents, and programs of MCP servers."""
    steps = agent_steps(workflow)
    profiles = workflow.agents.values()
    for name in dict.fromkeys(each.agent for each in (*steps, *profiles)):
        yield from _python_files(name, directories)
    set_ups = [each.set_up for each in (*steps, *profiles, workflow.defaults)]
    servers = [*workflow.mcp_servers, *(server for each in set_ups for server in each.mcp_servers)]
    for program in dict.fromkeys(server.command[0] for server in servers if server.command):
        if len(Path(program).parts) > 1 and _may_come_with_project(program, directories):
            yield directories[0] / program


def _may_come_with_project(program: str, directories: Sequence[Path]) -> bool:
    """Tell a program of the project from one of the system, such as `/usr/bin/python3`.

    One that is named from the root and stands nowhere below these directories is installed here, as those are
    that a name on the PATH means.
    """
    if not Path(program).is_absolute():
        return True
    beside = directories[0]
    is_of_project = beside.parts[-2:] == (".coupler", "workflows")
    places = [*directories, *([beside.parent.parent] if is_of_project else [])]
    return any(
        _is_below(os.path.normpath(program), str(place))
        or _is_below(os.path.realpath(program), os.path.realpath(place))
        for place in places
    )


def _python_files(agent: str, directories: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of a Python agent: the first of its name, or of a module each that may be imported."""
    place, attribute = split_target(agent.strip())
    if place.endswith(".py"):
        yield from [each / place for each in directories if (each / place).is_file()][:1]
    elif attribute and attribute not in ("acp", "native") and _MODULE.fullmatch(place):
        parts = place.split(".")
        packages = [Path(*parts[:number], "__init__.py") for number in range(1, len(parts) + 1)]
        files = [*packages, Path(*parts[:-1], f"{parts[-1]}.py")]
        yield from (each / file for each in directories for file in files if (each / file).is_file())


class FileToTrust(NamedTuple):
    """A file with the content that would be trusted."""

    path: str
    real_path: str
    content: bytes


def untrusted_files(
    bundle: Bundle, given: str | None, library: Library, trust: TrustedFiles | None
) -> list[FileToTrust]:
    """Return the files of a bundle that have to be trusted first; `given` is how the user has named it.

    With None the user has named nothing that is consent: each of its files has to be trusted.

    A name may mean a file of a cloned repository, and needs trust. A path on the command line is the user's
    word for that file and for those below its directory, and the user's own workflows need none. The code of
    Python agents and the programs of MCP servers are files that a workflow names like any other; what these
    use in turn is as unknown as what a command runs.
    """
    is_consent = given is not None and is_path(given)
    consent = os.path.dirname(os.path.realpath(bundle.main.file)) if is_consent else None  # noqa: PTH120
    return _untrusted(bundle.workflows, library, trust, consent)


def untrusted_project_files(library: Library, trust: TrustedFiles | None) -> list[FileToTrust]:
    """Return the untrusted files of all workflows of the project."""
    return _untrusted(_of_project(library), library, trust, None)


def untrusted_files_of(found: Found, library: Library, trust: TrustedFiles | None) -> list[FileToTrust]:
    """Return the untrusted files of one workflow that is called by its name."""
    return _untrusted(library.gathered(found), library, trust, None)


def trust_files(trust: Trust, files: Iterable[FileToTrust]) -> None:
    """Remember files as they were shown, even if they have changed since."""
    for file in files:
        trust.trust(file.real_path, file.content)


def _of_project(library: Library) -> Iterator[Workflow]:
    for found in library.all():
        if isinstance(found, Found) and found.origin == "project":
            yield from library.gathered(found)


def _untrusted(
    workflows: Iterable[Workflow], library: Library, trust: TrustedFiles | None, consent: str | None
) -> list[FileToTrust]:
    """Return each untrusted file once, except those of the user's own or below `consent`."""
    needed = {
        file.real_path: file
        for workflow in workflows
        if not _is_below(workflow.file, library.user_directory)
        for file in _files_of(workflow, None if consent is not None else library.directory)
        if not _is_below(file.real_path, consent)
    }
    return [
        file
        for file in needed.values()
        if trust is None or not trust.is_trusted(file.real_path, file.content)
    ]


def _files_of(workflow: Workflow, cwd: str | None) -> Iterator[FileToTrust]:
    """Yield the files of a workflow; Python agents that are not beside it are looked for in `cwd`."""
    directory = Path(workflow.file).parent
    paths: Sequence[str] = [workflow.file, *(str(directory / file.name) for file in workflow.files)]
    for path in paths:
        try:
            content = load(path)
        except (WorkflowError, ValueError):
            continue  # it is not there, which the check of the workflow tells
        yield FileToTrust(path, os.path.realpath(path), content)
    for program in programs_of(workflow, [directory, *([] if cwd is None else [Path(cwd)])]):
        with suppress(OSError, ValueError):  # it is not there, and so is not run
            yield FileToTrust(str(program), os.path.realpath(program), program.read_bytes())


def _is_below(path: str, directory: str | None) -> bool:
    return directory is not None and path.startswith(os.path.join(directory, ""))  # noqa: PTH118
