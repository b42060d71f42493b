"""How each editor wants to be told of an agent: as JSON among its settings, or as code in its own file."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from coupler.cli.jsonc import Document
from coupler.cli.serve import is_workflow
from coupler.runtime.directories import home_directory

WRITTEN = "Written by `coupler editor {} --write`."


class NameTakenError(Exception):
    """The settings have something else under this name."""


class Settings(Protocol):
    """One editor's way."""

    def printed(self, served: Served) -> str:
        """What a person copies into the settings."""
        ...

    def file_of(self, place: Path, served: Served) -> Path:
        """The file that is written."""
        ...

    def merged(self, text: str | None, served: Served, *, is_forced: bool) -> str:
        """The text of that file with the agent in it, given what is there."""
        ...

    def after_writing(self, file: Path, served: Served) -> str:
        """What is left to do for the user."""
        ...


class JsonSettings(NamedTuple):
    """An object of the settings has a member for each agent."""

    member: str
    kind: Mapping[str, str]
    """What each agent has besides its command."""
    indent: str
    next_step: str
    is_for_shell: bool = False
    """Whether the words are put together for the shell of Windows."""

    def printed(self, served: Served) -> str:
        return Document("").changed((self.member, served.title), self._entry(served), self.indent).text

    def file_of(self, place: Path, served: Served) -> Path:
        return place

    def merged(self, text: str | None, served: Served, *, is_forced: bool) -> str:
        """Of an agent that is there only what starts it is changed: it keeps what the user has added."""
        document = Document(text or "")
        path = (self.member, served.title)
        there = document.get(path)
        if not isinstance(there, dict):
            return document.changed(path, self._entry(served), self.indent).text
        entry = self._entry(served)
        if not is_forced and there.get("args") != entry["args"]:
            _refuse_taken(served, f"which starts `{_shown(there)}`")
        for name, value in entry.items():
            if name == "env":
                for variable, each in served.env.items():
                    document = document.changed((*path, name, variable), each, self.indent)
            else:
                document = document.changed((*path, name), value, self.indent)
        return document.text

    def after_writing(self, file: Path, served: Served) -> str:
        return self.next_step.format(title=served.title)

    def _entry(self, served: Served) -> dict[str, Any]:
        env = {"env": dict(served.env)} if served.env else {}
        command, *args = map(self._word, served.words)
        return {**self.kind, "command": command, "args": args, **env}

    def _word(self, word: str) -> str:
        return f'"{word}"' if self.is_for_shell and sys.platform == "win32" and " " in word else word


class LuaSettings:
    """Neovim: a module for each agent, which the user's own setup of a plugin requires."""

    def printed(self, served: Served) -> str:
        name = served.identifier
        return (
            f"-- codecompanion.nvim\n"
            f'require("codecompanion").setup({{\n'
            f"  adapters = {{\n"
            f"    acp = {{\n"
            f"      {name} = {_indented(self._codecompanion(served), 6)},\n"
            f"    }},\n"
            f"  }},\n"
            f"  interactions = {{ chat = {{ adapter = {_lua(name)} }} }},\n"
            f"}})\n"
            f"\n"
            f"-- or avante.nvim\n"
            f'require("avante").setup({{\n'
            f"  provider = {_lua(name)},\n"
            f"  acp_providers = {{\n"
            f"    {name} = {_indented(self._avante(served), 4)},\n"
            f"  }},\n"
            f"}})\n"
        )

    def file_of(self, place: Path, served: Served) -> Path:
        return place / "lua" / "coupler" / f"{served.identifier}.lua"

    def merged(self, text: str | None, served: Served, *, is_forced: bool) -> str:
        if text is not None and not is_forced and _lua_list(served.args) not in text:
            _refuse_taken(served, "which starts something else")
        codecompanion, avante = self._codecompanion(served), self._avante(served)
        return (
            f"-- {WRITTEN.format('neovim')}\n"
            f"return {{\n"
            f"  codecompanion = {_indented(codecompanion, 2)},\n"
            f"  avante = {_indented(avante, 2)},\n"
            f"}}\n"
        )

    def after_writing(self, file: Path, served: Served) -> str:
        name, module = served.identifier, f'require("coupler.{served.identifier}")'
        return (
            f"Use it where you set your plugin up:\n"
            f"  codecompanion.nvim   adapters = {{ acp = {{ {name} = {module}.codecompanion }} }},\n"
            f"                       interactions = {{ chat = {{ adapter = {_lua(name)} }} }}\n"
            f"  avante.nvim          acp_providers = {{ {name} = {module}.avante }}, provider = {_lua(name)}"
        )

    def _codecompanion(self, served: Served) -> str:
        """On top of OpenCode's adapter, because that one asks for no login and sets nothing else."""
        env = f"    env = {_lua_table(served.env)},\n" if served.env else ""
        return (
            f"function()\n"
            f'  return require("codecompanion.adapters").extend("opencode", {{\n'
            f"    name = {_lua(served.identifier)},\n"
            f"    formatted_name = {_lua(served.title)},\n"
            f"    commands = {{ default = {_lua_list(served.words)} }},\n"
            f"{env}"
            f"  }})\n"
            f"end"
        )

    def _avante(self, served: Served) -> str:
        """With all variables: by itself it gives an agent the PATH and no other."""
        env = "vim.fn.environ()"
        if served.env:
            env = f'vim.tbl_extend("force", {env}, {_lua_table(served.env)})'
        return (
            f"{{\n  command = {_lua(served.command)},\n  args = {_lua_list(served.args)},\n  env = {env},\n}}"
        )


