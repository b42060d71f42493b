"""`coupler init`: writes settings and an example workflow, for a project or a user.

It looks for agents, keys, a model and editors on this machine, asks at most two questions, writes files
where there are none, and trusts them as they were written.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from coupler.cli.exit_codes import FAILED, refuse
from coupler.cli.output import prompt, say, tell
from coupler.cli.terminal import CannotWriteError, read_file, replace_file, write_new_file
from coupler.config.lookup import FILE_NAME, project_directory

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.providers.catalogue import CatalogueEntry


PROGRAM = "coupler init"

CODER = "coder"

NONE = "none"
"""The answer for no agent, and for no model."""

EXAMPLE = "overview"
"""The name of the example workflow."""

_PROJECT_HEADER = """\
# Coupler's settings for this project. They hold for every agent that works here through Coupler: in an
# editor, a terminal or a workflow. `coupler init --user` writes a file of your own, for all projects.
#
# A project could have been made by anybody. So [permissions] of this file can only make things stricter, and
# [coder], [agents] and [mcp] count once you have trusted it: run `coupler trust` after you have changed them.
"""

_USER_HEADER = """\
# Your own settings of Coupler, for all projects and agents. A project can have a coupler.toml besides; that
# one can only make the [permissions] stricter.
"""

_PROJECT_PERMISSIONS = """\

[permissions]
# What agents may never do, and what they must ask for even if your own file allows it.
deny = ["read(**/.env)"]
ask = ["execute(git push *)"]
"""

_USER_PERMISSIONS = """\

[permissions]
# What agents may do without asking, what they must ask for nevertheless, and what they may never do.
# allow = ["execute(git status *)", "execute(git diff *)", "execute(make test)"]
ask = ["execute(git push *)"]
deny = ["read(**/.env)"]
"""

_SETTINGS_REST = """\

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

_EXAMPLE_WORKFLOW = """\
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


@click.command(
    short_help="Set up Coupler: settings and an example workflow.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("directory", required=False, type=click.Path(file_okay=False))
@click.option("--yes", "is_quick", is_flag=True, help="Ask nothing: use what was found.")
@click.option("--agent", metavar="NAME", help="The agent of the example; none for no agent.")
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
    from coupler.coder.model.credentials import ModelError

    target = _target(directory, is_users=is_users)
    if (problem := problem_with_target(target)) is not None:
        refuse(f"{problem}. Name another directory, as in `coupler init DIRECTORY`", PROGRAM, FAILED)
    config = _config(target, is_forced=is_forced)
    answers = InitAnswers(model, agent)
    if (problem := answers.problem(config)) is not None:
        refuse(problem, PROGRAM)
    try:
        found = discover(config)
    except ModelError as error:
        refuse(str(error), PROGRAM, FAILED)
    _tell_found(found)
    if not is_quick and sys.stdin.isatty():
        answers = ask_missing(answers, found, config)
    values = _template_values(target, found, answers.completed(found))
    try:
        outcomes = write_all(target, values, is_forced=is_forced)
    except CannotWriteError as error:
        refuse(f"{error}. What was there is as it was", PROGRAM, FAILED)
    _tell_outcomes(target, outcomes)
    if not target.is_users:
        try:
            trust_written(outcomes)
        except UnusableStoreError as error:
            refuse(
                f"the files are written, but not trusted: {error}. Then run `coupler trust`", PROGRAM, FAILED
            )
    _tell_next(target, found, values, outcomes)


class InitTarget(NamedTuple):
    """The directory that the files are written to."""

    directory: Path
    is_users: bool
    """True if they are the user's own, for all projects."""

    @property
    def settings(self) -> Path:
        """The path of the coupler.toml."""
        return self.directory / FILE_NAME

    @property
    def workflows(self) -> Path:
        """The directory of workflows."""
        return self.directory / ("workflows" if self.is_users else ".coupler/workflows")


def _target(directory: str | None, *, is_users: bool) -> InitTarget:
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
            say("This is your home: the files are your own, for all projects.\n")
        return InitTarget(Path(own), is_users=True)
    if directory is not None:
        return InitTarget(here, is_users=False)
    root = Path(project_directory(str(here), os.environ))
    if os.path.realpath(root) != os.path.realpath(here):
        say(f"This is in the project {root}: the files go there.\n")
    return InitTarget(root, is_users=False)


def problem_with_target(target: InitTarget) -> str | None:
    """The reason why nothing can be written there; the directory itself may be missing."""
    existing = next(each for each in (target.directory, *target.directory.parents) if os.path.lexists(each))
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is read-only"


