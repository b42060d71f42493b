"""`coupler completion`: the scripts by which shells complete what is typed, and the completions.

A shell asks in the middle of a line that somebody types. So this imports no more than it needs, writes
nothing but completions, and gives none rather than an error. Names are read as quickly as possible: nothing
is parsed or checked that a command is going to check anyway. Which words are names is told by what the help
calls them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from coupler.cli.exit_codes import refuse
from coupler.cli.output import stdout, tell

PROGRAM = "coupler completion"

COMPLETED_PROGRAM = "coupler"
VARIABLE = "_COUPLER_COMPLETE"
"""Set by the scripts, with what they want, when they ask for completions."""

SHELLS = ("bash", "zsh", "fish")

HOW_TO_INSTALL = {
    "bash": """\
To have it in every new shell, add this line to ~/.bashrc:
  eval "$(coupler completion bash)"
Or, with the package bash-completion, write it where it is found when it is first needed:
  mkdir -p ~/.local/share/bash-completion/completions
  coupler completion bash > ~/.local/share/bash-completion/completions/coupler""",
    "zsh": """\
To have it in every new shell, add this line to ~/.zshrc, after the one with compinit:
  eval "$(coupler completion zsh)"
Or write it to a directory of your fpath:
  coupler completion zsh > "${fpath[1]}/_coupler\"""",
    "fish": """\
To have it in every new shell, write it where fish looks for it:
  coupler completion fish > ~/.config/fish/completions/coupler.fish""",
}

DescribedName: TypeAlias = tuple[str, str | None]
"""A name, and its description for shells that show one."""

MOST_NAMES = 100
"""Runs or sessions that are offered, the newest ones."""

BEGINNING = 8192
"""Bytes of a workflow in which its name is looked for."""

_NAME = re.compile(rb"^name:[ \t]*[\"']?([A-Za-z0-9][\w.-]*)", re.MULTILINE)


