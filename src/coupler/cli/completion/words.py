"""Which words of a command line are names of something: told by what the help calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from coupler.cli.completion import names


class Kind(NamedTuple):
    """What a word can be."""

    of: Callable[[bool], Iterable[names.Name]] | None = None
    """The names; they get a description if that is wanted."""
    is_file: bool = False
    is_directory: bool = False


FILE, DIRECTORY = Kind(is_file=True), Kind(is_directory=True)
AGENT, RUN, SESSION = Kind(names.agents), Kind(names.runs), Kind(names.sessions)

WORDS: Mapping[str, Kind] = {
    "AGENT": AGENT,
    "RUN": RUN,
    "ID": SESSION,
    "FILE": FILE,
    "PATH": FILE,
    "TRACE": FILE,
    "TARGET": FILE,
    "DIR|FILE": FILE,
    "FILE|NAME": Kind(names.workflows, is_file=True),
    "DIR": DIRECTORY,
    "DIRECTORY": DIRECTORY,
    "EDITOR": Kind(names.editors),
}
"""By the word that stands for them in the help, wherever that is."""

PARTICULAR: Mapping[tuple[str, str], Kind] = {
    ("workflows show", "name"): Kind(names.workflows, is_file=True),
    ("workflows validate", "names"): Kind(names.workflows, is_file=True),
    ("workflows graph", "name"): Kind(names.workflows, is_file=True),
    ("runs list", "cwd"): DIRECTORY,
    ("sessions list", "cwd"): DIRECTORY,
    ("serve", "agent"): AGENT,
    ("editor", "agent"): AGENT,
    ("models install", "name"): Kind(names.known_models),
    ("models remove", "names"): Kind(names.installed_models),
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
