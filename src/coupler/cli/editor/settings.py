"""How each editor wants to be told of an agent: as JSON among its settings, or as code in its own file."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from coupler.cli.editor.jsonc import Document
from coupler.cli.editor.served import Served

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
