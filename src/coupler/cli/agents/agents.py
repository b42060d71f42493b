"""`coupler agents`: lists the agents that can be called by name, and examines one.

The examination itself is `agent_doctor`.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.agent_options import Startable, startable_agent
from coupler.cli.exit_codes import DONE, FAILED, INTERRUPTED, refuse
from coupler.cli.listing import Column, Listing
from coupler.cli.output import say, stdout, tell

if TYPE_CHECKING:
    from coupler.cli.agents.agent_doctor import Diagnosis
    from coupler.providers.catalogue import CatalogueEntry


PROGRAM = "coupler agents doctor"

TIMEOUT = 30.0

STDERR_SHOWN = 1000
"""Characters of the end of stderr that are shown with a problem."""

READY_WORDS = {
    "installed": "installed",
    "fetched": "by {}",
    "native": "native form",
    "missing": "not installed",
}
"""Texts for the ways in which an agent can be started here."""

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

    On a terminal it is a table. To a pipe it writes one agent a line, with tabs
    between name, state (installed, fetched, native or missing), command, title
    and, if it is missing, how to install it.

    \b
    Examples:
      coupler agents
      coupler agents --json
    """
    if context.invoked_subcommand is None:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    from coupler.config import ConfigError
    from coupler.providers.catalogue import configuration, merged_entries

    try:
        config = configuration(".")
    except ConfigError as error:
        refuse(str(error), "coupler agents", FAILED)
    LISTING.show([_row(entry) for entry in merged_entries(config).values()], is_json=as_json)
    for note in config.notes:
        if note.key == "agents":
            tell(f"coupler agents: {note}")


def _row(entry: CatalogueEntry) -> dict[str, Any]:
    from coupler.client.errors import AgentError
    from coupler.providers.catalogue import choose_form, is_native_available

    command, state = entry.command, "missing"
    try:
        chosen = choose_form(entry)
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
        "native_installed": is_native_available(entry),
        "install": entry.install,
        "login": entry.login,
        "files": entry.files,
        "configured_in": None if entry.origin is None else str(entry.origin),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from coupler.runtime.terminal_text import one_line

    command = one_line(shlex.join(row["command"])) if row["command"] else ""
    state = READY_WORDS[row["state"]].format(row["command"][0] if row["command"] else "")
    lines = [f"{row['native']}, driven without ACP" if row["state"] == "native" else command]
    if row["state"] == "missing" or (row["state"] == "native" and not row["native_installed"]):
        lines.append(row["install"])
    if row["files"] is not None:
        lines.append(f"{FILES_WORDS[row['files']]}; --files changes that")
    if row["configured_in"] is not None:
        lines.append(f"from {one_line(row['configured_in'])}")
    return row["name"], state, "\n".join(lines)


def _fields(row: dict[str, Any]) -> tuple[str, ...]:
    hint = row["install"] if row["state"] == "missing" else ""
    return row["name"], row["state"], shlex.join(row["command"] or ()), row["title"], hint


LISTING: Listing[dict[str, Any]] = Listing(
    (Column("NAME", "cyan"), Column("START"), Column("COMMAND", share=1, overflow="wrap")),
    _cells,
    _fields,
    dict,
)


@click.command(
    short_help="Examine an agent.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("agent")
@click.option("--prompt", metavar="TEXT", help="What to ask it, instead of to call the probe's tool.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long an answer may take; a turn may take six times that, and the start of what is fetched four "
    "times.",
)
@click.option("--json", "as_json", is_flag=True, help="Write what was found as JSON.")
def doctor(agent: str, prompt: str | None, timeout: float, as_json: bool) -> None:
    """Examine an agent: a name of the catalogue, or a command line in one word.

    It is started in an empty directory, greeted, asked, cancelled, left and
    started again to load what was said. The turns are real ones: they may cost
    something. It is told of an MCP server with one tool that does nothing, to
    see whether such servers reach the model.

    \b
    Examples:
      coupler agents doctor gemini
      coupler agents doctor "coupler serve agent.py" --json

    Exit codes: 0 if nothing disturbs clients, 1 if something does, 2 for wrong
    usage, 130 when interrupted.
    """
    found = startable_agent(agent, PROGRAM)
    try:
        diagnosis = _examine(found, prompt, timeout)
    except KeyboardInterrupt:
        refuse("interrupted", PROGRAM, INTERRUPTED)
    if as_json:
        import json

        stdout().json(json.dumps(diagnosis.as_object(), indent=2, default=str))
    else:
        _print_diagnosis(diagnosis)
    sys.exit(DONE if diagnosis.is_healthy else FAILED)


agents.add_command(doctor)


def _examine(agent: Startable, prompt: str | None, timeout: float) -> Diagnosis:
    import asyncio
    import tempfile
    from pathlib import Path

    from coupler.cli.agents.agent_doctor import PROMPT, ExaminedAgent, examine_agent
    from coupler.client_api import default_startup_timeout

    # Its children may still write there when it ends.
    with tempfile.TemporaryDirectory(prefix="coupler-doctor-", ignore_cleanup_errors=True) as directory:
        return asyncio.run(
            examine_agent(
                ExaminedAgent(
                    agent.name,
                    agent.command,
                    agent.env,
                    Path(directory).resolve(),
                    timeout,
                    default_startup_timeout(agent.command) * timeout / TIMEOUT,
                    prompt or PROMPT,
                    None if agent.entry is None else agent.entry.login,
                    has_tools=agent.entry is not None and agent.entry.origin is None,
                )
            )
        )


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    from coupler.runtime.process import last_lines
    from coupler.runtime.terminal_text import clean, one_line

    lines = [one_line(shlex.join(diagnosis.command)), ""]
    width = max((len(finding.about) for finding in diagnosis.findings), default=0)
    for finding in diagnosis.findings:
        lines.append(f"{finding.level:<8} {finding.about:<{width}}  {one_line(finding.sentence)}")
        if finding.remedy is not None:
            lines.append(f"{'':<9}{'':<{width}}  -> {one_line(finding.remedy)}")
    if not diagnosis.is_healthy and diagnosis.stderr.strip():
        lines += ["", "The last of its stderr:", clean(last_lines(diagnosis.stderr, STDERR_SHOWN))]
    problems = sum(finding.level == "problem" for finding in diagnosis.findings)
    verdict = "healthy" if not problems else f"{problems} problem{'s' if problems != 1 else ''}"
    lines += ["", f"{one_line(diagnosis.subject)}: {verdict}"]
    say("\n".join(lines))
