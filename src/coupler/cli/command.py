"""The command line as a whole: what there is, and its help."""

from __future__ import annotations

import click

from coupler.__about__ import __version__
from coupler.cli import serve as serve_command
from coupler.cli.check import check
from coupler.cli.permissions import permissions
from coupler.cli.sessions import sessions
from coupler.cli.trust import trust


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


command.add_command(check)
command.add_command(permissions)
command.add_command(sessions)
command.add_command(trust)
