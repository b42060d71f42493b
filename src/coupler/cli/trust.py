"""`coupler trust`: trusts a project's coupler.toml and workflows, as they are now.

Until then they do not do what a stranger's files must not do by themselves. The workflows are trusted with
the scripts and prompts that they name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coupler.cli.exit_codes import FAILED, refuse
from coupler.cli.listing import Column, Listing
from coupler.cli.output import say, stderr, tell
from coupler.cli.store_access import store_or_exit
from coupler.cli.terminal import confirm_or_refuse, local_time
from coupler.runtime.formatting import count, timestamp
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.config.files import ConfigFile
    from coupler.config.keys import ConfigSetting
    from coupler.store.choices import Trust, TrustedFile
    from coupler.workflow.language.library import FileToTrust, Library


PROGRAM = "coupler trust"
WITHDRAW = "`coupler trust --forget` withdraws it."


@click.command(
    short_help="Trust a project's coupler.toml and workflows.", context_settings={"max_content_width": 80}
)
@click.argument("directory", metavar="[DIR|FILE]", default=".")
@click.option("--list", "is_list", is_flag=True, help="List the files that are trusted.")
@click.option("--forget", "is_forget", is_flag=True, help="Trust the project's files no longer.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
def trust(directory: str, is_list: bool, is_forget: bool, is_sure: bool) -> None:
    """Trust the coupler.toml and the workflows of the project that DIR is in.

    Shows what coupler.toml sets that is used only in trusted projects, and
    which files the workflows are made of, asks, and remembers the files with
    their content: one that changes has to be trusted again. DIR is the current
    directory unless another is named. FILE is a workflow that is somewhere
    else.

    \b
    Examples:
      coupler trust
      coupler trust ./release.yaml --yes
      coupler trust --list

    Exit codes: 0 if all went well, 1 if something could not be done or the
    answer was no, 2 for wrong usage.
    """
    if is_list and is_forget:
        refuse("--list and --forget exclude each other", PROGRAM)
    if is_list:
        _list()
    elif is_forget:
        _forget(directory)
    elif _is_workflow(directory):
        _trust_file(directory, is_sure=is_sure)
    else:
        _trust(directory, is_sure=is_sure)


def _is_workflow(path: str) -> bool:
    return path.endswith((".yaml", ".yml")) and not Path(path).is_dir()


def _trust(directory: str, *, is_sure: bool) -> None:
    existing = _existing(directory)
    config, workflows = _load(existing), ProjectWorkflows(existing)
    if config.project is None and not workflows.are_there:
        say(f"There is no coupler.toml in {one_line(directory)} or above it: nothing needs to be trusted.")
        return
    if not config.untrusted and not workflows.are_there:
        _say_harmless(config)
        return
    with _trusted_files() as trusted:
        assert trusted is not None
        is_set = bool(config.untrusted) and not _is_trusted(config.project, trusted)
        files = workflows.untrusted(trusted)
        if not is_set and not files:
            _say_trusted(config, workflows)
            return
        if is_set:
            _show(config.project, config.untrusted)
        workflows.show(files)
        _confirm(1 * is_set + len(files), is_sure=is_sure)
        # What was shown is what is remembered, even if the files have changed while the question stood.
        if is_set and config.project is not None:
            trusted.trust(config.project.real_path, config.project.content)
            say(f"{one_line(config.project.path)} is trusted, as it was shown. {WITHDRAW}")
        remember(files, trusted)


def _trust_file(file: str, *, is_sure: bool) -> None:
    """Trusts a workflow that is in no project's directory of them, with the files that it names."""
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import WorkflowError

    with _trusted_files() as trusted:
        try:
            files = untrusted_of_file(file, trusted)
        except (WorkflowError, MissingExtraError) as error:
            refuse(str(error), PROGRAM, FAILED)
        if not files:
            say(f"{one_line(file)} is trusted already, with the files that it names, as they are now.")
            return
        show_files(files, ".")
        _confirm(len(files), is_sure=is_sure)
        assert trusted is not None
        remember(files, trusted)


def _is_trusted(file: ConfigFile | None, trusted: Trust) -> bool:
    return file is not None and trusted.is_trusted(file.real_path, file.content)


