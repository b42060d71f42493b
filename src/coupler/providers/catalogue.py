"""Lists all agents by name, with the ways to start, install and configure each.

`ENTRIES` are the providers of this package, `known_agents` the agents that everybody may mean by a name,
`entries` these with what `coupler.toml` adds. `resolve` chooses the form of an agent that can be started
here: an ACP form that is installed or can be downloaded, else the native one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec import Struct, structs

from coupler.client.errors import AgentError
from coupler.client.files import FileAccess
from coupler.client.quirks import Quirks, known_by_command
from coupler.config.files import Origin
from coupler.config.lookup import ConfigError

if TYPE_CHECKING:
    from coupler.agent.agent import Agent
    from coupler.config import Config
    from coupler.config.agent_tables import AgentTable
    from coupler.config.files import Origin

CODER = "coder"
"""The name of Coupler's own coding agent."""

Launcher: TypeAlias = Literal["npx", "uvx"]
"""A program that starts an agent, and downloads it first if needed."""

Form: TypeAlias = Literal["acp", "native"]

_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*)(?::(acp|native))?")


class Package(Struct, frozen=True):
    """An agent that a launcher can download."""

    launcher: Launcher
    words: tuple[str, ...]
    """The arguments of the launcher."""

    @property
    def command(self) -> tuple[str, ...]:
        """The whole command line."""
        return (self.launcher, *self.words)


class CatalogueEntry(Struct, frozen=True, kw_only=True):
    """The ways to start an agent. One that cannot be started in any of them has to be installed."""

    name: str
    title: str
    programs: tuple[tuple[str, ...], ...] = ()
    """Command lines of its ACP form; the first whose program is installed is used."""
    package: Package | None = None
    """The package that provides the ACP form if none of them is installed."""
    native: str | None = None
    """The provider that drives the same agent without ACP."""
    install: str = ""
    """A sentence that says what to do if it is missing."""
    login: str | None = None
    """The command to log in with, where the agent itself offers no better way."""
    env: Mapping[str, str] = {}
    """Variables that its environment needs besides ours."""
    files: FileAccess | None = None
    """The default of `files=` for its ACP form; None for the default of every agent."""
    quirks: Quirks | None = None
    """The quirks that are assumed until it has said what it is."""
    origin: Origin | None = None
    """The place where it was configured; None if it is only known to the catalogue."""
    table: AgentTable | None = None
    """Its table in `coupler.toml`, with those below it; None for profiles of the coder, which read theirs."""

    @property
    def command(self) -> tuple[str, ...] | None:
        """The default command line of its ACP form, installed or not."""
        if self.programs:
            return self.programs[0]
        return None if self.package is None else self.package.command


class ChosenForm(NamedTuple):
    """An entry, and the form of it that can be started here."""

    entry: CatalogueEntry
    form: Form
    command: tuple[str, ...] = ()
    """The command line of the ACP form."""
    is_fetched: bool = False
    """True if the command may download the agent first."""


class Provider(NamedTuple):
    """A provider's name, program and class, known without loading it."""

    name: str
    title: str
    program: str | None
    """The program that it runs; None if it talks to a server over HTTP."""
    install: str
    """A sentence that says what to do if that is missing."""
    acp: str | None
    """The command line of the same agent's ACP form, which is better where it is installed."""
    home: str
    """The module and class, for `provider`."""


ENTRIES: dict[str, Provider] = {
    entry.name: entry
    for entry in (
        Provider(
            "claude",
            "Claude Code",
            "claude",
            "Install it with `npm install -g @anthropic-ai/claude-code`, then log in with `claude`.",
            "npx -y @agentclientprotocol/claude-agent-acp",
            "claude:Claude",
        ),
        Provider(
            "codex",
            "Codex",
            "codex",
            "Install it with `npm install -g @openai/codex`, then log in with `codex login`.",
            "npx -y @agentclientprotocol/codex-acp",
            "codex:Codex",
        ),
        Provider(
            "gemini",
            "Gemini CLI",
            "gemini",
            "Install it with `npm install -g @google/gemini-cli`, then log in with `gemini`.",
            "gemini --acp",
            "gemini:Gemini",
        ),
        Provider(
            "copilot",
            "GitHub Copilot",
            "copilot",
            "Install it with `npm install -g @github/copilot`, then log in with `copilot login`.",
            "copilot --acp",
            "copilot:Copilot",
        ),
        Provider(
            "opencode",
            "OpenCode",
            "opencode",
            "Install it with `npm install -g opencode-ai`, then log in with `opencode auth login`.",
            "opencode acp",
            "opencode:OpenCode",
        ),
        Provider(
            "openai",
            "OpenAI-compatible server",
            None,
            "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own.",
            None,
            "openai:OpenAI",
        ),
    )
}
"""All providers by name."""


