"""`coupler agents`: the catalogue, and what of it is installed here."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.agent_doctor.command import doctor
from coupler.cli.exit_codes import FAILED
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.providers.catalogue import Entry

READY_WORDS = {
    "installed": "installed",
    "fetched": "by {}",
    "native": "native form",
    "missing": "not installed",
}
"""How an agent can be started here."""

FILES_WORDS = {
    "none": "is offered no files through Coupler: it works on the disk itself",
    "read": "reads files through Coupler",
    "write": "reads and writes files through Coupler",
}


@click.group(
    short_help="List the agents that can be called by name.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.option("--json", "as_json", is_flag=True, help="Write the list as JSON.")
@click.pass_context
def agents(context: click.Context, as_json: bool) -> None:
    """List the agents that can be called by name, and how they start here.

    A name can be used wherever an agent is wanted: coupler exec claude ...
    `NAME:native` insists on the agent's own command line instead of ACP, and
    `NAME:acp` on ACP. [agents.NAME] in coupler.toml sets a `command`, a `title`,
    an `env` and `files`, for agents of this list and for others.

    \b
    Examples:
      coupler agents
      coupler agents --json
    """
    if context.invoked_subcommand is None:
        _list(as_json=as_json)


agents.add_command(doctor)


def _list(*, as_json: bool) -> None:
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration, joined

    try:
        config = configuration(".")
    except ConfigError as error:
        refuse(str(error), "coupler agents", FAILED)
    rows = [_row(entry) for entry in joined(config).values()]
    if as_json:
        import json

        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        _print(rows)
    for note in config.notes:
        if note.key == "agents":
            sys.stderr.write(f"coupler agents: {note}\n")


def _row(entry: Entry) -> dict[str, Any]:
    from coupler.client.errors import AgentError
    from coupler.providers.catalogue import choose, has_native

    command, state = entry.command, "missing"
    try:
        chosen = choose(entry)
    except AgentError:
        pass
    else:
        command = chosen.command or command
        state = "native" if chosen.form == "native" else "fetched" if chosen.is_fetched else "installed"
    return {
        "name": entry.name,
        "title": entry.title,
        "state": state,
        "command": None if command is None else [*command],
        "native": entry.native,
        "native_installed": has_native(entry),
        "install": entry.install,
        "login": entry.login,
        "files": entry.files,
        "configured_in": None if entry.origin is None else str(entry.origin),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    from coupler.cli.sessions.wording import one_line

    width = max(len(row["name"]) for row in rows)
    for row in rows:
        command = shlex.join(row["command"]) if row["command"] else ""
        state = READY_WORDS[row["state"]].format(row["command"][0] if row["command"] else "")
        if row["state"] == "native":
            command = f"{row['native']}, driven without ACP"
        line = f"{row['name']:<{width}}  {state:<13}  {command}"
        sys.stdout.write(f"{_one_line_kept(line)}\n")
        beside = " " * (width + 17)
        if row["state"] == "missing" or (row["state"] == "native" and not row["native_installed"]):
            sys.stdout.write(f"{beside}{row['install']}\n")
        if row["files"] is not None:
            sys.stdout.write(f"{beside}{FILES_WORDS[row['files']]}; --files changes that\n")
        if row["configured_in"] is not None:
            sys.stdout.write(f"{beside}from {one_line(row['configured_in'])}\n")


def _one_line_kept(line: str) -> str:
    """A line of the table, without anything that a terminal would obey; its columns stay."""
    from coupler.cli.sessions.wording import clean

    return clean(line).replace("\n", " ").rstrip()
