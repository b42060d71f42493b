"""`coupler init`: begin with Coupler in a project, or as a user."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from coupler.cli.exit_codes import FAILED, refuse
from coupler.cli.terminal import clean, content_of, replace, write_new
from coupler.config.lookup import NAME

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.providers.catalogue import Entry


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
    from coupler.cli.store_access import UnusableStoreError
    from coupler.cli.terminal import CannotWriteError
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
    from coupler.cli.terminal import clean

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()


# What is on this machine that a new project can use: agents, keys by their names, a model, editors.


CODER = "coder"


class Found(NamedTuple):
    """All of it; nothing of it was started, and no value of a key was looked at."""

    agents: tuple[str, ...]
    """Those that are installed, by their names in the catalogue."""
    keys: tuple[str, ...]
    """Variables that hold a provider's key."""
    model: str | None
    """The coder's model, if somebody has set one."""
    suggested: str | None
    """A model for which there is a key, or one of this machine, if none is set."""
    editors: tuple[tuple[str, str], ...]
    """Name and title of those that have been used here."""

    def ready(self, model: str | None) -> tuple[str, ...]:
        """Agents that could work now; the coder with this model, or with the one that is set."""
        has_model = self.model is not None or model not in (None, "none")
        return (*((CODER,) if has_model else ()), *self.agents)


def look_around(config: Config) -> Found:
    """Raises `ModelError` if what was stored of the coder's login cannot be read."""
    from coupler.coder.model.choice import chosen
    from coupler.coder.model.credentials import PROVIDERS
    from coupler.coder.profiles import Profile

    keys = [name for each in PROVIDERS.values() for name in each.variables if os.environ.get(name)]
    model = chosen(config, Profile())
    with_key = [
        f"{each.name}:{each.example}"
        for each in PROVIDERS.values()
        if each.example and any(os.environ.get(name) for name in each.variables)
    ]
    return Found(
        agents=tuple(_installed(config)),
        keys=tuple(keys),
        model=None if model is None else model.name,
        suggested=next(iter((*with_key, *_local_models())), None) if model is None else None,
        editors=tuple(_editors()),
    )


def _local_models() -> Sequence[str]:
    """Those that `coupler models` has installed."""
    from coupler.coder.model.local import installed_files
    from coupler.runtime.directories import NoHomeError

    try:
        return [f"local:{file.stem}" for file in installed_files()]
    except NoHomeError:
        return []


def _installed(config: Config) -> Sequence[str]:
    """Not those that `npx` would fetch: that is everything, and takes its time."""
    from coupler.client.errors import AgentError
    from coupler.providers.catalogue import choose, is_coder, joined

    names = []
    for entry in joined(config).values():
        if is_coder(entry):
            continue
        try:
            chosen = choose(entry)
        except AgentError:
            continue
        if not chosen.is_fetched and (chosen.form == "acp" or _has_program(entry)):
            names.append(entry.name)
    return names


def _has_program(entry: Entry) -> bool:
    """Whether a native form is a program, and no part of Coupler that is always there."""
    from coupler.providers.catalogue import ENTRIES as PROVIDERS

    return entry.native is not None and PROVIDERS[entry.native].program is not None


def _editors() -> Sequence[tuple[str, str]]:
    from coupler.cli.editor import EDITORS
    from coupler.cli.editor_settings import NoPlaceError, Surroundings

    try:
        around = Surroundings.of_this_user()
    except NoPlaceError:
        return []
    # One that is made of another is called by its own name.
    return [
        (place.variant or editor.name, place.title)
        for editor in EDITORS
        for place in editor.places(around)
        if place.is_there
    ]


# What `coupler init` asks, and what may be answered: by a person, or by an option in advance.


NONE = "none"
"""The answer for no agent, and for no model."""


class Answers(NamedTuple):
    """What the user wants; None for what nobody has said yet."""

    model: str | None
    agent: str | None

    def problem(self, config: Config) -> str | None:
        """What is wrong with them, as a sentence."""
        wrong_model = None if self.model is None else problem_with_model(self.model)
        return wrong_model or (None if self.agent is None else problem_with_agent(self.agent, config))

    def completed(self, found: Found) -> Answers:
        """The same with what was found in the place of what nobody has said."""
        model = self.model or found.suggested or NONE
        agent = self.agent or next(iter(found.ready(model)), NONE)
        return Answers(model, agent)


def asked(given: Answers, found: Found, config: Config) -> Answers:
    """The same with what the person at this terminal answers, who is asked two questions at most."""
    model, agent = given
    if model is None and found.model is None:
        _explain("Coupler's own coding agent needs a model: provider:name, such as ollama:…, or none.")
        model = _answer("Model", found.suggested or NONE, problem_with_model)
    if agent is None:
        ready = found.ready(model)
        _explain(f"An agent can work in the example workflow. Ready here: {', '.join((*ready, NONE))}.")
        agent = _answer("Agent", next(iter(ready), NONE), lambda name: problem_with_agent(name, config))
    return Answers(model, agent)


