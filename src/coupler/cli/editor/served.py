"""What an editor is to start: this Coupler, with words that mean the same wherever the editor starts it.

Editors start agents in a directory of their own choice, and often without the variables of a shell. So every
path is absolute.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from coupler.cli.serve import is_workflow

CODER_TITLE = "Coupler"
FILE_ENDINGS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".jar", ".sh", ".json", ".toml", ".yaml", ".yml")
"""How the names of files end that are arguments of a command."""

LUA_WORDS = re.compile(
    "and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until"
    "|while"
)
"""What cannot be a name there."""

HOME_VARIABLE = "COUPLER_HOME"
CACHES = ("archive-v0", "environments-v2", "builds-v0")
"""Directories of caches that run programs without installing them."""


class CannotServeError(Exception):
    """There is nothing of this kind to serve."""


class Asked(NamedTuple):
    """What was given on the command line."""

    target: str | None = None
    agent: str | None = None
    command: Sequence[str] = ()
    model: str | None = None
    name: str | None = None
    env: Mapping[str, str] = {}


class Served(NamedTuple):
    """A command line under a name, and what its environment needs besides the editor's."""

    title: str
    words: tuple[str, ...]
    env: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    """What people should know about it."""

    @property
    def command(self) -> str:
        """The program."""
        return self.words[0]

    @property
    def args(self) -> list[str]:
        """Its arguments."""
        return [*self.words[1:]]

    @property
    def identifier(self) -> str:
        """The name as a word of programming languages."""
        plain = unicodedata.normalize("NFKD", self.title).encode("ascii", "ignore").decode()
        word = re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")
        is_plain = word and not word[0].isdigit() and LUA_WORDS.fullmatch(word) is None
        return word if is_plain else f"agent_{word}".rstrip("_")


def served(asked: Asked) -> Served:
    """What is to be started for what was asked; raises `CannotServeError`."""
    if sum(map(bool, (asked.target, asked.agent, asked.command))) > 1:
        raise CannotServeError("name one of these: a target, --agent, or a command behind `--`")
    if asked.model is not None and (asked.target or asked.command):
        raise CannotServeError("--model is for the coder: leave it out, or serve no other agent")
    if asked.command:
        found = _command(asked.command)
    elif asked.agent:
        found = _agent(asked.agent, has_model=asked.model is not None)
    elif asked.target:
        found = _target(asked.target)
    else:
        found = Served(CODER_TITLE, (), notes=() if asked.model else _notes_on_model())
    model = () if asked.model is None else ("--model", asked.model)
    home = os.environ.get(HOME_VARIABLE)
    env = {**({HOME_VARIABLE: str(Path(home).absolute())} if home else {}), **found.env, **asked.env}
    title = found.title if asked.name is None else asked.name
    words = (*coupler_words(), "serve", *model, *found.words)
    notes = (*found.notes, *(_notes_on_packages() if asked.target else ()), *_notes_on_place(words[0]))
    return Served(title, words, env, notes)


def coupler_words() -> list[str]:
    """How this Coupler is started: links stay as they are, so that an update is not passed by."""
    name = "coupler.exe" if sys.platform == "win32" else "coupler"
    beside = Path(sys.executable).with_name(name)
    if beside.is_file():
        return [str(beside)]
    called = shutil.which(sys.argv[0])
    if called is not None and Path(called).name == name:
        return [str(Path(called).absolute())]
    return [sys.executable, "-m", "coupler"]


def _notes_on_model() -> tuple[str, ...]:
    """The coder can be put into an editor before it has a model; its user should know."""
    from coupler.coder.model.choice import chosen
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.profile import Profile
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import configuration

    try:
        is_set = chosen(configuration("."), Profile()) is not None
    except (ConfigError, ModelError) as error:
        return (str(error),)
    sentence = "no model is set yet: `coupler login coder` sets one; without it only workflows can be run"
    return () if is_set else (sentence,)


def _notes_on_packages() -> tuple[str, ...]:
    """An agent runs where Coupler is, and that may not be where its packages are."""
    active = os.environ.get("VIRTUAL_ENV")
    if not active or os.path.realpath(active) == os.path.realpath(sys.prefix):
        return ()
    return (
        f"{active} is active, and this Coupler is in {sys.prefix}: if the agent needs packages of that one, "
        "install Coupler there, and use that one",
    )


def _notes_on_place(program: str) -> tuple[str, ...]:
    if not {*Path(program).parts} & {*CACHES}:
        return ()
    return (
        f"{program} is in a cache, and will be gone when that is emptied: install Coupler, "
        "as with `uv tool install`, and use that one",
    )


