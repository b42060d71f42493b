"""Options that several commands have, and how their words are read: said once, so that they mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

DAY = 86_400.0


def seconds(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """A time that somebody may wait."""
    if value is not None and not 0 < value <= DAY:
        raise click.BadParameter("seconds must be more than 0, and no more than a day")
    return value


def pairs(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each."""
    for value in values:
        name, equals, _ = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


def new_file(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A file that can be made: its directory is there."""
    if value is None:
        return None
    path = Path(value)
    if not value.strip() or path.is_dir():
        raise click.BadParameter(f"{value!r} is no file")
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}")
    return value


CWD = click.option(
    "--cwd",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIRECTORY",
    help="Where the agent works.  [default: here]",
)
MODEL = click.option("--model", metavar="NAME", help="The model, if the agent offers a choice.")
MODE = click.option("--mode", metavar="NAME", help="The mode, if the agent offers several.")
OPTION = click.option(
    "--option",
    "options",
    multiple=True,
    callback=pairs,
    metavar="NAME=VALUE",
    help="Set an option of the agent; may be repeated.",
)
MCP = click.option(
    "--mcp",
    multiple=True,
    metavar="SERVER",
    help="Give the agent an MCP server: NAME=COMMAND, NAME=URL, or a JSON file with mcpServers.",
)
ALLOW = click.option(
    "--allow", multiple=True, metavar="RULE", help="Also allow this, as in `permissions.allow`."
)
DENY = click.option(
    "--deny", multiple=True, metavar="RULE", help="Never allow this, as in `permissions.deny`."
)
FILES = click.option(
    "--files",
    type=click.Choice(("read", "write", "none")),
    help="What the agent can do with files through Coupler; by default it reads them.",
)
TERMINALS = click.option("--terminals", is_flag=True, help="Let the agent run commands through Coupler.")
RECORD = click.option(
    "--record",
    metavar="FILE",
    callback=new_file,
    help="Write all that is said to a file, without secrets.",
)
