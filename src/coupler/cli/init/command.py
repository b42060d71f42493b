"""`coupler init`: begin with Coupler in a project, or as a user."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coupler.cli.exit_codes import FAILED
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.cli.init.found import Found
    from coupler.cli.init.questions import Answers
    from coupler.cli.init.texts import Wanted
    from coupler.cli.init.writing import Outcome, Place
    from coupler.config import Config

PROGRAM = "coupler init"


@click.command(
    short_help="Begin with Coupler: settings and an example workflow.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("directory", required=False, type=click.Path(file_okay=False))
@click.option("--yes", "is_quick", is_flag=True, help="Ask nothing: use what was found.")
@click.option("--agent", metavar="NAME", help="Who works in the example; none for nobody.")
@click.option("--model", metavar="TEXT", help="The coder's model, such as ollama:NAME; none to set none.")
@click.option("--user", "is_users", is_flag=True, help="Write your own files, for all projects.")
@click.option("--force", "is_forced", is_flag=True, help="Replace files that are there, and keep copies.")
def init(
    directory: str | None,
    is_quick: bool,
    agent: str | None,
    model: str | None,
    is_users: bool,
    is_forced: bool,
) -> None:
    """Write a coupler.toml with comments and an example workflow that runs.

    Looks for agents that are installed, for keys of models among the
    variables, and for editors, and asks at most two questions; without a
    terminal none. Files that are there are kept as they are. DIRECTORY is made
    if it is missing; without it, it is the project that you are in: the
    repository, or this directory. In your home the files are your own, for all
    projects.

    What is written is trusted, as it was written: see coupler trust.

    \b
    Examples:
      coupler init
      coupler init my-project --yes --agent claude

    Exit codes: 0 if all went well, 1 if something could not be written, 2 for
    wrong usage.
    """
    from coupler.cli.init.found import look_around
    from coupler.cli.init.questions import Answers, asked
    from coupler.cli.init.writing import problem_with_place, trust_all, write_all
    from coupler.cli.kept import UnusableStoreError
    from coupler.cli.replaced_file import CannotWriteError
    from coupler.coder.model.credentials import ModelError

    place = _place(directory, is_users=is_users)
    if (problem := problem_with_place(place)) is not None:
        refuse(f"{problem}. Name another directory, as in `coupler init DIRECTORY`", PROGRAM, FAILED)
    config = _config(place, is_forced=is_forced)
    answers = Answers(model, agent)
    if (problem := answers.problem(config)) is not None:
        refuse(problem, PROGRAM)
    try:
        found = look_around(config)
    except ModelError as error:
        refuse(str(error), PROGRAM, FAILED)
    _tell_found(found)
    if not is_quick and sys.stdin.isatty():
        answers = asked(answers, found, config)
    wanted = _wanted(place, found, answers.completed(found))
    try:
        outcomes = write_all(place, wanted, is_forced=is_forced)
    except CannotWriteError as error:
        refuse(f"{error}. What was there is as it was", PROGRAM, FAILED)
    _tell_outcomes(place, outcomes)
    if not place.is_users:
        try:
            trust_all(outcomes)
        except UnusableStoreError as error:
            refuse(
                f"the files are written, but not trusted: {error}. Then run `coupler trust`", PROGRAM, FAILED
            )
    _tell_next(place, found, wanted, outcomes)


def _place(directory: str | None, *, is_users: bool) -> Place:
    from coupler.cli.init.writing import Place
    from coupler.config.lookup import project_directory
    from coupler.runtime.directories import config_directory, home_directory

    if is_users and directory is not None:
        refuse("--user and a DIRECTORY exclude each other", PROGRAM)
    try:
        here = Path(directory or ".").expanduser().absolute()
    except (RuntimeError, FileNotFoundError):
        refuse("this directory does not exist any more: name another one", PROGRAM, FAILED)
    home = home_directory(os.environ)
    if is_users or (home is not None and os.path.realpath(home) == os.path.realpath(here)):
        own = config_directory(os.environ)
        if own is None:
            refuse("this user has no home directory: set COUPLER_HOME to a directory", PROGRAM, FAILED)
        if not is_users:
            _say("This is your home: the files are your own, for all projects.\n")
        return Place(Path(own), is_users=True)
    if directory is not None:
        return Place(here, is_users=False)
    root = Path(project_directory(str(here), os.environ))
    if os.path.realpath(root) != os.path.realpath(here):
        _say(f"This is in the project {root}: the files go there.\n")
    return Place(root, is_users=False)


def _config(place: Place, *, is_forced: bool) -> Config:
    """What holds there; of a file that is to be replaced nothing does, so it may be broken."""
    from coupler.config import Config, ConfigError
    from coupler.providers.catalogue import configuration

    if is_forced and place.is_users:
        return Config({})
    is_read = place.directory.is_dir() and not place.is_users and not is_forced
    try:
        return configuration(place.directory if is_read else None)
    except ConfigError as error:
        is_ours = str(place.settings) in str(error)
        advice = "\n`coupler init --force` replaces the file, and keeps a copy." if is_ours else ""
        refuse(f"{error}{advice}", PROGRAM, FAILED)


def _wanted(place: Place, found: Found, answers: Answers) -> Wanted:
    from coupler.cli.init.questions import NONE
    from coupler.cli.init.texts import Wanted

    model, agent = answers
    return Wanted(
        agent=None if agent == NONE else agent,
        model=None if model == NONE else model,
        current_model=found.model,
        agents=found.agents,
        keys=found.keys,
        is_users=place.is_users,
    )


def _tell_found(found: Found) -> None:
    _say("Found on this machine:")
    rows = (
        ("agents", ", ".join(found.agents) or "none is installed; `coupler agents` tells how"),
        ("keys", ", ".join(found.keys) or "none among the variables"),
        ("model", found.model or _without_model(found)),
        ("editors", ", ".join(dict.fromkeys(title for _, title in found.editors)) or "none"),
    )
    for name, text in rows:
        _say(f"  {name:<9}{text}")
    _say("")


def _without_model(found: Found) -> str:
    return "none is set for the coder" + (f"; it could be {found.suggested}" if found.suggested else "")


def _tell_outcomes(place: Place, outcomes: Sequence[Outcome]) -> None:
    _say(f"In {place.directory}:")
    for outcome in outcomes:
        _say(f"  {outcome.path.relative_to(place.directory)}: {outcome.state}")
    _say("")


def _tell_next(place: Place, found: Found, wanted: Wanted, outcomes: Sequence[Outcome]) -> None:
    steps = [*_next_steps(place, found, wanted, outcomes)]
    width = max(len(command) for command, _ in steps)
    _say("What you can do now:")
    if Path(place.directory).resolve() != Path.cwd() and not place.is_users:
        _say(f"  cd {shlex.quote(str(place.directory))}")
    for command, purpose in steps:
        _say(f"  {command:<{width}}  {purpose}")


def _next_steps(
    place: Place, found: Found, wanted: Wanted, outcomes: Sequence[Outcome]
) -> Iterator[tuple[str, str]]:
    from importlib.util import find_spec

    from coupler.cli.init.texts import EXAMPLE
    from coupler.cli.init.writing import has_untrusted

    if has_untrusted(place):
        yield "coupler trust", "read what was here before, and trust it"
    if find_spec("yaml") is None or find_spec("jinja2") is None:
        yield 'pip install "coupler[workflows]"', "for workflows, which need more packages"
    if any(outcome.path.stem == EXAMPLE for outcome in outcomes):
        yield f"coupler run {EXAMPLE}", "run the example"
    else:
        yield "coupler workflows list", "see the workflows that are here"
    if (wanted.model or found.model) is None:
        yield "coupler login coder", "give Coupler's own coding agent a model and its key"
        yield "coupler models install", "or a small one that runs on this machine, without a key"
    talker = wanted.agent or ("coder" if wanted.model or found.model else None)
    if talker is not None:
        yield f"coupler chat {talker}", "talk to the agent in this terminal"
    for name, title in found.editors[:2]:
        yield f"coupler editor {name} --write", f"put Coupler into {title}"
    if not found.editors:
        yield "coupler editor", "put Coupler into an editor"


def _say(text: str) -> None:
    from coupler.cli.sessions.wording import clean

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()