@click.command(
    short_help="Complete commands and names in your shell.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> None:
    """Print the script by which your shell completes commands, options, and names.

    Completed are the names of agents and workflows, the ids of runs and
    sessions, and files. Without SHELL it is the one that you log in with. How
    to install the script is told on a terminal, and in its first lines.

    \b
    Examples:
      eval "$(coupler completion bash)"
      coupler completion fish > ~/.config/fish/completions/coupler.fish

    Exit codes: 0 if the script is printed, 2 for wrong usage.
    """
    chosen = shell or _own_shell()
    output = stdout()
    output.data(script(chosen))
    output.flush()
    if output.is_terminal:
        tell(f"\n{HOW_TO_INSTALL[chosen]}")


def _own_shell() -> str:
    """The shell that the user logs in with."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        refuse(f"say for which shell: coupler completion {'|'.join(SHELLS)}", PROGRAM)
    return name


def script(shell: str) -> str:
    """The completion script of a shell, with how to install it in its first lines."""
    from coupler.cli.main import command

    chosen = get_completion_class(shell)
    assert chosen is not None
    asking = chosen(command, {}, COMPLETED_PROGRAM, VARIABLE)
    # Without a look at the version of the shell: it is not always the one that is going to read this.
    text = asking.source_template % asking.source_vars()
    comment = "".join(f"# {line}".rstrip() + "\n" for line in HOW_TO_INSTALL[shell].splitlines())
    # zsh knows what a file is for by its first line.
    first, newline, rest = text.partition("\n") if text.startswith("#compdef") else ("", "", text)
    return f"{first}{newline}{comment}{rest.lstrip(chr(10))}"


def write_completions(instruction: str) -> None:
    """Writes the completions that a script asks for, as in `bash_complete`."""
    shell, _, wanted = instruction.partition("_")
    chosen = get_completion_class(shell)
    if chosen is None or wanted != "complete":
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        try:
            text = _completions(chosen, shell)
        except Exception:
            # Whatever is wrong with a file or the store is told by the commands that use it.
            text = ""
    stdout().text(text)


def _completions(chosen: type[ShellComplete], shell: str) -> str:
    from coupler.cli.main import command

    asking = chosen(command, {}, COMPLETED_PROGRAM, VARIABLE)
    arguments, _ = asking.get_completion_args()
    for path, each in _called_commands(command, arguments):
        for parameter in each.params:
            add_completion(parameter, path, has_help=shell != "bash")
    return asking.complete()


def _called_commands(command: click.Command, words: Sequence[str]) -> Iterator[tuple[str, click.Command]]:
    """The command that the words call, after those that it is below."""
    path: list[str] = []
    yield "", command
    for word in words:
        if not isinstance(command, click.Group):
            return
        found = command.get_command(click.Context(command), word)
        if found is None:
            continue
        path.append(word)
        command = found
        yield " ".join(path), command


def add_completion(parameter: click.Parameter, path: str, *, has_help: bool) -> None:
    """Completes a parameter of a command, if it is the name of something."""
    kind = completable_of(parameter, path)
    if kind is not None and isinstance(parameter.type, click.types.StringParamType):
        parameter.type = CompletedName(kind, has_help=has_help)


def completable_of(parameter: click.Parameter, path: str) -> Completable | None:
    """The completion of a parameter of the command at this path; None if it is any text."""
    particular = BY_PARAMETER.get((path, parameter.name or ""))
    if particular is not None:
        return particular
    if isinstance(parameter, click.Argument):
        word = parameter.metavar or (parameter.name or "").upper()
    elif isinstance(parameter, click.Option):
        word = parameter.metavar or ""
    else:
        return None
    return BY_METAVAR.get(word.removesuffix("...").strip("[]"))


class CompletedName(click.types.StringParamType):
    """The type of a parameter that is the name of something."""

    def __init__(self, kind: Completable, *, has_help: bool) -> None:
        self._kind = kind
        self._has_help = has_help

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Completions, files first: shells take them only if no name fits, when they come with names."""
        kind = self._kind
        items: list[CompletionItem[Any]] = []
        if kind.is_file or kind.is_directory:
            items.append(CompletionItem(incomplete, type="file" if kind.is_file else "dir"))
        if kind.of is not None:
            items += [
                CompletionItem(name, help=description)
                for name, description in kind.of(self._has_help)
                if name.startswith(incomplete)
            ]
        return items


class Completable(NamedTuple):
    """The completion of a word: names, files or directories."""

    of: Callable[[bool], Iterable[DescribedName]] | None = None
    """The names; they get a description if that is wanted."""
    is_file: bool = False
    is_directory: bool = False


def agent_names(has_help: bool) -> Iterator[DescribedName]:
    """Agents of the catalogue, and of a coupler.toml that counts here."""
    from coupler.config import ConfigError
    from coupler.providers.catalogue import entries, known_agents

    try:
        found = [*entries(".").values()]
    except ConfigError:
        found = [*known_agents()]
    yield from ((entry.name, entry.title if has_help else None) for entry in found)


def workflow_names(has_help: bool) -> Iterator[DescribedName]:
    """Workflows of the project, and the user's own."""
    from coupler.config.lookup import project_workflows, workflows_directory

    own = workflows_directory(os.environ)
    project = project_workflows(str(Path.cwd()), os.environ)
    origins = {own: "yours", None if project is None else project.path: "of this project"}
    found = {
        _name_in(file): origin
        for directory, origin in origins.items()
        if directory is not None
        for file in sorted(Path(directory).glob("*.y*ml"))
    }
    yield from ((name, origin if has_help else None) for name, origin in sorted(found.items()))


def _name_in(file: Path) -> str:
    try:
        if not file.is_file():
            return file.stem
        with file.open("rb") as stream:
            named = _NAME.search(stream.read(BEGINNING))
    except OSError:
        return file.stem
    return file.stem if named is None else named[1].decode()


def run_ids(has_help: bool) -> Iterator[DescribedName]:
    """Runs of all workflows, the newest first."""
    query = "SELECT id, workflow, status FROM runs ORDER BY number DESC LIMIT ?"
    for run, workflow, status in _rows(query):
        yield run, f"{workflow}, {status}" if has_help else None


def session_ids(has_help: bool) -> Iterator[DescribedName]:
    """Sessions that were prompted, the newest first, by as much of their ids as people type."""
    from coupler.cli.terminal import ago, short_agent, short_id
    from coupler.runtime.terminal_text import one_line

    query = (
        "SELECT id, agent, title, cwd, updated_at FROM sessions WHERE deleted = 0 AND turns > 0 "
        "ORDER BY updated_at DESC LIMIT ?"
    )
    for session, agent, title, cwd, updated_at in _rows(query):
        about = None
        if has_help:
            about = f"{one_line(_redacted_title(title, cwd)) or short_agent(agent)}, {ago(updated_at)}"
        yield short_id(session), about


def _redacted_title(title: str | None, directory: str) -> str:
    """A title without secrets."""
    if not title:
        return ""
    from coupler.redaction.known_secrets import masker_for

    return masker_for(directory).mask(title)


def _rows(query: str) -> list[Any]:
    import sqlite3
    from contextlib import closing

    from coupler.cli.doctor.services import open_read_only
    from coupler.config import load
    from coupler.runtime.directories import store_file

    path = Path(load(None, environ=os.environ).sessions.store or store_file())
    if not path.is_file():
        return []
    with closing(open_read_only(path, 0.5)) as connection:
        try:
            return connection.execute(query, [MOST_NAMES]).fetchall()
        except sqlite3.Error:
            return []


def editor_names(has_help: bool) -> Iterator[DescribedName]:
    """Editors that agents can be put into."""
    from coupler.cli.editor.editor import EDITORS

    yield from ((editor.name, editor.title if has_help else None) for editor in EDITORS)


def known_model_names(has_help: bool) -> Iterator[DescribedName]:
    """Models that can be installed by name."""
    from coupler.coder.model.local_files import KNOWN_MODELS

    yield from ((model.name, model.about if has_help else None) for model in KNOWN_MODELS.values())


def installed_model_names(has_help: bool) -> Iterator[DescribedName]:
    """Models that are installed."""
    from coupler.coder.model.local_files import installed_files

    yield from ((file.stem, None) for file in installed_files())


FILE, DIRECTORY = Completable(is_file=True), Completable(is_directory=True)
AGENT, RUN, SESSION = Completable(agent_names), Completable(run_ids), Completable(session_ids)

BY_METAVAR: Mapping[str, Completable] = {
    "AGENT": AGENT,
    "RUN": RUN,
    "ID": SESSION,
    "FILE": FILE,
    "PATH": FILE,
    "TRACE": FILE,
    "TARGET": FILE,
    "DIR|FILE": FILE,
    "FILE|NAME": Completable(workflow_names, is_file=True),
    "DIR": DIRECTORY,
    "DIRECTORY": DIRECTORY,
    "EDITOR": Completable(editor_names),
}
"""Completions by the word that stands for an argument in the help."""

BY_PARAMETER: Mapping[tuple[str, str], Completable] = {
    ("workflows show", "name"): Completable(workflow_names, is_file=True),
    ("workflows validate", "names"): Completable(workflow_names, is_file=True),
    ("workflows graph", "name"): Completable(workflow_names, is_file=True),
    ("runs list", "cwd"): DIRECTORY,
    ("sessions list", "cwd"): DIRECTORY,
    ("serve", "agent"): AGENT,
    ("editor", "agent"): AGENT,
    ("models install", "name"): Completable(known_model_names),
    ("models remove", "names"): Completable(installed_model_names),
}
"""Completions by command and parameter, where the word in the help is not enough."""