def _config(target: InitTarget, *, is_forced: bool) -> Config:
    """The configuration there; a file that is to be replaced is not read, so it may be broken."""
    from coupler.config import Config, ConfigError
    from coupler.providers.catalogue import configuration

    if is_forced and target.is_users:
        return Config()
    is_read = target.directory.is_dir() and not target.is_users and not is_forced
    try:
        return configuration(target.directory if is_read else None)
    except ConfigError as error:
        is_ours = str(target.settings) in str(error)
        advice = "\n`coupler init --force` replaces the file, and keeps a copy." if is_ours else ""
        refuse(f"{error}{advice}", PROGRAM, FAILED)


class Discovery(NamedTuple):
    """Agents, keys, models and editors found on this machine. Nothing is started, and no key is read."""

    agents: tuple[str, ...]
    """Installed agents, by their names in the catalogue."""
    keys: tuple[str, ...]
    """Variables that hold a provider's key."""
    model: str | None
    """The coder's model, if one is set."""
    suggested: str | None
    """A model for which there is a key, or one of this machine, if none is set."""
    editors: tuple[tuple[str, str], ...]
    """Name and title of the editors that have been used here."""

    def ready(self, model: str | None) -> tuple[str, ...]:
        """Agents that could work now; the coder with this model, or with the one that is set."""
        has_model = self.model is not None or model not in (None, "none")
        return (*((CODER,) if has_model else ()), *self.agents)


def discover(config: Config) -> Discovery:
    """Looks for agents, keys, models and editors; raises `ModelError` for a coder's login it cannot read."""
    from coupler.coder.model.choice import chosen_model
    from coupler.coder.model.credentials import PROVIDERS
    from coupler.coder.profiles import CoderProfile

    keys = [name for each in PROVIDERS.values() for name in each.variables if os.environ.get(name)]
    model = chosen_model(config, CoderProfile())
    with_key = [
        f"{each.name}:{each.example}"
        for each in PROVIDERS.values()
        if each.example and any(os.environ.get(name) for name in each.variables)
    ]
    return Discovery(
        agents=tuple(_installed(config)),
        keys=tuple(keys),
        model=None if model is None else model.name,
        suggested=next(iter((*with_key, *_local_models())), None) if model is None else None,
        editors=tuple(_editors()),
    )


def _local_models() -> Sequence[str]:
    """The models that `coupler models` has installed."""
    from coupler.coder.model.local_files import installed_files
    from coupler.runtime.directories import NoHomeError

    try:
        return [f"local:{file.stem}" for file in installed_files()]
    except NoHomeError:
        return []


def _installed(config: Config) -> Sequence[str]:
    """The installed agents, without those that `npx` would fetch: that would be all of them, and slow."""
    from coupler.client.errors import AgentError
    from coupler.providers.catalogue import choose_form, is_coder, merged_entries

    names = []
    for entry in merged_entries(config).values():
        if is_coder(entry):
            continue
        try:
            chosen = choose_form(entry)
        except AgentError:
            continue
        if not chosen.is_fetched and (chosen.form == "acp" or _has_program(entry)):
            names.append(entry.name)
    return names


def _has_program(entry: CatalogueEntry) -> bool:
    """True if the native form needs a program, and is not always available in Coupler."""
    from coupler.providers.catalogue import ENTRIES as PROVIDERS

    return entry.native is not None and PROVIDERS[entry.native].program is not None


def _editors() -> Sequence[tuple[str, str]]:
    from coupler.cli.editor.editor import EDITORS
    from coupler.cli.editor.editor_settings import NoSettingsPathError, UserPlatform

    try:
        around = UserPlatform.of_this_user()
    except NoSettingsPathError:
        return []
    # One that is made of another is called by its own name.
    return [
        (target.variant or editor.name, target.title)
        for editor in EDITORS
        for target in editor.places(around)
        if target.is_there
    ]


class InitAnswers(NamedTuple):
    """The model and agent that were chosen, by options or at the terminal; None for what is open."""

    model: str | None
    agent: str | None

    def problem(self, config: Config) -> str | None:
        """The first problem with them, as a sentence."""
        wrong_model = None if self.model is None else problem_with_model(self.model)
        return wrong_model or (None if self.agent is None else problem_with_agent(self.agent, config))

    def completed(self, found: Discovery) -> InitAnswers:
        """These answers, with what was found in the target of what is open."""
        model = self.model or found.suggested or NONE
        agent = self.agent or next(iter(found.ready(model)), NONE)
        return InitAnswers(model, agent)


