"""`coupler trust`: let a project's coupler.toml set what a stranger's file must not set by itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from coupler.cli.kept import FAILED, WRONG_USAGE, kept_store
from coupler.cli.sessions_wording import clean, local_time, one_line, timestamp

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.config.file import ConfigFile
    from coupler.config.schema import Setting
    from coupler.store.trust import Trust, TrustedFile


@click.command(short_help="Trust a project's coupler.toml.", context_settings={"max_content_width": 80})
@click.argument("directory", metavar="[DIR]", default=".")
@click.option("--list", "is_list", is_flag=True, help="List the files that are trusted.")
@click.option("--forget", "is_forget", is_flag=True, help="Trust the project's file no longer.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
def trust(directory: str, is_list: bool, is_forget: bool, is_sure: bool) -> None:
    """Trust the coupler.toml of the project that DIR is in.

    Shows what the file sets that is used only in trusted projects, asks, and
    remembers the file with its content: once it changes, it has to be trusted
    again. DIR is the current directory unless another is named.

    Exit codes: 0 if all went well, 1 if something could not be done or the
    answer was no, 2 for wrong usage.
    """
    if is_list and is_forget:
        refuse("--list and --forget exclude each other")
    if is_list:
        _list()
    elif is_forget:
        _forget(directory)
    else:
        _trust(directory, is_sure=is_sure)


def refuse(sentence: str, code: int = WRONG_USAGE) -> NoReturn:
    """End the command with a sentence."""
    sys.stderr.write(f"coupler trust: {clean(sentence)}\n")
    sys.exit(code)


def _trust(directory: str, *, is_sure: bool) -> None:
    config = _load(_existing(directory))
    file = config.project
    if file is None:
        say(f"There is no coupler.toml in {one_line(directory)} or above it: nothing needs to be trusted.")
        return
    name = one_line(file.path)
    if not config.untrusted:
        say(f"{name} sets nothing that needs trust: it was not remembered.")
        _tell_notes(config)
        return
    with _kept() as trusted:
        assert trusted is not None
        if trusted.is_trusted(file.real_path, file.content):
            say(f"{name} is trusted already, as it is now.")
            return
        _show(file, config.untrusted)
        _confirm(is_sure=is_sure)
        # What was shown is what is remembered, even if the file has changed while the question stood.
        trusted.trust(file.real_path, file.content)
    say(f"{name} is trusted, as it was shown. `coupler trust --forget` withdraws it.")


def _show(file: ConfigFile, settings: tuple[Setting, ...]) -> None:
    click.echo(f"{one_line(file.path)} sets what is used only in trusted projects:", err=True)
    for setting in settings:
        # In ASCII: a letter that only looks like another must not pass for it where somebody decides.
        value = json.dumps(_written(file, setting), default=str)
        click.echo(f"  line {setting.origin.line}: {setting.key.name} = {value}", err=True)


def _written(file: ConfigFile, setting: Setting) -> object:
    """The value as the file has it, before it was read as something."""
    value: object = file.values
    for name in setting.key.name.split("."):
        assert isinstance(value, dict)
        value = value[name]
    return value


def _confirm(*, is_sure: bool) -> None:
    if is_sure:
        return
    if not sys.stdin.isatty():
        refuse("there is no terminal to ask on: add --yes to trust it without a question")
    if not click.confirm("Trust this file as it is now?", err=True):
        refuse("the file is not trusted", FAILED)


def _tell_notes(config: Config) -> None:
    for note in config.notes:
        say(f"Note: {clean(str(note))}.")


def _forget(directory: str) -> None:
    # The file may be gone, or broken: forgetting it must be possible all the same.
    own = str(Path(directory).resolve() / "coupler.toml")
    with _kept(is_made=False) as trusted:
        if trusted is not None:
            for path in (own, _found_above(directory)):
                if path is not None and trusted.distrust(path):
                    say(f"{one_line(path)} is no longer trusted.")
                    return
    refuse(
        f"no trusted file belongs to {one_line(directory)}: `coupler trust --list` shows those there are",
        FAILED,
    )


def _found_above(directory: str) -> str | None:
    from coupler.config import ConfigError
    from coupler.config.lookup import project_file

    try:
        found = project_file(str(Path(directory).absolute()), os.environ)
    except (ConfigError, ValueError):
        return None
    return None if found is None else str(Path(found.path).resolve())


def _list() -> None:
    with _kept(is_made=False) as trusted:
        files = [] if trusted is None else trusted.files()
    if not files:
        sys.stderr.write("No file is trusted.\n")
    for file in files:
        if sys.stdout.isatty():
            say(f"{one_line(file.path)}  trusted {local_time(file.trusted_at)}, {_state(file)}")
        else:
            say(f"{one_line(file.path)}\t{timestamp(file.trusted_at)}\t{_state(file)}")


def _state(file: TrustedFile) -> str:
    from coupler.config import ConfigError
    from coupler.config.file import content_of

    try:
        content = content_of(file.path)
    except ConfigError:
        return "missing"
    return "unchanged" if file.has(content) else "changed"


def _existing(directory: str) -> str:
    path = Path(directory).absolute()
    if not path.is_dir():
        refuse(f"{directory} is not a directory: name the one that the project is in")
    return str(path)


def _load(directory: str | None) -> Config:
    from coupler.config import ConfigError, load

    try:
        return load(directory, environ=os.environ)
    except ConfigError as error:
        refuse(str(error), FAILED)


@contextmanager
def _kept(*, is_made: bool = True) -> Iterator[Trust | None]:
    """The user's trusted files; None if there are none yet and none are to be made."""
    with kept_store(None, refuse, is_made=is_made) as store:
        yield None if store is None else store.trust


def say(line: str) -> None:
    """Write a line; a character that the stream cannot show is escaped, instead of ending the program."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(f"{line}\n")
