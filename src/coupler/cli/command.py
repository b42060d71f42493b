"""The command line as a whole: what there is, and its help."""

from __future__ import annotations

import click

from coupler.__about__ import __version__
from coupler.cli import record as record_command
from coupler.cli import serve as serve_command
from coupler.cli.agents import agents
from coupler.cli.chat.command import chat
from coupler.cli.check.command import check
from coupler.cli.doctor.command import doctor
from coupler.cli.editor.command import editor
from coupler.cli.exec.command import exec_command
from coupler.cli.init.command import init
from coupler.cli.login import login
from coupler.cli.models.command import models
from coupler.cli.permissions import permissions
from coupler.cli.replay import replay
from coupler.cli.run.command import run
from coupler.cli.run.resume import resume
from coupler.cli.runs.command import runs
from coupler.cli.sessions.command import sessions
from coupler.cli.trust import trust
from coupler.cli.workflows.command import workflows


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coupler")
def command() -> None:
    """Couple any editor to any agent over the Agent Client Protocol."""


@command.command(
    short_help="Serve an agent to an editor.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Listed here for the help; `coupler serve` itself is dispatched before click is imported."""
    serve_command.main([*arguments])


@command.command(
    short_help="Record what an editor and an agent say.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def record(arguments: tuple[str, ...]) -> None:
    """Listed here for the help; `coupler record` itself is dispatched before click is imported."""
    record_command.main([*arguments])


command.add_command(chat)
command.add_command(agents)
command.add_command(check)
command.add_command(doctor)
command.add_command(editor)
command.add_command(exec_command)
command.add_command(init)
command.add_command(login)
command.add_command(models)
command.add_command(permissions)
command.add_command(replay)
command.add_command(resume)
command.add_command(run)
command.add_command(runs)
command.add_command(sessions)
command.add_command(trust)
command.add_command(workflows)
