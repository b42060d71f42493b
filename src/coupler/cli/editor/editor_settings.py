"""Finds each editor's settings file, and writes agents into it.

Zed, JetBrains and Visual Studio Code have JSON; Neovim and Emacs have code in a file for each agent. The
paths are those of each editor's manual and source, for Linux, macOS and Windows.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from coupler.cli.editor.jsonc import JsoncDocument
from coupler.runtime.directories import home_directory

HEADER = "Written by `coupler editor {} --write`."

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

LUA_WORDS = re.compile(
    "and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until"
    "|while"
)
"""The keywords of Lua, which cannot be names."""


class ServedCommand(NamedTuple):
    """The command line that an editor starts, its name, and its variables besides the editor's."""

    title: str
    words: tuple[str, ...]
    env: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    """Notes for the user about it."""

    @property
    def command(self) -> str:
        """The program."""
        return self.words[0]

    @property
    def args(self) -> list[str]:
        """The program's arguments."""
        return [*self.words[1:]]

    @property
    def identifier(self) -> str:
        """The name as an identifier of programming languages."""
        plain = unicodedata.normalize("NFKD", self.title).encode("ascii", "ignore").decode()
        word = re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")
        is_plain = word and not word[0].isdigit() and LUA_WORDS.fullmatch(word) is None
        return word if is_plain else f"agent_{word}".rstrip("_")


class NameTakenError(Exception):
    """The settings have something else under this name."""


class EditorSettings(Protocol):
    """Writes an agent into the settings of one editor."""

    def printed(self, served: ServedCommand) -> str:
        """The text that a person copies into the settings."""
        ...

    def file_of(self, place: Path, served: ServedCommand) -> Path:
        """The file that is written."""
        ...

    def merged(self, text: str | None, served: ServedCommand, *, is_forced: bool) -> str:
        """The text of that file with the agent in it, given the present text."""
        ...

    def after_writing(self, file: Path, served: ServedCommand) -> str:
        """The steps that are left to the user."""
        ...


class JsonSettings(NamedTuple):
    """Settings in JSON: an object has a member for each agent."""

    member: str
    kind: Mapping[str, str]
    """Members of each agent's entry besides its command."""
    indent: str
    next_step: str
    is_for_shell: bool = False
    """True if the words are put together for the shell of Windows."""

    def printed(self, served: ServedCommand) -> str:
        return JsoncDocument("").changed((self.member, served.title), self._entry(served), self.indent).text

    def file_of(self, place: Path, served: ServedCommand) -> Path:
        return place

    def merged(self, text: str | None, served: ServedCommand, *, is_forced: bool) -> str:
        """Changes only the command of an agent that is there: it keeps what the user has added."""
        document = JsoncDocument(text or "")
        path = (self.member, served.title)
        there = document.get(path)
        if not isinstance(there, dict):
            return document.changed(path, self._entry(served), self.indent).text
        entry = self._entry(served)
        if not is_forced and there.get("args") != entry["args"]:
            _refuse_taken(served, f"which starts `{_command_of_entry(there)}`")
        for name, value in entry.items():
            if name == "env":
                for variable, each in served.env.items():
                    document = document.changed((*path, name, variable), each, self.indent)
            else:
                document = document.changed((*path, name), value, self.indent)
        return document.text

    def after_writing(self, file: Path, served: ServedCommand) -> str:
        return self.next_step.format(title=served.title)

    def _entry(self, served: ServedCommand) -> dict[str, Any]:
        env = {"env": dict(served.env)} if served.env else {}
        command, *args = map(self._word, served.words)
        return {**self.kind, "command": command, "args": args, **env}

    def _word(self, word: str) -> str:
        return f'"{word}"' if self.is_for_shell and sys.platform == "win32" and " " in word else word