def problem_with_model(text: str) -> str | None:
    """Why this is no model that could be set."""
    from coupler.config.value_kinds import model_problem

    problem = None if text == NONE else model_problem(text)
    return None if problem is None else f"the model {problem}"


def problem_with_agent(name: str, config: Config) -> str | None:
    """Why this is no agent that could work."""
    from coupler.providers.catalogue import joined

    known = [*joined(config)]
    if name == NONE or name.partition(":")[0] in known:
        return None
    near = get_close_matches(name.lower(), known, 1)
    meant = f", did you mean {near[0]!r}?" if near else ":"
    return f"there is no agent {name!r}{meant} `coupler agents` lists those there are"


def _answer(question: str, default: str, problem_with: Callable[[str], str | None]) -> str:
    while True:
        answer = str(click.prompt(question, default=default, err=True)).strip()
        problem = problem_with(answer)
        if problem is None:
            _explain("")
            return answer
        _explain(f"  {problem}")


def _explain(sentence: str) -> None:
    sys.stderr.write(f"{clean(sentence)}\n")
    sys.stderr.flush()


# The files that a project begins with, in words that explain themselves.


EXAMPLE = "overview"
"""The name of the workflow."""


class Wanted(NamedTuple):
    """What the files are to say."""

    agent: str | None
    """Who works in the example."""
    model: str | None
    """What the coder is set to; None leaves it as it is."""
    current_model: str | None
    """What it is set to elsewhere."""
    agents: Sequence[str]
    """Those that are installed."""
    keys: Sequence[str]
    is_users: bool


_OF_PROJECT = """\
# Coupler's settings for this project. They hold for every agent that works here through Coupler: in an
# editor, a terminal or a workflow. `coupler init --user` writes a file of your own, for all projects.
#
# A project could have been made by anybody. So [permissions] of this file can only make things stricter, and
# [coder], [agents] and [mcp] count once you have trusted it: run `coupler trust` after you have changed them.
"""

_OF_USER = """\
# Your own settings of Coupler, for all projects and agents. A project can have a coupler.toml besides; that
# one can only make the [permissions] stricter.
"""

_PERMISSIONS_OF_PROJECT = """\

[permissions]
# What agents may never do, and what they must ask for even if your own file allows it.
deny = ["read(**/.env)"]
ask = ["execute(git push *)"]
"""

_PERMISSIONS_OF_USER = """\

[permissions]
# What agents may do without asking, what they must ask for nevertheless, and what they may never do.
# allow = ["execute(git status *)", "execute(git diff *)", "execute(make test)"]
ask = ["execute(git push *)"]
deny = ["read(**/.env)"]
"""

_REST = """\

# An agent of your own making: a name for another one, with instructions and rules for its tools. Commands and
# workflows then use it as any other: coupler chat reviewer, `agent: reviewer`.
#
# [agents.reviewer]
# agent = {agent}
# system = "You review changes, and change nothing."
# tools = {{ deny = ["edit(**)", "execute(*)"] }}

# A program that gives agents tools, over the Model Context Protocol.
#
# [mcp.time]
# command = "uvx"
# args = ["mcp-server-time"]

# Variables whose values are never shown. Those that are called like secrets need not be named.
#
# [secrets]
# names = ["DEPLOY_LOGIN"]
"""

_EXAMPLE = """\
# A workflow: what a project is, in a few lines.
#
#   coupler run {name}              runs it
#   coupler run {name} agent=NAME   runs it with another agent: `coupler agents` lists them
#   coupler workflows show {name}   tells what it does, and `graph` draws it
#
# In an editor that is served by `coupler serve`, it is the command /{name}.
{trust}name: {name}
description: Say what this project is, from its files and its last changes

inputs:
  agent: {{default: {agent}, description: Who says it; nothing for the facts alone}}

steps:
  # Beside each other. What a step has found is used by its id: steps.files, steps.changes.
  - id: look
    parallel:
      - id: files
        run: |
          {{ git ls-files --cached --others --exclude-standard 2>/dev/null || find . -maxdepth 2 -type f; }} |
            head -n 200
        output: lines                # stdout as a list: steps.files.output
      - id: changes
        run: git log --oneline -n 20 2>/dev/null || echo "There are none."

  - id: summary
    if: inputs.agent                 # left out if no agent is named
    agent: "{{{{ inputs.agent }}}}"
    prompt: |
      Say in five sentences at most what this project is, and where a newcomer should begin to read.
      Read what you need; change nothing.

      Its files:
      {{{{ steps.files.output | join("\\n") }}}}

      Its last changes:
      {{{{ steps.changes.stdout }}}}
    tools: {{deny: ["edit(**)", "execute(*)"]}}
    timeout: 5m

# What comes out. A pair of braces that is the whole text keeps its type: this is a number.
outputs:
  files: "{{{{ steps.files.output | length }}}}"
  summary: "{{{{ steps.summary.text | default('', true) }}}}"
"""


