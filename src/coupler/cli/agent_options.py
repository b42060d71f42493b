"""Parses the arguments AGENT, --permissions, --allow, --deny and --mcp of commands.

AGENT is a name of the catalogue or a command line; the options about permissions become a policy.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from coupler.cli.exit_codes import AUTH_REQUIRED, FAILED, refuse
from coupler.cli.terminal import read_json_argument

if TYPE_CHECKING:
    from coupler.client.errors import AgentError
    from coupler.client.policy import Confinement, Decide, Policy, PolicyName
    from coupler.permission.rules import Rule
    from coupler.providers.catalogue import CatalogueEntry
    from coupler.schema.v1 import McpServer


PERMISSIONS = ("allow-reads", "allow-all", "deny-all", "ask")


class Startable(NamedTuple):
    """An agent's name, command and environment, and its entry in the catalogue."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    entry: CatalogueEntry | None = None


def startable_agent(agent: str, program: str) -> Startable:
    """Resolves an agent to its ACP form; if there is none here, the program ends with an error."""
    from coupler.client.errors import AgentError
    from coupler.client.quirks import known_by_command
    from coupler.client_api import startable_command
    from coupler.providers.catalogue import resolve
    from coupler.runtime.environment import SpawnError, split_command

    try:
        chosen = resolve(agent, ".")
        if chosen is not None and chosen.form == "native":
            refuse(_without_acp(agent, chosen.entry, program), program, FAILED)
        if chosen is not None:
            return Startable(agent, chosen.command, chosen.entry.env, chosen.entry)
        words = (*split_command(startable_command(agent)),)
        known = known_by_command(words)
        return Startable(agent, words, {} if known is None else known.env)
    except (AgentError, SpawnError) as error:
        refuse(str(error), program, FAILED)


def agent_command(agent: str, cwd: str) -> str | Sequence[str]:
    """The command line of an agent; a native form, which has none, gets a text of its own."""
    from coupler.client_api import resolve_name

    meant = resolve_name(agent, cwd=cwd)
    if meant is None:
        return agent
    return meant.target if isinstance(meant.target, list) else f"{agent}, native"


def advice(error: AgentError, agent: str) -> str | None:
    """Advice about an agent that failed, if it is not in the error; `agent` is as it was given."""
    if error.code == AUTH_REQUIRED:
        if "coupler login" in error.message:
            return None
        return f"It wants a login: run `coupler login {shlex.quote(agent)}`"
    if error.kind == "initialize":
        return _advice_on_starting(error, agent)
    is_name = len(agent.split()) == 1 and os.sep not in agent
    if error.kind == "spawn" and is_name and "was not found" in error.message:
        return "If an agent of the catalogue is meant: `coupler agents` lists them"
    return None


def policy_of(
    permissions: str,
    allow: Sequence[str],
    deny: Sequence[str],
    callback: Decide | None,
    *,
    agent: str,
    cwd: str,
) -> Policy:
    """The permission policy, with the rules of `coupler.toml` for this directory; `callback` answers `ask`.

    Raises ValueError if options exclude each other, or if a rule is wrong.
    """
    policy = _policy_of_options(permissions, allow, deny, callback)
    rules = rules_in(cwd)
    # An agent that asks nobody keeps to them by its mode, or was refused before.
    return policy.with_rules(rules) if rules and _confined(agent, cwd) is None else policy


def _confined(agent: str, cwd: str) -> tuple[Confinement, str | None] | None:
    """The modes of an agent that asks for no permission, and the one that its table sets; None for others."""
    from coupler.client.errors import AgentError
    from coupler.client_api import confinement_of, resolve_name

    try:
        meant = resolve_name(agent, cwd=cwd)
    except AgentError:
        return None  # the start itself will say what is wrong
    confinement = None if meant is None else confinement_of(meant.target)
    if meant is None or confinement is None:
        return None
    return confinement, None if meant.profile is None else meant.profile.table.mode


def rules_in(cwd: str) -> list[Rule]:
    """The rules of the user's `coupler.toml` and of the project's; raises ValueError if one is wrong."""
    from coupler.agent.permission import rules_of
    from coupler.config import ConfigError, load

    try:
        return rules_of(load(str(Path(cwd).absolute()), environ=os.environ))
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _policy_of_options(
    permissions: str, allow: Sequence[str], deny: Sequence[str], callback: Decide | None
) -> Policy:
    from coupler.client.policy import Policy

    if not allow and not deny:
        return Policy.named(permissions, callback)
    match permissions:
        case "deny-all":
            raise ValueError(
                "--permissions deny-all denies everything: leave it out to use --allow and --deny"
            )
        case "allow-all" if allow:
            raise ValueError("--permissions allow-all allows everything: leave it out to use --allow")
        case "allow-all":
            return Policy.allow_all(but=deny)
    # Without somebody to ask, what no rule decides is denied, but for reads of the session's files.
    rules = Policy.patterns(allow=allow, deny=deny, callback=callback if permissions == "ask" else None)
    if permissions == "ask" and callback is None and not allow:
        return Policy.deny_all()  # nobody is there to ask, and a rule against something allows nothing
    return rules