class ElispSettings:
    """Emacs with agent-shell: a file for each agent, which the user's own file loads."""

    def printed(self, served: Served) -> str:
        title, name = served.title, served.identifier.replace("_", "-")
        env = ""
        if served.env:
            pairs = (f"{variable}={value}" for variable, value in served.env.items())
            env = f"                                   :environment-variables '{_elisp_list(pairs)}\n"
        return (
            f"(with-eval-after-load 'agent-shell\n"
            f"  (add-to-list 'agent-shell-agent-configs\n"
            f"               (agent-shell-make-agent-config\n"
            f"                :identifier '{name}\n"
            f"                :mode-line-name {_elisp(title)}\n"
            f"                :buffer-name {_elisp(title)}\n"
            f"                :shell-prompt {_elisp(f'{title}> ')}\n"
            f"                :shell-prompt-regexp (regexp-quote {_elisp(f'{title}> ')})\n"
            f"                :client-maker\n"
            f"                (lambda (buffer)\n"
            f"                  (acp-make-client :command {_elisp(served.command)}\n"
            f"                                   :command-params '{_elisp_list(served.args)}\n"
            f"{env}"
            f"                                   :context-buffer buffer)))))\n"
        )

    def file_of(self, place: Path, served: Served) -> Path:
        return place / "coupler" / f"{served.identifier.replace('_', '-')}.el"

    def merged(self, text: str | None, served: Served, *, is_forced: bool) -> str:
        if text is not None and not is_forced and _elisp_list(served.args) not in text:
            _refuse_taken(served, "which starts something else")
        return f";;; {WRITTEN.format('emacs')} -*- lexical-binding: t; -*-\n\n{self.printed(served)}"

    def after_writing(self, file: Path, served: Served) -> str:
        load = f"(load {_elisp(str(file))})"
        return f"Load it in your init file, then `M-x agent-shell` offers {served.title}:\n  {load}"


# What an editor is to start: this Coupler, with words that mean the same wherever the editor starts it.
#
# Editors start agents in a directory of their own choice, and often without the variables of a shell. So
# every path is absolute.


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
    from coupler.coder.profiles import Profile
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


ZED = JsonSettings(
    "agent_servers",
    {"type": "custom"},
    "  ",
    "In Zed's agent panel, {title} is now in the list for a new thread.",
)
JETBRAINS = JsonSettings(
    "agent_servers", {}, "  ", "In the AI Chat of your IDE, {title} is now in the list of agents."
)
VSCODE = JsonSettings(
    "acp.agents",
    {},
    "    ",
    "{title} is now in the list of the extension ACP Client: install that if you have not, as with\n"
    "  code --install-extension formulahendry.acp-client",
    is_for_shell=True,
)


def _refuse_taken(served: Served, what: str) -> None:
    raise NameTakenError(
        f"there is an agent {served.title!r} already, {what}: choose another name with --name, "
        "or replace it with --force"
    )


def _shown(entry: Mapping[str, Any]) -> str:
    """The command line of somebody's entry, whatever they have written there."""
    command, args = entry.get("command"), entry.get("args")
    words = [command] if isinstance(command, str) else []
    words += [str(each) for each in args] if isinstance(args, list) else []
    return shlex.join(words) if words else json.dumps(entry)


def _indented(text: str, spaces: int) -> str:
    """All lines but the first moved to the right."""
    return text.replace("\n", "\n" + " " * spaces)


def _lua(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found[0]):03}", escaped) + '"'


def _lua_list(words: Sequence[str]) -> str:
    return f"{{ {', '.join(map(_lua, words))} }}" if words else "{}"


def _lua_table(values: Mapping[str, str]) -> str:
    return f"{{ {', '.join(f'[{_lua(name)}] = {_lua(value)}' for name, value in values.items())} }}"


