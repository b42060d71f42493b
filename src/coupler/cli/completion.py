"""`coupler completion`: the script by which a shell completes what is typed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from coupler.cli.exit_codes import refuse

PROGRAM = "coupler completion"


# The scripts for shells, and how they are installed. What they do is click's.


SHELLS = ("bash", "zsh", "fish")


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
    sys.stdout.write(script(chosen))
    sys.stdout.flush()
    if sys.stdout.isatty():
        sys.stderr.write(f"\n{HOW_TO_INSTALL[chosen]}\n")


def _own_shell() -> str:
    """The one that the user logs in with."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        refuse(f"say for which shell: coupler completion {'|'.join(SHELLS)}", PROGRAM)
    return name


# What a shell is answered when somebody presses the tabulator key.
#
# It is asked in the middle of a line that somebody types. So it imports no more than it needs, writes nothing
# but answers, and has none rather than an error.


def answer(instruction: str) -> None:
    """Write the completions that a script asks for, as in `bash_complete`."""
    shell, _, wanted = instruction.partition("_")
    chosen = get_completion_class(shell)
    if chosen is None or wanted != "complete":
        return
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        spoken, sys.stderr = sys.stderr, nowhere
        try:
            text = _completions(chosen, shell)
        except Exception:
            # Whatever is wrong with a file or the store is told by the commands that use it.
            text = ""
        finally:
            sys.stderr = spoken
    sys.stdout.write(f"{text}\n")


def _completions(chosen: type[ShellComplete], shell: str) -> str:
    from coupler.cli.main import command

    asking = chosen(command, {}, COMPLETED_PROGRAM, VARIABLE)
    arguments, _ = asking.get_completion_args()
    for path, each in _called(command, arguments):
        for parameter in each.params:
            completed(parameter, path, has_help=shell != "bash")
    return asking.complete()


def _called(command: click.Command, words: Sequence[str]) -> Iterator[tuple[str, click.Command]]:
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


# The names of what there is, as quickly as they can be had.
#
# Nothing is parsed or checked that a command is going to check anyway; what cannot be read has no names.


Name: TypeAlias = tuple[str, str | None]
"""A name, and what is said about it if that is wanted."""

MOST = 100
"""Runs and sessions, the newest ones."""

BEGINNING = 8192
"""Bytes of a workflow in which its name is looked for."""

_NAME = re.compile(rb"^name:[ \t]*[\"']?([A-Za-z0-9][\w.-]*)", re.MULTILINE)


def agents(has_help: bool) -> Iterator[Name]:
    """Those of the catalogue, and those of a coupler.toml that counts here."""
    from coupler.config import ConfigError
    from coupler.providers.catalogue import entries, known

    try:
        found = [*entries(".").values()]
    except ConfigError:
        found = [*known()]
    yield from ((entry.name, entry.title if has_help else None) for entry in found)


def workflows(has_help: bool) -> Iterator[Name]:
    """Those of the project, and the user's own."""
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


def runs(has_help: bool) -> Iterator[Name]:
    """Of all workflows, the newest first."""
    query = "SELECT id, workflow, status FROM runs ORDER BY number DESC LIMIT ?"
    for run, workflow, status in _rows(query):
        yield run, f"{workflow}, {status}" if has_help else None


def sessions(has_help: bool) -> Iterator[Name]:
    """Those that were prompted, the newest first, by as much of their ids as people type."""
    from coupler.cli.terminal import ago, one_line, short_agent, short_id

    query = (
        "SELECT id, agent, title, cwd, updated_at FROM sessions WHERE deleted = 0 AND turns > 0 "
        "ORDER BY updated_at DESC LIMIT ?"
    )
    for session, agent, title, cwd, updated_at in _rows(query):
        about = None
        if has_help:
            about = f"{one_line(_shown(title, cwd)) or short_agent(agent)}, {ago(updated_at)}"
        yield short_id(session), about


def _shown(title: str | None, directory: str) -> str:
    """A title without what is secret in it."""
    if not title:
        return ""
    from coupler.cli.store_access import masker_for

    return masker_for(directory).mask(title)