class LuaSettings:
    """Settings of Neovim: a module for each agent, which the user's own setup of a plugin requires."""

    def printed(self, served: ServedCommand) -> str:
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

    def file_of(self, place: Path, served: ServedCommand) -> Path:
        return place / "lua" / "coupler" / f"{served.identifier}.lua"

    def merged(self, text: str | None, served: ServedCommand, *, is_forced: bool) -> str:
        if text is not None and not is_forced and _lua_list(served.args) not in text:
            _refuse_taken(served, "which starts something else")
        codecompanion, avante = self._codecompanion(served), self._avante(served)
        return (
            f"-- {HEADER.format('neovim')}\n"
            f"return {{\n"
            f"  codecompanion = {_indented(codecompanion, 2)},\n"
            f"  avante = {_indented(avante, 2)},\n"
            f"}}\n"
        )

    def after_writing(self, file: Path, served: ServedCommand) -> str:
        name, module = served.identifier, f'require("coupler.{served.identifier}")'
        return (
            f"Use it where you set your plugin up:\n"
            f"  codecompanion.nvim   adapters = {{ acp = {{ {name} = {module}.codecompanion }} }},\n"
            f"                       interactions = {{ chat = {{ adapter = {_lua(name)} }} }}\n"
            f"  avante.nvim          acp_providers = {{ {name} = {module}.avante }}, provider = {_lua(name)}"
        )

    def _codecompanion(self, served: ServedCommand) -> str:
        """Extends OpenCode's adapter, because that one asks for no login and sets nothing else."""
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

    def _avante(self, served: ServedCommand) -> str:
        """Passes all variables, because Avante gives an agent only the PATH by itself."""
        env = "vim.fn.environ()"
        if served.env:
            env = f'vim.tbl_extend("force", {env}, {_lua_table(served.env)})'
        return (
            f"{{\n  command = {_lua(served.command)},\n  args = {_lua_list(served.args)},\n  env = {env},\n}}"
        )


class ElispSettings:
    """Settings of Emacs with agent-shell: a file for each agent, which the user's own file loads."""

    def printed(self, served: ServedCommand) -> str:
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

    def file_of(self, place: Path, served: ServedCommand) -> Path:
        return place / "coupler" / f"{served.identifier.replace('_', '-')}.el"

    def merged(self, text: str | None, served: ServedCommand, *, is_forced: bool) -> str:
        if text is not None and not is_forced and _elisp_list(served.args) not in text:
            _refuse_taken(served, "which starts something else")
        return f";;; {HEADER.format('emacs')} -*- lexical-binding: t; -*-\n\n{self.printed(served)}"

    def after_writing(self, file: Path, served: ServedCommand) -> str:
        load = f"(load {_elisp(str(file))})"
        return f"Load it in your init file, then `M-x agent-shell` offers {served.title}:\n  {load}"


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


class SettingsFile(NamedTuple):
    """A file of settings, and which editor's it is."""

    title: str
    file: Path
    is_there: bool
    """True if the editor has been used here: its directory exists."""
    variant: str | None = None
    """The editor of a family, such as vscodium, that it belongs to."""
    is_sandboxed: bool = False
    """True if the editor's programs run in a sandbox."""


class NoSettingsPathError(Exception):
    """This user has no home directory."""


class UserPlatform(NamedTuple):
    """The home, variables and operating system that decide where settings are."""

    home: Path
    environ: Mapping[str, str]
    platform: str

    @classmethod
    def of_this_user(cls) -> UserPlatform:
        """The platform of this user; raises `NoSettingsPathError` for a user without a home."""
        home = home_directory(os.environ)
        if home is None:
            raise NoSettingsPathError(
                "this user has no home directory: name the file of settings with --file"
            )
        return cls(Path(home), os.environ, sys.platform)

    def directory(self, variable: str, usual: str) -> Path:
        """The directory that a variable names, else the usual one below the home."""
        named = self.environ.get(variable, "")
        return Path(named) if Path(named).is_absolute() else self.home / usual

    @property
    def config(self) -> Path:
        """The directory of programs' settings."""
        if self.platform == "win32":
            return self.directory("APPDATA", "AppData/Roaming")
        return self.directory("XDG_CONFIG_HOME", ".config")

    @property
    def is_linux(self) -> bool:
        return self.platform not in ("win32", "darwin")