def _elisp(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _elisp_list(words: Any) -> str:
    return f"({' '.join(map(_elisp, words))})"


# Where editors keep their settings: each of their installations has a file of its own.
#
# The paths are those of each editor's manual and source, for Linux, macOS and Windows.


FLATPAK_ZED = {"dev.zed.Zed": "Zed by Flatpak", "dev.zed.Zed-Preview": "Zed Preview by Flatpak"}
VSCODE_FAMILY = {
    "vscode": ("Code", "Visual Studio Code"),
    "insiders": ("Code - Insiders", "Visual Studio Code Insiders"),
    "vscodium": ("VSCodium", "VSCodium"),
    "cursor": ("Cursor", "Cursor"),
    "windsurf": ("Windsurf", "Windsurf"),
}
FLATPAK_VSCODE = {
    "com.visualstudio.code": ("Code", "Visual Studio Code by Flatpak"),
    "com.vscodium.codium": ("VSCodium", "VSCodium by Flatpak"),
}


class Place(NamedTuple):
    """A file of settings, and whose it is."""

    title: str
    file: Path
    is_there: bool
    """Whether the editor has been used here: its directory exists."""
    variant: str | None = None
    """Which member of a family it belongs to."""
    is_sandboxed: bool = False
    """Whether the editor's programs run in a sandbox."""


class NoPlaceError(Exception):
    """This user has no home directory."""


class Surroundings(NamedTuple):
    """What decides where things are."""

    home: Path
    environ: Mapping[str, str]
    platform: str

    @classmethod
    def of_this_user(cls) -> Surroundings:
        """Raises `NoPlaceError` for a user without a home."""
        home = home_directory(os.environ)
        if home is None:
            raise NoPlaceError("this user has no home directory: name the file of settings with --file")
        return cls(Path(home), os.environ, sys.platform)

    def directory(self, variable: str, usual: str) -> Path:
        """The directory that a variable names, else the usual one below the home."""
        named = self.environ.get(variable, "")
        return Path(named) if Path(named).is_absolute() else self.home / usual

    @property
    def config(self) -> Path:
        """Where programs keep their settings."""
        if self.platform == "win32":
            return self.directory("APPDATA", "AppData/Roaming")
        return self.directory("XDG_CONFIG_HOME", ".config")

    @property
    def is_linux(self) -> bool:
        return self.platform not in ("win32", "darwin")


def zed(around: Surroundings) -> Iterator[Place]:
    """Zed and Zed Preview share their settings, but for those that Flatpak has installed."""
    if around.platform == "win32":
        main = around.config / "Zed"
    elif around.platform == "darwin":
        main = around.home / ".config" / "zed"
    else:
        main = around.directory("FLATPAK_XDG_CONFIG_HOME", str(around.config)) / "zed"
    yield _place("Zed", main / "settings.json")
    if around.is_linux:
        for name, title in FLATPAK_ZED.items():
            file = _flatpak(around, name) / "zed" / "settings.json"
            if file.parent.is_dir() and file.parent != main:
                yield _place(title, file)


def vscode(around: Surroundings) -> Iterator[Place]:
    """Visual Studio Code, and editors that are made of it."""
    base = around.home / "Library/Application Support" if around.platform == "darwin" else around.config
    for variant, (folder, title) in VSCODE_FAMILY.items():
        yield _place(title, base / folder / "User" / "settings.json", variant)
    if around.is_linux:
        for name, (folder, title) in FLATPAK_VSCODE.items():
            file = _flatpak(around, name) / folder / "User" / "settings.json"
            if file.parent.is_dir():
                variant = "vscode" if folder == "Code" else "vscodium"
                yield Place(title, file, is_there=True, variant=variant, is_sandboxed=True)


def jetbrains(around: Surroundings) -> Iterator[Place]:
    """One file for all IDEs; they make it when the first agent is added."""
    file = around.home / ".jetbrains" / "acp.json"
    used = (file.parent, _jetbrains_options(around))
    yield Place("JetBrains IDEs", file, any(each.is_dir() for each in used))


def neovim(around: Surroundings) -> Iterator[Place]:
    """Its directory of settings; each agent gets a file below it."""
    name = around.environ.get("NVIM_APPNAME") or "nvim"
    if around.platform == "win32":
        base = around.directory("XDG_CONFIG_HOME", "") if "XDG_CONFIG_HOME" in around.environ else None
        directory = (base or around.directory("LOCALAPPDATA", "AppData/Local")) / name
    else:
        directory = around.config / name
    yield Place("Neovim", directory, directory.is_dir())


def emacs(around: Surroundings) -> Iterator[Place]:
    """Its directory of settings: the old one is used as long as it is there."""
    home = around.directory("APPDATA", "AppData/Roaming") if around.platform == "win32" else around.home
    old, new = home / ".emacs.d", around.config / "emacs"
    is_old = old.is_dir() or (home / ".emacs").exists() or not new.is_dir()
    yield Place("Emacs", old if is_old else new, old.is_dir() or new.is_dir() or (home / ".emacs").exists())


def _place(title: str, file: Path, variant: str | None = None) -> Place:
    return Place(title, file, file.parent.is_dir(), variant)


def _flatpak(around: Surroundings, name: str) -> Path:
    return around.home / ".var" / "app" / name / "config"


def _jetbrains_options(around: Surroundings) -> Path:
    if around.platform == "darwin":
        return around.home / "Library/Application Support/JetBrains"
    return around.config / "JetBrains"


class Asked(NamedTuple):
    """What was given on the command line."""

    target: str | None = None
    agent: str | None = None
    command: Sequence[str] = ()
    model: str | None = None
    name: str | None = None
    env: Mapping[str, str] = {}


def trial(served: Served) -> str:
    """A command line with which a person tries it in a terminal first."""
    return shlex.join(["coupler", "chat", shlex.join(served.words)])