def _say_harmless(config: Config) -> None:
    assert config.project is not None
    say(f"{one_line(config.project.path)} sets nothing that needs trust: it was not remembered.")
    _tell_notes(config)


def _say_trusted(config: Config, workflows: ProjectWorkflows) -> None:
    if config.project is not None and config.untrusted:
        say(f"{one_line(config.project.path)} is trusted already, as it is now.")
    workflows.say_trusted()


def _show(file: ConfigFile | None, settings: tuple[ConfigSetting, ...]) -> None:
    assert file is not None
    output = stderr()
    output.line(f"{one_line(file.path)} sets what is used only in trusted projects:")
    for setting in settings:
        # In ASCII: a letter that only looks like another must not pass for it where somebody decides.
        value = json.dumps(_written(file, setting), default=str)
        output.line(f"  line {setting.origin.line}: {setting.key.name} = {value}")


def _written(file: ConfigFile, setting: ConfigSetting) -> object:
    """The value as the file has it, before it was parsed."""
    value: object = file.values
    for name in setting.key.name.split("."):
        assert isinstance(value, dict)
        value = value[name]
    return value


def _confirm(number: int, *, is_sure: bool) -> None:
    if is_sure:
        return
    question, declined = "Trust this file as it is now?", "the file is not trusted"
    if number != 1:
        question, declined = f"Trust these {number} files as they are now?", "the files are not trusted"
    confirm_or_refuse(question, PROGRAM, to="trust it", declined=declined)


def _tell_notes(config: Config) -> None:
    for note in config.notes:
        say(f"Note: {note}.")


def _forget(directory: str) -> None:
    with _trusted_files(is_made=False) as trusted:
        if trusted is not None:
            if _is_workflow(directory):
                forgotten = forget_file(directory, trusted)
            else:
                forgotten = _forget_project(directory, trusted)
            for path in forgotten:
                say(f"{one_line(path)} is no longer trusted.")
            if forgotten:
                return
    refuse(
        f"no trusted file belongs to {one_line(directory)}: `coupler trust --list` shows those there are",
        PROGRAM,
        FAILED,
    )


def _forget_project(directory: str, trusted: Trust) -> list[str]:
    # The file may be gone, or broken: forgetting it must be possible all the same.
    own = str(Path(directory).resolve() / "coupler.toml")
    settings = [path for path in (own, _found_above(directory)) if path is not None]
    first = next((path for path in settings if trusted.distrust(path)), None)
    return [*([] if first is None else [first]), *forget_workflows(directory, trusted)]


def _found_above(directory: str) -> str | None:
    from coupler.config import ConfigError
    from coupler.config.lookup import project_file

    try:
        found = project_file(str(Path(directory).absolute()), os.environ)
    except (ConfigError, ValueError):
        return None
    return None if found is None else str(Path(found.path).resolve())


def _list() -> None:
    with _trusted_files(is_made=False) as trusted:
        files = [] if trusted is None else trusted.files()
    if not files:
        tell("No file is trusted.")
    LISTING.show(files, is_json=False)


def _cells(file: TrustedFile) -> tuple[str, ...]:
    return local_time(file.trusted_at), _state(file), one_line(file.path)


def _fields(file: TrustedFile) -> tuple[str, ...]:
    return file.path, str(timestamp(file.trusted_at)), _state(file)


def _state(file: TrustedFile) -> str:
    from coupler.config import ConfigError
    from coupler.config.files import read_content

    try:
        content = read_content(file.path)
    except ConfigError:
        return "missing"
    return "unchanged" if file.has(content) else "changed"


LISTING: Listing[TrustedFile] = Listing(
    (Column("TRUSTED"), Column("STATE"), Column("FILE", share=1, overflow="wrap")), _cells, _fields, str
)


def _existing(directory: str) -> str:
    path = Path(directory).absolute()
    if not path.is_dir():
        refuse(f"{directory} is not a directory: name the one that the project is in", PROGRAM)
    return str(path)


def _load(directory: str | None) -> Config:
    from coupler.config import ConfigError, load

    try:
        return load(directory, environ=os.environ)
    except ConfigError as error:
        refuse(str(error), PROGRAM, FAILED)