def settings_text(wanted: Wanted) -> str:
    """The text of a coupler.toml."""
    head = _OF_USER if wanted.is_users else _OF_PROJECT
    permissions = _PERMISSIONS_OF_USER if wanted.is_users else _PERMISSIONS_OF_PROJECT
    agent = json.dumps(next(iter(wanted.agents), wanted.agent) or "claude")
    found = f"\n# Agents that are installed here: {', '.join(wanted.agents)}.\n" if wanted.agents else ""
    return f"{head}{permissions}{_coder(wanted)}{found}{_REST.format(agent=agent)}"


def _coder(wanted: Wanted) -> str:
    """What the coder works with, if that is to be set here; else how it would be."""
    keys = f" These variables with keys are set: {', '.join(wanted.keys)}." if wanted.keys else ""
    about = f"\n# The model of Coupler's own coding agent, as provider:name.{keys}\n"
    if wanted.model is not None:
        return f"{about}[coder]\nmodel = {json.dumps(wanted.model)}\n"
    if wanted.current_model is not None:
        about = f"\n# Coupler's own coding agent works with {wanted.current_model}. Another one for here:\n"
    else:
        about += "# `coupler login coder` sets it for all projects, and stores the key.\n"
    example = wanted.current_model or "ollama:qwen3-coder"
    return f"{about}#\n# [coder]\n# model = {json.dumps(example)}\n"


def example_text(wanted: Wanted) -> str:
    """The text of the example workflow."""
    trust = (
        "" if wanted.is_users else "# It is trusted as it was written: after a change, run `coupler trust`.\n"
    )
    return _EXAMPLE.format(name=EXAMPLE, agent=json.dumps(wanted.agent or ""), trust=trust)


# The files of `coupler init`: made where none are, kept where some are, and trusted as they were made.


class Place(NamedTuple):
    """Where the files go."""

    directory: Path
    is_users: bool
    """Whether they are the user's own, for all projects."""

    @property
    def settings(self) -> Path:
        """The coupler.toml."""
        return self.directory / NAME

    @property
    def workflows(self) -> Path:
        """The directory of workflows."""
        return self.directory / ("workflows" if self.is_users else ".coupler/workflows")


class Outcome(NamedTuple):
    """What became of one file, or of all workflows."""

    path: Path
    state: str
    content: bytes | None = None
    """What was written; None if nothing was."""


def problem_with_place(place: Place) -> str | None:
    """Why nothing can be written there, before anybody is asked; the directory itself may be missing."""
    existing = next(each for each in (place.directory, *place.directory.parents) if os.path.lexists(each))
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is read-only"


def write_all(place: Place, wanted: Wanted, *, is_forced: bool) -> list[Outcome]:
    """Write what is missing, and by force the rest. Raises `CannotWriteError`."""
    example = place.workflows / f"{EXAMPLE}.yaml"
    others = [each for each in workflow_files(place) if each != example]
    settings = _written(place.settings, settings_text(wanted).encode(), is_forced=is_forced)
    if others and not example.exists():
        return [settings, Outcome(place.workflows, f"kept: it has {_listed(others)}")]
    return [settings, _written(example, example_text(wanted).encode(), is_forced=is_forced)]


def workflow_files(place: Place) -> list[Path]:
    """The workflows that are there."""
    try:
        return sorted(each for each in place.workflows.iterdir() if each.suffix in (".yaml", ".yml"))
    except OSError:
        return []


def trust_all(outcomes: list[Outcome]) -> None:
    """Trust what was written, as it was written: it came from here, and the user has asked for it.

    What was there before came from somebody, and is not trusted by this. Raises `UnusableStoreError`.
    """
    from coupler.cli.store_access import user_store

    with user_store(is_made=True) as store:
        assert store is not None
        for outcome in outcomes:
            if outcome.content is not None:
                store.trust.trust(os.path.realpath(outcome.path), outcome.content)


def has_untrusted(place: Place) -> bool:
    """Whether something is left there that the user would have to trust before it is used."""
    from coupler.cli.store_access import user_store
    from coupler.config import load
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import WorkflowError

    if place.is_users:
        return False
    with user_store() as store:
        trust = None if store is None else store.trust
        if load(str(place.directory), environ=os.environ, trust=trust).untrusted:
            return True
        try:
            from coupler.workflow.language.library import Library, untrusted_of_project

            return bool(untrusted_of_project(Library(str(place.directory)), trust))
        except (WorkflowError, MissingExtraError):
            return False  # told by whoever wants to run them


def _written(path: Path, content: bytes, *, is_forced: bool) -> Outcome:
    before = content_of(path)
    if before is None:
        write_new(path, content)
        return Outcome(path, "written", content)
    if before == content:
        return Outcome(path, "kept: it is as it would be written")
    if not is_forced:
        return Outcome(path, "kept as it is; --force replaces it")
    kept = replace(path, content, before)
    assert kept is not None
    return Outcome(path, f"replaced; what was there is in {kept.name}", content)


def _listed(files: list[Path]) -> str:
    names = [each.stem for each in files]
    return ", ".join(names) if len(names) < 4 else f"{len(names)} workflows"