def provider(name: str) -> type[Agent]:
    """Return the agent class of a provider: call it with what should differ from its defaults."""
    if name not in ENTRIES:
        near = get_close_matches(name, ENTRIES, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no provider {name!r}, only {', '.join(ENTRIES)}{meant}")
    module, _, kind = ENTRIES[name].home.partition(":")
    made: type[Agent] = getattr(import_module(f"coupler.providers.{module}"), kind)
    return made


def resolve(agent: str, cwd: str | os.PathLike[str] | None = None) -> ChosenForm | None:
    """Resolve a name to a form that can be started here; None if it is no name, and so a command line.

    Raises AgentError if the agent is known and cannot be started, with what to install.
    """
    match = _NAME.fullmatch(agent)
    if match is None:
        return None
    name, form = match[1], match[2]
    known = _entries(cwd)
    if name in known:
        return choose_form(known[name], form)
    if form is not None or shutil.which(name) is None:
        _refuse_unknown(agent, configuration(cwd), has_form=form is not None)
    return None


def choose_form(entry: CatalogueEntry, form: str | None = None) -> ChosenForm:
    """Choose how to start an agent here, in a form if one is asked for."""
    if form != "native":
        for command in entry.programs:
            if is_installed(command[0]):
                return ChosenForm(entry, "acp", command)
        if entry.package is not None and is_installed(entry.package.launcher):
            return ChosenForm(entry, "acp", entry.package.command, is_fetched=True)
        if entry.origin is not None and entry.programs and entry.native is None:
            return ChosenForm(entry, "acp", entry.programs[0])  # the start itself will say what is wrong
    if form != "acp" and entry.native is not None and is_native_available(entry):
        return ChosenForm(entry, "native")
    raise AgentError("spawn", missing_agent_message(entry, form))


def is_native_available(entry: CatalogueEntry) -> bool:
    """Return whether the native form can be started here."""
    if entry.native is None:
        return False
    program = ENTRIES[entry.native].program
    return program is None or is_installed(program)


def is_installed(program: str) -> bool:
    """Return whether a program can be started by this name; Coupler itself always can."""
    return program == "coupler" or shutil.which(os.path.expanduser(program)) is not None  # noqa: PTH111


def missing_agent_message(entry: CatalogueEntry, form: str | None) -> str:
    """Explain why an agent cannot be started, and what to do about it."""
    if form == "native" and entry.native is None:
        return f"{entry.title} has no native form: use {entry.name!r}, which is its ACP form"
    if form == "acp" and entry.command is None:
        return f"{entry.title} has no ACP form: use {entry.name!r}, which is its native form"
    if form == "native" and entry.native is not None:
        return f"{entry.title} is not installed. {ENTRIES[entry.native].install}"
    fetched = ""
    if entry.package is not None:
        fetched = f" With `{entry.package.launcher}` on the PATH it is fetched when it is needed."
    return f"{entry.title} is not installed. {entry.install}{fetched}"


def _entries(cwd: str | os.PathLike[str] | None) -> dict[str, CatalogueEntry]:
    try:
        return entries(cwd)
    except ConfigError as error:
        raise AgentError("spawn", str(error)) from None


def _refuse_unknown(agent: str, config: Config, *, has_form: bool) -> None:
    name = agent.partition(":")[0]
    near = get_close_matches(name.lower(), merged_entries(config), 1)
    if near or has_form or _untrusted_origin(name, config) is not None:
        raise AgentError("spawn", unknown_agent_message(agent, config))


def unknown_agent_message(agent: str, config: Config) -> str:
    """Explain why there is no agent of this name: its file is not trusted, or it is misspelled."""
    name = agent.partition(":")[0]
    if (origin := _untrusted_origin(name, config)) is not None:
        how = "read the file, then run `coupler trust` in its directory"
        return f"the agent {agent!r} is defined in {origin}, which is not trusted: {how}"
    near = get_close_matches(name.lower(), merged_entries(config), 1)
    meant = f", did you mean {near[0]!r}?" if near else ":"
    return f"there is no agent {agent!r}{meant} `coupler agents` lists those there are"


def _untrusted_origin(name: str, config: Config) -> Origin | None:
    """Return the place of an agent's table in a project's file that is not trusted."""
    setting = config.untrusted_setting("agents")
    tables: tuple[AgentTable, ...] = () if setting is None else setting.value
    return next((table.origin for table in tables if table.name == name), None)


def entries(cwd: str | os.PathLike[str] | None = None) -> dict[str, CatalogueEntry]:
    """Return all agents by name. Raises ConfigError if a file is wrong; untrusted projects add none."""
    return merged_entries(configuration(cwd))


def find_entry(name: str, cwd: str | os.PathLike[str] | None = None) -> CatalogueEntry | None:
    """Return the entry of this name; None if there is none."""
    return entries(cwd).get(name)


def merged_entries(config: Config) -> dict[str, CatalogueEntry]:
    """Merge the known agents with those of a configuration."""
    found = {entry.name: entry for entry in known_agents()}
    tables = {table.name: table for table in config.agents}
    return {**found, **{name: _with_table(name, tables, found) for name in tables}}


def _with_table(
    name: str, tables: Mapping[str, AgentTable], known: Mapping[str, CatalogueEntry]
) -> CatalogueEntry:
    from coupler.config.agent_tables import whole_table

    entry = _standing(name, tables, known)
    return structs.replace(entry, table=None if is_coder(entry) else whole_table(name, tables))


def _standing(
    name: str,
    tables: Mapping[str, AgentTable],
    known: Mapping[str, CatalogueEntry],
    above: tuple[str, ...] = (),
) -> CatalogueEntry:
    """Make the entry of a table, with the agent that it is based on."""
    table = tables[name]
    if table.agent is None:
        return _configured(table, known.get(name))
    base, _, form = table.agent.partition(":")
    if base in above or (base not in tables and base not in known):
        wrong = "in the end stands on itself" if base in above else "is unknown"
        missing = CatalogueEntry(
            name=name, title=name, install=f"Its `agent`, {base}, {wrong}: see {table.origin}."
        )
        return _configured(table, missing)
    below = _standing(base, tables, known, (*above, name)) if base in tables else known[base]
    entry = _of_form(below, form, name)
    if is_coder(below):
        # It is started with the table itself, which says the rest.
        entry = structs.replace(entry, programs=(coder_command(name),))
    return _configured(table, entry)


def _of_form(entry: CatalogueEntry, form: str, name: str) -> CatalogueEntry:
    """Return the agent under another name, restricted to one of its forms if that is wanted."""
    if form == "native":
        return structs.replace(entry, name=name, programs=(), package=None)
    return structs.replace(entry, name=name, native=None if form == "acp" else entry.native)


def configuration(cwd: str | os.PathLike[str] | None) -> Config:
    """Load the configuration of a directory; without one, the user's."""
    # Imported on use: whoever names a command line needs no configuration.
    from coupler.agent.session import StoredTrust
    from coupler.config import load

    directory = None if cwd is None else os.path.abspath(cwd)  # noqa: PTH100 - links stay as they are
    return load(directory, environ=os.environ, trust=StoredTrust())


def _configured(table: AgentTable, before: CatalogueEntry | None) -> CatalogueEntry:
    entry = before or _with_quirks(
        CatalogueEntry(
            name=table.name,
            title=table.title or table.name,
            programs=() if table.command is None else (table.command,),
        )
    )
    changes: dict[str, object] = {"origin": table.origin, "env": _joined_env(entry.env, table.env)}
    if table.title is not None:
        changes["title"] = table.title
    if table.files is not None:
        changes["files"] = table.files
    if table.command is not None:
        # Somebody's own command is what is meant, whatever else is installed.
        changes |= {
            "programs": (table.command,),
            "package": None,
            "native": None,
            "install": f"Its command is set in {table.origin}.",
        }
    return structs.replace(entry, **changes)


def _joined_env(known: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    return {**known, **own}


def known_agents() -> Iterator[CatalogueEntry]:
    """Return the built-in entries, in the order of lists.

    Command lines and packages are those of the ACP registry and of each vendor's manual. Packages are named
    without a version: what a launcher has downloaded before is used again, and nothing here gets outdated.
    """
    yield CatalogueEntry(
        name=CODER,
        title="Coupler's own coding agent",
        programs=(coder_command(CODER),),
        install="It is a part of Coupler: set its model with `coupler login coder`.",
        login="coupler login coder",
    )
    yield from map(_with_quirks, (*_with_native_form(), *_with_acp_alone()))


def _with_quirks(entry: CatalogueEntry) -> CatalogueEntry:
    known = None if entry.command is None else known_by_command(entry.command)
    if known is None:
        return entry
    return structs.replace(entry, quirks=known.quirks, files=known.files, env=known.env)


def coder_command(profile: str) -> tuple[str, ...]:
    """Return the command of the coder in one of its profiles."""
    return ("coupler", "serve", "--agent", profile)


def is_coder(entry: CatalogueEntry) -> bool:
    """Return whether this is Coupler's own coding agent, or one of its profiles."""
    return entry.programs == (coder_command(entry.name),)


def _with_native_form() -> Iterator[CatalogueEntry]:
    claude, codex = "@agentclientprotocol/claude-agent-acp", "@agentclientprotocol/codex-acp"
    yield _from_npm("claude", claude, "claude-agent-acp", "claude-code-acp", login="claude /login")
    yield _from_npm("codex", codex, "codex-acp", login="codex login")
    yield _from_npm("gemini", "@google/gemini-cli", "gemini --acp", login="gemini")
    yield _from_npm("copilot", "@github/copilot", "copilot --acp", login="copilot login")
    yield _from_npm("opencode", "opencode-ai", "opencode acp", login="opencode auth login")
    openai = ENTRIES["openai"]
    yield CatalogueEntry(name="openai", title=openai.title, native="openai", install=openai.install)


def _with_acp_alone() -> Iterator[CatalogueEntry]:
    hint = "Install Goose as its manual says, then run `goose configure`."
    yield _from_vendor("goose", "Goose", "goose acp", hint, "goose configure")
    yield _from_uv("kimi", "Kimi Code", "kimi-cli", "kimi acp", "kimi login")
    yield _from_uv("vibe", "Mistral Vibe", "mistral-vibe", "vibe-acp", "vibe --setup")
    yield _from_npm("qwen", "@qwen-code/qwen-code", "qwen --acp", title="Qwen Code", login="qwen")
    # Its newer name is `agent`, which too many programs could have.
    hint = "Install Cursor's command line as its manual says: the program is called `cursor-agent`."
    yield _from_vendor("cursor", "Cursor", "cursor-agent acp", hint, "cursor-agent login")
    yield _from_npm("auggie", "@augmentcode/auggie", "auggie --acp", title="Auggie", login="auggie login")
    hint = "Install Amp and its adapter: `npm install -g @sourcegraph/amp amp-acp`."
    amp = _from_npm("amp", "amp-acp", "amp-acp", title="Amp", login="amp login")
    yield structs.replace(amp, install=hint)
    yield _from_npm("cline", "cline", "cline --acp", title="Cline", login="cline auth")
    hint = "Install the Devin command line as its manual says."
    yield _from_vendor("devin", "Devin", "devin acp", hint, "devin auth login")
    droid = "droid exec --output-format acp"
    yield _from_npm("droid", "@factory/cli", droid, title="Factory Droid", login="droid")
    hint = "Install Junie's command line as its manual says."
    yield _from_vendor("junie", "Junie", "junie --acp=true", hint, "junie")
    yield _from_npm("kilo", "@kilocode/cli", "kilo acp", title="Kilo Code", login="kilo auth login")
    hint = "Install the Kiro command line as its manual says: the program is called `kiro-cli`."
    yield _from_vendor("kiro", "Kiro", "kiro-cli acp", hint, "kiro-cli login")
    yield _from_npm("pi", "pi-acp", "pi-acp", title="Pi", login="pi")
    yield _from_npm("qoder", "@qoder-ai/qodercli", "qodercli --acp", title="Qoder", login="qodercli")


def _from_npm(name: str, package: str, *programs: str, login: str, title: str = "") -> CatalogueEntry:
    """Return an agent from npm; without a title it is the ACP form of the provider of this name."""
    commands = tuple(tuple(program.split()) for program in programs)
    return CatalogueEntry(
        name=name,
        title=title or ENTRIES[name].title,
        programs=commands,
        package=Package("npx", ("-y", package, *commands[0][1:])),
        native=None if title else name,
        install=f"Install it with `npm install -g {package}`.",
        login=login,
    )


def _from_uv(name: str, title: str, package: str, program: str, login: str) -> CatalogueEntry:
    """Return an agent from PyPI, which uv installs or runs."""
    fetched = Package("uvx", ("--from", package, *program.split()))
    hint = f"Install it with `uv tool install {package}`."
    return structs.replace(_from_vendor(name, title, program, hint, login), package=fetched)


def _from_vendor(name: str, title: str, program: str, install: str, login: str) -> CatalogueEntry:
    """Return an agent that its vendor's own installer brings."""
    command = tuple(program.split())
    return CatalogueEntry(name=name, title=title, programs=(command,), install=install, login=login)
