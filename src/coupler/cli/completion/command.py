"""`coupler completion`: the script by which a shell completes what is typed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from coupler.cli.completion.scripts import HOW_TO_INSTALL, SHELLS, script
from coupler.cli.refusal import refuse

PROGRAM = "coupler completion"


@click.command(
    short_help="Complete commands and names in your shell.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> None:
    """Print the script by which your shell completes commands, options, and names.

    Completed are the names of agents and workflows, the ids of runs and
    sessions, and files. Without SHELL it is the one that you log in with. How
    to install the script is told on a terminal, and in its first lines.

    \b
    Examples:
      eval "$(coupler completion bash)"
      coupler completion fish > ~/.config/fish/completions/coupler.fish

    Exit codes: 0 if the script is printed, 2 for wrong usage.
    """
    chosen = shell or _own_shell()
    sys.stdout.write(script(chosen))
    sys.stdout.flush()
    if sys.stdout.isatty():
        sys.stderr.write(f"\n{HOW_TO_INSTALL[chosen]}\n")


def _own_shell() -> str:
    """The one that the user logs in with."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        refuse(f"say for which shell: coupler completion {'|'.join(SHELLS)}", PROGRAM)
    return name