def reject_unenforceable_options(
    agent: str,
    cwd: str,
    *,
    allow: Sequence[str],
    deny: Sequence[str],
    files: str | None,
    terminals: bool,
    permissions: str | None,
    mode: str | None,
) -> None:
    """Raises ValueError for what an agent which asks for no permission cannot be kept to."""
    given = {"--allow": allow, "--deny": deny, "--files": files, "--terminals": terminals}
    unhonoured = [name for name, value in given.items() if value]
    against = [rule for rule in rules_in(cwd) if rule.effect != "allow"]
    if not unhonoured and not against:
        return
    if (confined := _confined(agent, cwd)) is None:
        return
    confinement, usual = confined
    wanted = mode or usual or confinement.modes.get(cast("PolicyName", permissions or "allow-reads"))
    only_reads = wanted == confinement.modes.get("allow-reads")
    is_kept = only_reads and all(rule.is_about_changes for rule in against)
    if against and not is_kept:
        raise ValueError(
            f"{confinement.agent} asks for no permission, so {against[0].described} cannot be enforced: use "
            "its ACP form, or --permissions allow-reads where your rules are about changes and commands alone"
        )
    if unhonoured:
        raise ValueError(
            f"{confinement.agent} asks for no permission, and reads, writes and runs commands by itself: "
            f"it cannot be restricted by {' and '.join(unhonoured)}: use --permissions allow-reads or "
            "allow-all, or --mode, or its ACP form"
        )


def mcp_servers_of(values: Sequence[str], program: str) -> tuple[McpServer, ...]:
    """Parses `--mcp`: NAME=COMMAND, NAME=URL, or a JSON file with `mcpServers`."""
    if not values:
        return ()
    from coupler.config.agent_tables import servers_in
    from coupler.config.files import COMMAND_LINE
    from coupler.config.shapes import Fault

    tables: dict[str, Any] = {}
    for value in values:
        tables.update(_server_tables(value, program))
    servers = servers_in(tables, COMMAND_LINE, os.environ.get("HOME"))
    if isinstance(servers, Fault):
        refuse(f"--mcp: {'.'.join(map(str, servers.path))}{servers.message}", program)
    return servers


def _without_acp(agent: str, entry: CatalogueEntry, program: str) -> str:
    """Explains why an agent without ACP cannot be used here, and what to do instead."""
    from coupler.providers.catalogue import ENTRIES as PROVIDERS

    name = shlex.quote(agent)
    lines = [f"{entry.title} is driven without ACP here, and `{program}` is for ACP forms."]
    if entry.command is not None and not agent.endswith(":native"):
        lines.append(f"Its ACP form is not installed. {entry.install}")
    elif entry.command is not None:
        lines.append(f"`{program} {shlex.quote(entry.name)}` takes its ACP form.")
    needed = PROVIDERS[entry.native].install if entry.native is not None else entry.install
    lines.append(f'`coupler exec {name} "hello"` shows whether it answers. If it does not: {needed}')
    return " ".join(lines)


def _advice_on_starting(error: AgentError, agent: str) -> str:
    """Advice for a program that does not speak ACP, or not as it was started."""
    entry = _entry_of_program(agent)
    lines = []
    if entry is not None and entry.name != agent.partition(":")[0]:
        lines.append(f"{entry.title} is in the catalogue: give its name, {entry.name}, instead of a command")
    elif entry is None and not error.stderr.strip():
        lines.append(
            "Most agents speak ACP only if they are started with an argument such as `acp` or `--acp`; "
            "`coupler agents` lists those that can be given by name"
        )
    lines.append(f"`coupler agents doctor {shlex.quote(agent)}` tells what is wrong with it")
    return "\n".join(lines)


def _entry_of_program(agent: str) -> CatalogueEntry | None:
    """The agent of the catalogue that has this name, or whose program the command line starts."""
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import entries
    from coupler.runtime.environment import SpawnError, split_command

    try:
        program = Path(split_command(agent)[0]).stem
        known = entries()
    except (ConfigError, SpawnError, IndexError):
        return None
    by_program = {command[0]: entry for entry in known.values() for command in entry.programs}
    by_program.pop("coupler", None)  # `coupler serve` serves anything, not only the coder
    return known.get(agent.partition(":")[0]) or known.get(program) or by_program.get(program)


def _server_tables(value: str, program: str) -> dict[str, Any]:
    name, equals, target = value.partition("=")
    if not equals or os.sep in name:
        return _server_tables_in(value, program)
    if target.startswith(("http://", "https://")):
        return {name: {"url": target}}
    try:
        words = shlex.split(target)
    except ValueError as error:
        refuse(f"--mcp {name}: the command cannot be split: {error}", program)
    if not words:
        refuse(f"--mcp {name}: it needs a command or an address after the =", program)
    return {name: {"command": words[0], "args": words[1:]}}


def _server_tables_in(file: str, program: str) -> dict[str, Any]:
    if not Path(file).is_file():
        refuse(f"--mcp takes NAME=COMMAND, NAME=URL or a JSON file; there is no file {file!r}", program)
    read = read_json_argument(file, "--mcp", program)
    servers = read.get("mcpServers", read) if isinstance(read, dict) else None
    if not isinstance(servers, dict):
        refuse(f"{file} names no MCP servers: it must be an object with `mcpServers`", program)
    return servers
