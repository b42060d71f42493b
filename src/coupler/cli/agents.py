"""`coupler agents`: the catalogue, and what of it is installed here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.agent_options import Startable, startable_agent
from coupler.cli.exit_codes import DONE, FAILED, INTERRUPTED, refuse
from coupler.conformance.candidate import describe
from coupler.conformance.peers import ScriptError
from coupler.conformance.reading import part
from coupler.conformance.scripted_client import Answer

if TYPE_CHECKING:
    from coupler.cli.agent_doctor import Diagnosis
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


# `coupler agents doctor`: what works with an agent here, and what to do about the rest.


TIMEOUT = 30.0


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
        diagnosis = _examined(found, prompt, timeout)
    except KeyboardInterrupt:
        refuse("interrupted", PROGRAM, INTERRUPTED)
    if as_json:
        import json

        sys.stdout.write(json.dumps(diagnosis.as_object(), indent=2, default=str) + "\n")
    else:
        _print_diagnosis(diagnosis)
    sys.exit(DONE if diagnosis.is_healthy else FAILED)


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
    from coupler.cli.terminal import one_line

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
    from coupler.cli.terminal import clean

    return clean(line).replace("\n", " ").rstrip()


PROGRAM = "coupler agents doctor"
STDERR_SHOWN = 1000
"""Characters of the end of stderr that are shown with a problem."""


def _examined(agent: Startable, prompt: str | None, timeout: float) -> Diagnosis:
    import asyncio
    import tempfile
    from pathlib import Path

    from coupler.cli.agent_doctor import PROMPT, Examined, examine
    from coupler.client_api import usual_startup_timeout

    # Its children may still write there when it ends.
    with tempfile.TemporaryDirectory(prefix="coupler-doctor-", ignore_cleanup_errors=True) as directory:
        return asyncio.run(
            examine(
                Examined(
                    agent.name,
                    agent.command,
                    agent.env,
                    Path(directory).resolve(),
                    timeout,
                    usual_startup_timeout(agent.command) * timeout / TIMEOUT,
                    prompt or PROMPT,
                    None if agent.entry is None else agent.entry.login,
                    has_tools=agent.entry is not None and agent.entry.origin is None,
                )
            )
        )


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    from coupler.cli.terminal import clean, one_line

    lines = [one_line(shlex.join(diagnosis.command)), ""]
    width = max((len(finding.about) for finding in diagnosis.findings), default=0)
    for finding in diagnosis.findings:
        lines.append(f"{finding.level:<8} {finding.about:<{width}}  {one_line(finding.sentence)}")
        if finding.remedy is not None:
            lines.append(f"{'':<9}{'':<{width}}  -> {one_line(finding.remedy)}")
    if not diagnosis.is_healthy and diagnosis.stderr.strip():
        lines += ["", "The last of its stderr:", clean(diagnosis.stderr.strip()[-STDERR_SHOWN:])]
    problems = sum(finding.level == "problem" for finding in diagnosis.findings)
    verdict = "healthy" if not problems else f"{problems} problem{'s' if problems != 1 else ''}"
    lines += ["", f"{one_line(diagnosis.subject)}: {verdict}"]
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write("\n".join(lines) + "\n")


# How findings about an agent are put into words.


LONGEST_SENTENCE = 400
"""Characters of what an agent says about an error."""


def silence_remedy(diagnosis: Diagnosis, error: ScriptError) -> str:
    """What to do about an agent that did not answer."""
    match error.kind:
        case "spawn":
            return "install it, or give the path of its program"
        case "gone":
            return "read its stderr; started in a terminal, the same command may say more"
        case "flood":
            return "tell its makers: it writes without end"
    if not diagnosis.findings:
        return "see whether the command starts an ACP agent at all: many need a word such as acp or --acp"
    return "give it more time with --timeout, or read its stderr"


def refusal_in_words(answer: Answer) -> str:
    """An answer that is not the one that was wanted: the agent's own sentence, if it has one."""
    message = part(answer.error, "message")
    if not isinstance(message, str) or not message:
        return describe(answer)
    return f"the error {answer.code}: {message[:LONGEST_SENTENCE]}"


def self_named(diagnosis: Diagnosis) -> str:
    """What the agent calls itself, and its version."""
    said = diagnosis.agent
    if said is None:
        return "it does not say its name and version"
    return f"{said.get('title') or said.get('name')} {said.get('version', '')}".strip()


def capabilities_in_words(diagnosis: Diagnosis) -> str:
    """What it says it can do."""
    names = sorted(_true_names(diagnosis.capabilities))
    return f"with {', '.join(names)}" if names else "with no capabilities beyond the basic ones"


def _true_names(capabilities: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in capabilities.items():
        if value is True:
            found.append(name)
        elif isinstance(value, dict) and name.endswith("Capabilities"):
            inner = [each for each, said in value.items() if said is True or isinstance(said, dict)]
            short = name.removesuffix("Capabilities")
            found += [f"{short}.{each}" for each in inner if not each.startswith("_")]
    return found


def duration(seconds: float) -> str:
    """A time for people."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