@contextmanager
def _trusted_files(*, is_made: bool = True) -> Iterator[Trust | None]:
    """The user's trusted files; None if there are none yet and none are to be made."""
    with store_or_exit(None, PROGRAM, is_made=is_made) as store:
        yield None if store is None else store.trust


class ProjectWorkflows:
    """The workflows of the project that a directory is in."""

    def __init__(self, directory: str) -> None:
        from coupler.config.lookup import project_workflows

        self._directory = directory
        self.place = project_workflows(directory, os.environ)

    @property
    def are_there(self) -> bool:
        return self.place is not None

    def untrusted(self, trusted: Trust) -> list[FileToTrust]:
        """The files that would have to be trusted before they run."""
        from coupler.runtime.extras import MissingExtraError

        if self.place is None:
            return []
        from coupler.workflow.language.library import untrusted_project_files

        try:
            return untrusted_project_files(self._library, trusted)
        except MissingExtraError as error:
            say(f"Note: the workflows of the project are left out. {error}.")
            self.place = None
            return []

    @cached_property
    def _library(self) -> Library:
        from coupler.workflow.language.library import Library

        return Library(self._directory)

    def show(self, files: Sequence[FileToTrust]) -> None:
        """Shows the files that the question is about."""
        if files and self.place is not None:
            show_files(files, self.place.root)
            self._tell_broken()

    def say_trusted(self) -> None:
        if self.place is not None:
            say(f"The workflows in {one_line(self.place.path)} are trusted already, as they are now.")
            self._tell_broken()

    def _tell_broken(self) -> None:
        from coupler.workflow.language.library import Broken

        for found in self._library.all():
            if isinstance(found, Broken) and found.origin == "project":
                file = os.path.relpath(found.file, self._directory)
                tell(f"Note: {one_line(file)} is broken, and is left out.")


def untrusted_of_file(file: str, trusted: Trust | None) -> list[FileToTrust]:
    """The untrusted files that a workflow at a path is made of; raises `WorkflowError`."""
    from coupler.workflow.language.library import Library, untrusted_files

    # A run of it works here, unless it is told otherwise: Python agents may be files of this directory.
    library = Library(".")
    bundle = library.bundle_of(str(Path(file).absolute()))
    # The path is no consent here, for it is what the question is about.
    return untrusted_files(bundle, None, library, trusted)


def show_files(files: Sequence[FileToTrust], root: str) -> None:
    """Shows the files that the question is about."""
    output = stderr()
    output.line("These files are run by workflows; read them first:")
    for file in files:
        lines = count(len(file.content.splitlines()), "line")
        output.line(f"  {one_line(os.path.relpath(file.real_path, root))}  ({lines})")


def remember(files: Sequence[FileToTrust], trusted: Trust) -> None:
    """Trusts the files as they were shown."""
    from coupler.workflow.language.library import trust_files

    if files:
        trust_files(trusted, files)
        noun = "file of workflows is" if len(files) == 1 else "files of workflows are"
        say(f"{len(files)} {noun} trusted, as shown. `coupler trust --forget` withdraws that.")


def forget_file(file: str, trusted: Trust) -> list[str]:
    """Trusts the files of a workflow at a path no longer; returns them."""
    from coupler.workflow.errors import WorkflowError

    try:
        paths = [each.real_path for each in untrusted_of_file(file, None)]
    except WorkflowError:
        paths = [str(Path(file).resolve())]  # it may be gone, or broken
    return [path for path in paths if trusted.distrust(path)]


def forget_workflows(directory: str, trusted: Trust) -> list[str]:
    """Trusts no file of a project's workflows any longer, also one that is gone; returns them."""
    from coupler.config.lookup import FILE_NAME, project_workflows

    place = project_workflows(str(Path(directory).absolute()), os.environ)
    if place is None:
        return []
    root = os.path.join(os.path.realpath(Path(place.path).parent.parent), "")  # noqa: PTH118
    below = [file.path for file in trusted.files() if file.path.startswith(root)]
    paths = [path for path in dict.fromkeys(below) if Path(path).name != FILE_NAME]
    return [path for path in paths if trusted.distrust(path)]