def zed(user: UserPlatform) -> Iterator[SettingsFile]:
    """The settings of Zed. Zed Preview shares them, but for those that Flatpak has installed."""
    if user.platform == "win32":
        main = user.config / "Zed"
    elif user.platform == "darwin":
        main = user.home / ".config" / "zed"
    else:
        main = user.directory("FLATPAK_XDG_CONFIG_HOME", str(user.config)) / "zed"
    yield _settings_file("Zed", main / "settings.json")
    if user.is_linux:
        for name, title in FLATPAK_ZED.items():
            file = _flatpak(user, name) / "zed" / "settings.json"
            if file.parent.is_dir() and file.parent != main:
                yield _settings_file(title, file)


def vscode(user: UserPlatform) -> Iterator[SettingsFile]:
    """The settings of Visual Studio Code, and of editors that are made of it."""
    base = user.home / "Library/Application Support" if user.platform == "darwin" else user.config
    for variant, (folder, title) in VSCODE_FAMILY.items():
        yield _settings_file(title, base / folder / "User" / "settings.json", variant)
    if user.is_linux:
        for name, (folder, title) in FLATPAK_VSCODE.items():
            file = _flatpak(user, name) / folder / "User" / "settings.json"
            if file.parent.is_dir():
                variant = "vscode" if folder == "Code" else "vscodium"
                yield SettingsFile(title, file, is_there=True, variant=variant, is_sandboxed=True)


def jetbrains(user: UserPlatform) -> Iterator[SettingsFile]:
    """The file for all JetBrains IDEs; they make it when the first agent is added."""
    file = user.home / ".jetbrains" / "acp.json"
    used = (file.parent, _jetbrains_options(user))
    yield SettingsFile("JetBrains IDEs", file, any(each.is_dir() for each in used))


def neovim(user: UserPlatform) -> Iterator[SettingsFile]:
    """Neovim's directory of settings; each agent gets a file below it."""
    name = user.environ.get("NVIM_APPNAME") or "nvim"
    if user.platform == "win32":
        base = user.directory("XDG_CONFIG_HOME", "") if "XDG_CONFIG_HOME" in user.environ else None
        directory = (base or user.directory("LOCALAPPDATA", "AppData/Local")) / name
    else:
        directory = user.config / name
    yield SettingsFile("Neovim", directory, directory.is_dir())


def emacs(user: UserPlatform) -> Iterator[SettingsFile]:
    """Emacs's directory of settings: the old one is used as long as it is there."""
    home = user.directory("APPDATA", "AppData/Roaming") if user.platform == "win32" else user.home
    old, new = home / ".emacs.d", user.config / "emacs"
    is_old = old.is_dir() or (home / ".emacs").exists() or not new.is_dir()
    yield SettingsFile(
        "Emacs", old if is_old else new, old.is_dir() or new.is_dir() or (home / ".emacs").exists()
    )


def _refuse_taken(served: ServedCommand, what: str) -> None:
    raise NameTakenError(
        f"there is an agent {served.title!r} already, {what}: choose another name with --name, "
        "or replace it with --force"
    )


def _command_of_entry(entry: Mapping[str, Any]) -> str:
    """The command line of somebody's entry, whatever they have written there."""
    command, args = entry.get("command"), entry.get("args")
    words = [command] if isinstance(command, str) else []
    words += [str(each) for each in args] if isinstance(args, list) else []
    return shlex.join(words) if words else json.dumps(entry)


def _indented(text: str, spaces: int) -> str:
    """Indents all lines but the first."""
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


def _settings_file(title: str, file: Path, variant: str | None = None) -> SettingsFile:
    return SettingsFile(title, file, file.parent.is_dir(), variant)


def _flatpak(user: UserPlatform, name: str) -> Path:
    return user.home / ".var" / "app" / name / "config"


def _jetbrains_options(user: UserPlatform) -> Path:
    if user.platform == "darwin":
        return user.home / "Library/Application Support/JetBrains"
    return user.config / "JetBrains"