def _rows(query: str) -> list[Any]:
    import sqlite3
    from contextlib import closing

    from coupler.cli.doctor.services import opened
    from coupler.config import load
    from coupler.config.keys import STORE
    from coupler.runtime.directories import store_file

    path = Path(load(None, environ=os.environ)[STORE] or store_file())
    if not path.is_file():
        return []
    with closing(opened(path, 0.5)) as connection:
        try:
            return connection.execute(query, [MOST]).fetchall()
        except sqlite3.Error:
            return []


def editors(has_help: bool) -> Iterator[Name]:
    """Those that agents can be put into."""
    from coupler.cli.editor import EDITORS

    yield from ((editor.name, editor.title if has_help else None) for editor in EDITORS)


def known_models(has_help: bool) -> Iterator[Name]:
    """Models that can be installed by their names."""
    from coupler.coder.model.local import KNOWN

    yield from ((model.name, model.about if has_help else None) for model in KNOWN.values())


def installed_models(has_help: bool) -> Iterator[Name]:
    """Those that are there."""
    from coupler.coder.model.local import installed_files

    yield from ((file.stem, None) for file in installed_files())


COMPLETED_PROGRAM = "coupler"
VARIABLE = "_COUPLER_COMPLETE"
"""Set by the scripts, with what they want, when they ask for completions."""

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


def script(shell: str) -> str:
    """The script, with how to install it in its first lines."""
    from click.shell_completion import get_completion_class

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


# Which words of a command line are names of something: told by what the help calls them.


class Kind(NamedTuple):
    """What a word can be."""

    of: Callable[[bool], Iterable[Name]] | None = None
    """The names; they get a description if that is wanted."""
    is_file: bool = False
    is_directory: bool = False


FILE, DIRECTORY = Kind(is_file=True), Kind(is_directory=True)
AGENT, RUN, SESSION = Kind(agents), Kind(runs), Kind(sessions)

WORDS: Mapping[str, Kind] = {
    "AGENT": AGENT,
    "RUN": RUN,
    "ID": SESSION,
    "FILE": FILE,
    "PATH": FILE,
    "TRACE": FILE,
    "TARGET": FILE,
    "DIR|FILE": FILE,
    "FILE|NAME": Kind(workflows, is_file=True),
    "DIR": DIRECTORY,
    "DIRECTORY": DIRECTORY,
    "EDITOR": Kind(editors),
}
"""By the word that stands for them in the help, wherever that is."""

PARTICULAR: Mapping[tuple[str, str], Kind] = {
    ("workflows show", "name"): Kind(workflows, is_file=True),
    ("workflows validate", "names"): Kind(workflows, is_file=True),
    ("workflows graph", "name"): Kind(workflows, is_file=True),
    ("runs list", "cwd"): DIRECTORY,
    ("sessions list", "cwd"): DIRECTORY,
    ("serve", "agent"): AGENT,
    ("editor", "agent"): AGENT,
    ("models install", "name"): Kind(known_models),
    ("models remove", "names"): Kind(installed_models),
}
"""By command and parameter, where the word in the help says too little."""


class Completed(click.types.StringParamType):
    """A text that is the name of something."""

    def __init__(self, kind: Kind, *, has_help: bool) -> None:
        self._kind = kind
        self._has_help = has_help

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Files first: shells take them only if no name fits, when they come with names."""
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


def completed(parameter: click.Parameter, path: str, *, has_help: bool) -> None:
    """Have a parameter of a command completed, if it is the name of something."""
    kind = kind_of(parameter, path)
    if kind is not None and isinstance(parameter.type, click.types.StringParamType):
        parameter.type = Completed(kind, has_help=has_help)


def kind_of(parameter: click.Parameter, path: str) -> Kind | None:
    """What a parameter of the command at this path stands for; None if it is any text."""
    particular = PARTICULAR.get((path, parameter.name or ""))
    if particular is not None:
        return particular
    if isinstance(parameter, click.Argument):
        word = parameter.metavar or (parameter.name or "").upper()
    elif isinstance(parameter, click.Option):
        word = parameter.metavar or ""
    else:
        return None
    return WORDS.get(word.removesuffix("...").strip("[]"))