def ask_missing(given: InitAnswers, found: Discovery, config: Config) -> InitAnswers:
    """These answers, with what the person at this terminal says to two questions at most."""
    model, agent = given
    if model is None and found.model is None:
        tell("Coupler's own coding agent needs a model: provider:name, such as ollama:…, or none.")
        model = _ask("Model", found.suggested or NONE, problem_with_model)
    if agent is None:
        ready = found.ready(model)
        tell(f"An agent can work in the example workflow. Ready here: {', '.join((*ready, NONE))}.")
        agent = _ask("Agent", next(iter(ready), NONE), lambda name: problem_with_agent(name, config))
    return InitAnswers(model, agent)


def problem_with_model(text: str) -> str | None:
    """The reason why a model cannot be set."""
    from coupler.config.shapes import model_problem

    problem = None if text == NONE else model_problem(text)
    return None if problem is None else f"the model {problem}"


def problem_with_agent(name: str, config: Config) -> str | None:
    """The reason why an agent cannot work."""
    from coupler.providers.catalogue import merged_entries, unknown_agent_message

    if name == NONE or name.partition(":")[0] in merged_entries(config):
        return None
    return unknown_agent_message(name, config)


def _ask(question: str, default: str, problem_with: Callable[[str], str | None]) -> str:
    while True:
        answer = prompt(question, default=default)
        problem = problem_with(answer)
        if problem is None:
            tell("")
            return answer
        tell(f"  {problem}")


class TemplateValues(NamedTuple):
    """The values for the templates of the files."""

    agent: str | None
    """The agent of the example workflow."""
    model: str | None
    """The model to set for the coder; None leaves it as it is."""
    current_model: str | None
    """The model that is set for the coder elsewhere."""
    agents: Sequence[str]
    """The installed agents."""
    keys: Sequence[str]
    is_users: bool


def _template_values(target: InitTarget, found: Discovery, answers: InitAnswers) -> TemplateValues:
    model, agent = answers
    return TemplateValues(
        agent=None if agent == NONE else agent,
        model=None if model == NONE else model,
        current_model=found.model,
        agents=found.agents,
        keys=found.keys,
        is_users=target.is_users,
    )


def settings_text(values: TemplateValues) -> str:
    """The text of a coupler.toml."""
    head = _USER_HEADER if values.is_users else _PROJECT_HEADER
    permissions = _USER_PERMISSIONS if values.is_users else _PROJECT_PERMISSIONS
    agent = json.dumps(next(iter(values.agents), values.agent) or "claude")
    found = f"\n# Agents that are installed here: {', '.join(values.agents)}.\n" if values.agents else ""
    return f"{head}{permissions}{_coder(values)}{found}{_SETTINGS_REST.format(agent=agent)}"


def _coder(values: TemplateValues) -> str:
    """The part about the coder's model, commented out if it is not to be set here."""
    keys = f" These variables with keys are set: {', '.join(values.keys)}." if values.keys else ""
    about = f"\n# The model of Coupler's own coding agent, as provider:name.{keys}\n"
    if values.model is not None:
        return f"{about}[coder]\nmodel = {json.dumps(values.model)}\n"
    if values.current_model is not None:
        about = f"\n# Coupler's own coding agent works with {values.current_model}. Another one for here:\n"
    else:
        about += "# `coupler login coder` sets it for all projects, and stores the key.\n"
    example = values.current_model or "ollama:qwen3-coder"
    return f"{about}#\n# [coder]\n# model = {json.dumps(example)}\n"


def example_text(values: TemplateValues) -> str:
    """The text of the example workflow."""
    trust = (
        "" if values.is_users else "# It is trusted as it was written: after a change, run `coupler trust`.\n"
    )
    return _EXAMPLE_WORKFLOW.format(name=EXAMPLE, agent=json.dumps(values.agent or ""), trust=trust)


class FileOutcome(NamedTuple):
    """The outcome of one file, or of all workflows."""

    path: Path
    state: str
    content: bytes | None = None
    """The bytes that were written; None if nothing was."""


def write_all(target: InitTarget, values: TemplateValues, *, is_forced: bool) -> list[FileOutcome]:
    """Writes what is missing, and by force the rest. Raises `CannotWriteError`."""
    example = target.workflows / f"{EXAMPLE}.yaml"
    others = [each for each in workflow_files(target) if each != example]
    settings = _write(target.settings, settings_text(values).encode(), is_forced=is_forced)
    if others and not example.exists():
        return [settings, FileOutcome(target.workflows, f"kept: it has {_listed(others)}")]
    return [settings, _write(example, example_text(values).encode(), is_forced=is_forced)]


