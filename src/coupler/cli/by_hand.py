"""`coupler serve` and `coupler record` as click knows them: to be listed, completed and explained.

Both read their own arguments, because an editor waits for them, and are dispatched before click is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from coupler.cli import record as record_command
from coupler.cli import serve as serve_command
from coupler.runtime.logs import LEVELS


class ByHand(click.Command):
    """A command whose arguments are read by a function of its own; those declared here are for completion."""

    def __init__(
        self,
        name: str,
        main: Callable[[list[str]], None],
        help: str,
        params: Sequence[click.Parameter],
        **more: Any,
    ) -> None:
        super().__init__(name, params=[*params], add_help_option=False, **more)
        self._main = main
        self._help = help

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave them alone, unless it is only about what could come next."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        ctx.args = [*args]
        return ctx.args

    def invoke(self, ctx: click.Context) -> None:
        self._main([*ctx.args])

    def get_help(self, ctx: click.Context) -> str:
        return self._help.rstrip("\n")


HELP_OPTION = click.Option(["-h", "--help"], is_flag=True)

serve = ByHand(
    "serve",
    serve_command.main,
    serve_command.HELP,
    [
        click.Argument(["target"], required=False),
        click.Argument(["words"], nargs=-1),
        click.Option(["--agent"], metavar="NAME"),
        click.Option(["--model"], metavar="TEXT"),
        click.Option(["--no-workflows"], is_flag=True),
        click.Option(["--name"], metavar="TEXT"),
        click.Option(["--title"], metavar="TEXT"),
        click.Option(["--version"], metavar="TEXT"),
        click.Option(["--store"], metavar="PATH"),
        click.Option(["--no-store"], is_flag=True),
        click.Option(["--drafts"], type=click.Choice(["fork"])),
        click.Option(["--log-level"], type=click.Choice(LEVELS)),
        click.Option(["--log-file"], metavar="PATH"),
        HELP_OPTION,
    ],
    short_help="Serve an agent to an editor.",
)

record = ByHand(
    "record",
    record_command.main,
    record_command.HELP,
    [
        click.Argument(["command"], nargs=-1),
        click.Option(["-o", "--output"], metavar="FILE"),
        click.Option(["--no-mask"], is_flag=True),
        click.Option(["-q", "--quiet"], is_flag=True),
        HELP_OPTION,
    ],
    short_help="Record what an editor and an agent say.",
)
