"""`coupler exec`: one prompt to any agent, from a shell or a script."""

from __future__ import annotations

import sys
from typing import Any

import click

from coupler.cli.ending import run_to_the_end
from coupler.cli.exec.options import (
    FORMATS,
    PROGRAM,
    ExecOptions,
    budget_of,
    has_company,
    prompt_of,
    schema_of,
)
from coupler.cli.exit_codes import table
from coupler.cli.mcp_servers import servers_of
from coupler.cli.options import (
    ALLOW,
    CWD,
    DENY,
    FILES,
    MCP,
    MODE,
    MODEL,
    OPTION,
    RECORD,
    TERMINALS,
    pairs,
    seconds,
)
from coupler.cli.policy_choice import PERMISSIONS, refuse_unhonoured
from coupler.cli.refusal import refuse


@click.command(
    "exec",
    short_help="Ask an agent and print its answer.",
    epilog=f"\b\nExit codes:\n{table()}",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("agent")
@click.argument("prompt", nargs=-1)
@click.option("--file", "files_read", multiple=True, metavar="FILE", help="Add a file's text to the prompt.")
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How to print: the text as it comes, one JSON object at the end, an object for each event, or the "
    "final text alone.",
)
@click.option(
    "--schema", metavar="FILE", help="Ask for JSON that fits this JSON Schema, and print it instead of text."
)
@CWD
@MODEL
@MODE
@OPTION
@MCP
@click.option(
    "--permissions",
    type=click.Choice(PERMISSIONS),
    default="allow-reads",
    show_default=True,
    help="What the agent may do of what it asks for; `ask` asks at the terminal, and denies without one.",
)
@ALLOW
@DENY
@click.option("--fail-on-denial", is_flag=True, help="End with exit code 5 if anything was denied.")
@FILES
@TERMINALS
@click.option(
    "--no-forms",
    is_flag=True,
    help="Do not offer to ask at the terminal what the agent wants to know in forms and on pages.",
)
@click.option(
    "--timeout", type=float, callback=seconds, metavar="SECONDS", help="How long all of it may take."
)
@click.option("--budget", metavar="LIMITS", help="What it may use: tokens=5000,cost=0.5,turns=3.")
@click.option(
    "--session", metavar="NAME", help="Keep the session under this name, and go on with it next time, here."
)
@RECORD
@click.option(
    "--env", multiple=True, callback=pairs, metavar="NAME=VALUE", help="Set a variable for the agent."
)
def exec_command(prompt: tuple[str, ...], files_read: tuple[str, ...], **given: Any) -> None:
    """Ask an agent and print its answer.

    AGENT is a name of the catalogue (`coupler agents` lists them) or a command
    line in one word. Of PROMPT, `-` stands for stdin; without a PROMPT it is
    all of stdin.

    The options --file, --option, --mcp, --allow, --deny and --env may be
    repeated. Ctrl-C cancels the turn; a second one ends the agent.

    \b
    Examples:
      coupler exec claude "Summarise README.md"
      git diff | coupler exec "opencode acp" "Review this:" -
      coupler exec coder --format json --timeout 300 "What does main.py do?"
    """
    from coupler.cli.exec.output import output_for
    from coupler.cli.exec.run import run

    options = _options(prompt, files_read, given)
    sys.exit(run(options, output_for(options.format, has_schema=options.schema is not None)))


def _options(prompt: tuple[str, ...], files: tuple[str, ...], given: dict[str, Any]) -> ExecOptions:
    if not given["agent"].strip():
        refuse("say which agent to ask: a name of the catalogue, or a command line", PROGRAM)
    if given["session"] is not None and not given["session"].strip():
        refuse("--session is a name to keep the session under, and cannot be blank", PROGRAM)
    _refuse_unhonoured(given)
    given["schema"] = schema_of(given["schema"])
    given["mcp_servers"] = servers_of(given.pop("mcp"), PROGRAM)
    given["forms"] = not given.pop("no_forms") and has_company(prompt, files)
    given["budget"] = budget_of(given["budget"])
    return ExecOptions(prompt=prompt_of(prompt, files), **given)


def _refuse_unhonoured(given: dict[str, Any]) -> None:
    names = ("allow", "deny", "files", "terminals")
    try:
        refuse_unhonoured(given["agent"], given["cwd"], **{name: given[name] for name in names})
    except ValueError as error:
        refuse(str(error), PROGRAM)


def main(arguments: list[str]) -> None:
    """Run it without the other commands, which somebody who waits for an answer has no need of."""
    run_to_the_end(exec_command, arguments, PROGRAM)
