"""Where workflows are found: in the project, among the user's own, or at a path.

A broken file hides none of the others. Of two with one name the project's counts; a project's files must not
lead out of it, because a cloned repository may hold links to anywhere.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from coupler.config.lookup import project_workflows, shown, workflows_directory
from coupler.workflow.errors import InvalidWorkflowError, Problem, WorkflowError
from coupler.workflow.language.bundle import Bundle, gather_bundle
from coupler.workflow.language.definition import Position, Workflow
from coupler.workflow.language.reading import PartlyReadError, Reading, load, read_with_places
from coupler.workflow.language.slash_commands import SUFFIXES
from coupler.workflow.language.source import Fields, Scalar, parse

Origin = Literal["project", "user"]


@dataclass(frozen=True)
class Found:
    """A workflow that can be called by its name."""

    name: str
    file: str
    origin: Origin
    reading: Reading = field(repr=False)

    @property
    def workflow(self) -> Workflow:
        return self.reading.workflow


@dataclass(frozen=True)
class Broken:
    """A file that should be a workflow, and what is wrong with it."""

    name: str
    file: str
    origin: Origin
    problems: tuple[Problem, ...]
    rest: Reading | None = field(default=None, repr=False)
    """What could be read of it."""

    @property
    def error(self) -> InvalidWorkflowError:
        return (
            InvalidWorkflowError(self.problems)
            if self.rest is None
            else PartlyReadError(self.problems, self.rest)
        )


@dataclass(frozen=True)
class Checked:
    """A workflow and all that it calls, with what is wrong with any of them."""

    problems: tuple[Problem, ...]
    bundle: Bundle | None = None
    """None: there are errors."""

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
        """Every workflow with a name, by names; a broken file is one of them."""
        by_name = self._by_name()
        return [by_name[name] for name in sorted(by_name)]

    def hidden(self) -> list[str]:
        """The names of the user's own workflows in whose places the project's are."""
        own = {name for name, found in self._by_name().items() if found.origin == "project"}
        users = {} if self.user_directory is None else _found_in(self.user_directory, "user", None)
        return sorted(own & users.keys())

    def find(self, given: str, caller: Workflow | None = None) -> Workflow:
        """The workflow of a name, or at a path that starts at the caller's file, else in the directory.

        Raises `InvalidWorkflowError`, or `WorkflowError` if there is none.
        """
        return self._placed(given, caller, None).reading.workflow

    def check(self, given: str) -> Checked:
        """Read and check a workflow and all that it calls; raises `WorkflowError` if there is none."""
        try:
            main = self._placed(given, None, None)
        except PartlyReadError as error:
            return self._checked(_Placed(error.rest, self._root_of(given, None)), error.problems)
        except InvalidWorkflowError as error:
            return Checked(error.problems)
        return self._checked(main)

    def bundle_of(self, given: str) -> Bundle:
        """A workflow and all that it calls; raises `InvalidWorkflowError` with all problems of all files."""
        checked = self.check(given)
        if checked.bundle is None:
            raise InvalidWorkflowError(checked.errors)
        return checked.bundle

    def gathered(self, found: Found) -> tuple[Workflow, ...]:
        """A workflow and those that it calls, as far as they are there."""
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
        hint = f"; did you mean `{near[0]}`?" if near else ":"
        return (
            f"there is no workflow `{shown(given, 60)}`{hint} `coupler workflows list` shows those there are"
        )

    def _checked(self, main: _Placed, known: Sequence[Problem] = ()) -> Checked:
        from coupler.workflow.validation.agents import KnownAgents
        from coupler.workflow.validation.validation import Surroundings, validate

        placed, called, gathered = self._gather(main)
        problems = [*known, *gathered.problems]
        surroundings = Surroundings(KnownAgents(self.directory), called)
        for each in placed.values():
            problems += validate(each.reading, replace(surroundings, root=each.root))
        checked = Checked(_sorted(problems, [*placed]))
        return checked if checked.errors else replace(checked, bundle=gathered.bundle)

    def _gather(self, main: _Placed) -> tuple[dict[str, _Placed], dict[tuple[str, str], Workflow], Checked]:
        """What a workflow calls, by files and by calls, and whether that is all."""
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
            return placed, called, Checked((), gather_bundle(main.reading.workflow, find))
        except InvalidWorkflowError as error:
            return placed, called, Checked(error.problems)


def _sorted(problems: list[Problem], files: list[str]) -> tuple[Problem, ...]:
    """Each once, file by file, in the order in which the workflows call each other."""
    places = {file: number for number, file in enumerate(files)}

    def order(problem: Problem) -> tuple[int, str, int, int]:
        place = problem.position
        return places.get(place.file, len(files)), place.file, place.line, place.column

    return (*dict.fromkeys(sorted(problems, key=order)),)


def is_path(given: str) -> bool:
    """Whether a workflow is meant by its file, and not by its name."""
    return "/" in given or os.sep in given or given.endswith(SUFFIXES)


def _read(path: str, root: str | None) -> Reading:
    from coupler.workflow.validation.files import leads_out

    path = os.path.normpath(path)
    if leads_out(path, root):
        raise WorkflowError(f"{shown(path, 300)} leads out of the project: a project calls its own workflows")
    if not Path(path).exists():
        raise WorkflowError(f"there is no file {shown(path, 300)}{_nearest_file(Path(path))}")
    return read_with_places(path)


def _nearest_file(path: Path) -> str:
    """The end of a sentence about a file that is not there: one that is called nearly so, if there is one."""
    names = {file.stem: file.name for file in map(Path, _files_in(str(path.parent)))}
    near = get_close_matches(path.stem[:60], names, n=1)
    return f"; did you mean `{shown(names[near[0]], 100)}`?" if near else ""


def _found_in(directory: str, origin: Origin, root: str | None) -> dict[str, Found | Broken]:
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


def _found(file: str, origin: Origin, root: str | None) -> Found | Broken:
    start = Position(file, 1, 1)
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
    """What a broken file would be called, so that it is not taken for one that is not there."""
    try:
        root = parse(load(file), file)
    except WorkflowError:
        return Path(file).stem
    name = root.get("name") if isinstance(root, Fields) else None
    return str(name.value) if isinstance(name, Scalar) and name.value else Path(file).stem


def _clash(found: list[Found | Broken]) -> Broken:
    """Which of them is meant nobody can tell."""
    first = found[0]
    problems = [problem for each in found if isinstance(each, Broken) for problem in each.problems]
    problems += [
        Problem(
            Position(each.file, 1, 1),
            f"the name `{first.name}` is taken by {Path(first.file).name}: give one of them another `name`",
        )
        for each in found[1:]
    ]
    return Broken(first.name, first.file, first.origin, (*problems,))