def _target(target: str) -> Served:
    from coupler.agent.factory import is_file, split

    place, attribute = (target, "") if is_workflow(target) else split(target)
    if not is_file(place) and not is_workflow(place):
        return _module(target, place)
    path = Path(place).expanduser().absolute()
    if not path.is_file():
        raise CannotServeError(f"there is no file {place}{_nearest_file(path)}")
    words = f"{os.path.normpath(path)}{':' if attribute else ''}{attribute}"
    return Served(_title(path.stem), (words,))


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no directory {path.parent}"
    near = get_close_matches(path.name, [each.name for each in path.parent.glob(f"*{path.suffix}")], 1)
    return f"; did you mean {near[0]}?" if near else ""


def _module(target: str, module: str) -> Served:
    """A module is found wherever it is installed; one of this directory has to be told where that is."""
    here = str(Path.cwd())
    top, _, _ = module.partition(".")
    installed = [each for each in sys.path if each and os.path.realpath(each) != os.path.realpath(here)]
    title = _title(module.rpartition(".")[2])
    if PathFinder.find_spec(top, [here]) is not None:
        return Served(title, (target,), {"PYTHONPATH": here})
    if PathFinder.find_spec(top, installed) is not None:
        return Served(title, (target,))
    if (near := _nearest_agent(target)) is not None:
        raise CannotServeError(
            f"there is no module {module} here; is the agent {near!r} meant? Then write --agent {near}"
        )
    raise CannotServeError(
        f"there is no module {module} here or in {sys.prefix}; a file is named with its .py, and a command "
        f"stands behind `--`"
    )


def _nearest_agent(name: str) -> str | None:
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import entries

    try:
        near = get_close_matches(name.lower(), [*entries(".")], 1, 0.7)
    except ConfigError:
        return None
    return near[0] if near else None


def _agent(name: str, *, has_model: bool = False) -> Served:
    """One that `coupler agents` lists; a profile of the coder among them."""
    from coupler.client.errors import AgentError
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import chosen_for, configuration, is_coder, joined

    plain = name.partition(":")[0]
    try:
        known = joined(configuration("."))
        everywhere = joined(configuration(None))
    except ConfigError as error:
        raise CannotServeError(str(error)) from None
    if plain not in known:
        near = get_close_matches(plain.lower(), [*known], 1)
        meant = f", did you mean {near[0]!r}?" if near else ":"
        raise CannotServeError(f"there is no agent {name!r}{meant} `coupler agents` lists those there are")
    entry, notes = known[plain], []
    if plain not in everywhere or everywhere[plain].programs != entry.programs:
        notes.append(
            f"{plain} is set in {entry.origin}: the editor finds it only in this project. "
            "In your own coupler.toml it would be found everywhere"
        )
    try:
        chosen_for(name, ".")
    except AgentError as error:
        notes.append(error.message)
    if plain == "coder":
        return Served(CODER_TITLE, (), notes=() if has_model else _notes_on_model())
    if has_model and not is_coder(entry):
        raise CannotServeError(f"--model is for the coder, and {name} is another agent: leave it out")
    title = entry.title if is_coder(entry) else f"{entry.title} via Coupler"
    return Served(title, ("--agent", name), notes=tuple(notes))


def _command(words: Sequence[str]) -> Served:
    """Any ACP agent by its command line; one word may be a name of the catalogue."""
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import find

    try:
        is_name = len(words) == 1 and find(words[0].partition(":")[0], ".") is not None
    except ConfigError as error:
        raise CannotServeError(str(error)) from None
    if is_name:
        return _agent(words[0])
    program = shutil.which(Path(words[0]).expanduser())
    if program is None:
        raise CannotServeError(f"{words[0]} cannot be started: no such program was found")
    arguments = [_absolute(word) for word in words[1:]]
    title = f"{_title(Path(words[0]).stem)} via Coupler"
    return Served(title, ("--", str(Path(program).absolute()), *arguments))


def _absolute(word: str) -> str:
    """An argument that is a file of this directory, as a path that means the same everywhere."""
    path = Path(word).expanduser()
    is_path = os.sep in word or word.endswith(FILE_ENDINGS)
    if word.startswith("-") or not is_path or not path.exists():
        return word
    return os.path.normpath(path.absolute())


def _title(stem: str) -> str:
    words = re.sub(r"[_\-.\s]+", " ", stem).strip()
    return words[:1].upper() + words[1:] if words else CODER_TITLE


def trial(served: Served) -> str:
    """A command line with which a person tries it in a terminal first."""
    return shlex.join(["coupler", "chat", shlex.join(served.words)])