def workflow_files(target: InitTarget) -> list[Path]:
    """The workflow files that exist."""
    try:
        return sorted(each for each in target.workflows.iterdir() if each.suffix in (".yaml", ".yml"))
    except OSError:
        return []


def _write(path: Path, content: bytes, *, is_forced: bool) -> FileOutcome:
    before = read_file(path)
    if before is None:
        write_new_file(path, content)
        return FileOutcome(path, "written", content)
    if before == content:
        return FileOutcome(path, "kept: it is as it would be written")
    if not is_forced:
        return FileOutcome(path, "kept as it is; --force replaces it")
    kept = replace_file(path, content, before)
    assert kept is not None
    return FileOutcome(path, f"replaced; what was there is in {kept.name}", content)


def _listed(files: list[Path]) -> str:
    names = [each.stem for each in files]
    return ", ".join(names) if len(names) < 4 else f"{len(names)} workflows"


def trust_written(outcomes: list[FileOutcome]) -> None:
    """Trusts what was written, as it was written: it came from here, and the user has asked for it.

    What was there before came from somebody, and is not trusted by this. Raises `UnusableStoreError`.
    """
    from coupler.cli.store_access import user_store

    with user_store(is_made=True) as store:
        assert store is not None
        for outcome in outcomes:
            if outcome.content is not None:
                store.trust.trust(os.path.realpath(outcome.path), outcome.content)


def has_untrusted(target: InitTarget) -> bool:
    """True if something is left there that the user would have to trust before it is used."""
    from coupler.cli.store_access import user_store
    from coupler.config import load
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import WorkflowError

    if target.is_users:
        return False
    with user_store() as store:
        trust = None if store is None else store.trust
        if load(str(target.directory), environ=os.environ, trust=trust).untrusted:
            return True
        try:
            from coupler.workflow.language.library import Library, untrusted_project_files

            return bool(untrusted_project_files(Library(str(target.directory)), trust))
        except (WorkflowError, MissingExtraError):
            return False  # told by whoever wants to run them


def _tell_found(found: Discovery) -> None:
    say("Found on this machine:")
    rows = (
        ("agents", ", ".join(found.agents) or "none is installed; `coupler agents` tells how"),
        ("keys", ", ".join(found.keys) or "none among the variables"),
        ("model", found.model or _without_model(found)),
        ("editors", ", ".join(dict.fromkeys(title for _, title in found.editors)) or "none"),
    )
    for name, text in rows:
        say(f"  {name:<9}{text}")
    say("")


def _without_model(found: Discovery) -> str:
    return "none is set for the coder" + (f"; it could be {found.suggested}" if found.suggested else "")


def _tell_outcomes(target: InitTarget, outcomes: Sequence[FileOutcome]) -> None:
    say(f"In {target.directory}:")
    for outcome in outcomes:
        say(f"  {outcome.path.relative_to(target.directory)}: {outcome.state}")
    say("")


def _tell_next(
    target: InitTarget, found: Discovery, values: TemplateValues, outcomes: Sequence[FileOutcome]
) -> None:
    steps = [*_next_steps(target, found, values, outcomes)]
    width = max(len(command) for command, _ in steps)
    say("What you can do now:")
    if Path(target.directory).resolve() != Path.cwd() and not target.is_users:
        say(f"  cd {shlex.quote(str(target.directory))}")
    for command, purpose in steps:
        say(f"  {command:<{width}}  {purpose}")


def _next_steps(
    target: InitTarget, found: Discovery, values: TemplateValues, outcomes: Sequence[FileOutcome]
) -> Iterator[tuple[str, str]]:
    from importlib.util import find_spec

    if has_untrusted(target):
        yield "coupler trust", "read what was here before, and trust it"
    if find_spec("yaml") is None or find_spec("jinja2") is None:
        yield 'pip install "coupler[workflows]"', "for workflows, which need more packages"
    if any(outcome.path.stem == EXAMPLE for outcome in outcomes):
        yield f"coupler run {EXAMPLE}", "run the example"
    else:
        yield "coupler workflows list", "see the workflows that are here"
    if (values.model or found.model) is None:
        yield "coupler login coder", "give Coupler's own coding agent a model and its key"
        yield "coupler models install", "or a small one that runs on this machine, without a key"
    talker = values.agent or ("coder" if values.model or found.model else None)
    if talker is not None:
        yield f"coupler chat {talker}", "talk to the agent in this terminal"
    for name, title in found.editors[:2]:
        yield f"coupler editor {name} --write", f"put Coupler into {title}"
    if not found.editors:
        yield "coupler editor", "put Coupler into an editor"
