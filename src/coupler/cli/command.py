"""The command line as a whole: what there is, and its help. A command is imported when it is needed."""

from __future__ import annotations

from collections.abc import MutableMapping
from difflib import get_close_matches
from importlib import import_module

import click

from coupler.__about__ import __version__

SECTIONS = {
    "To begin with": {
        "init": "coupler.cli.init.command:init",
        "login": "coupler.cli.login:login",
        "models": "coupler.cli.models.command:models",
        "editor": "coupler.cli.editor.command:editor",
        "doctor": "coupler.cli.doctor.command:doctor",
        "completion": "coupler.cli.completion.command:completion",
    },
    "Agents": {
        "serve": "coupler.cli.by_hand:serve",
        "chat": "coupler.cli.chat.command:chat",
        "exec": "coupler.cli.exec.command:exec_command",
        "agents": "coupler.cli.agents:agents",
    },
    "Workflows": {
        "run": "coupler.cli.run.command:run",
        "resume": "coupler.cli.run.resume:resume",
        "runs": "coupler.cli.runs.command:runs",
        "workflows": "coupler.cli.workflows.command:workflows",
    },
    "What is kept": {
        "sessions": "coupler.cli.sessions.command:sessions",
        "permissions": "coupler.cli.permissions:permissions",
        "trust": "coupler.cli.trust:trust",
    },
    "The protocol": {
        "check": "coupler.cli.check.command:check",
        "record": "coupler.cli.by_hand:record",
        "replay": "coupler.cli.replay:replay",
    },
}
"""Every command by its name, as the help lists them, and where it is."""

PLACES = {name: place for section in SECTIONS.values() for name, place in section.items()}


class CommandLine(click.Group):
    """A group whose commands are imported when they are called, shown or completed."""

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        """All of them, for those who want to see each."""
        for name in PLACES:
            self._find(name)
        return self._found

    @commands.setter
    def commands(self, given: MutableMapping[str, click.Command]) -> None:
        self._found = given

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*PLACES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._find(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0] if args else ""
        if word and not word.startswith("-") and self.get_command(ctx, word) is None:
            near = get_close_matches(word, PLACES, n=1)
            hint = f"did you mean `coupler {near[0]}`?" if near else "`coupler --help` lists those there are."
            ctx.fail(f"There is no command {word!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By what they are about, because many commands in one list are hard to read."""
        width = max(map(len, PLACES))
        for title, places in SECTIONS.items():
            rows = [(name, self._short_help(ctx, name)) for name in places]
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows])

    def _find(self, name: str) -> click.Command | None:
        if name not in self._found and name in PLACES:
            module, _, variable = PLACES[name].partition(":")
            self._found[name] = getattr(import_module(module), variable)
        return self._found.get(name)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        found = self.get_command(ctx, name)
        return "" if found is None else found.get_short_help_str(limit=80)


@click.group(
    cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80}
)
@click.version_option(__version__, prog_name="coupler")
def command() -> None:
    """Couple any editor to any agent over the Agent Client Protocol.

    \b
    Examples:
      coupler chat coder
      coupler editor zed app.py --write
      coupler doctor

    `coupler COMMAND --help` explains a command, with examples.
    """
