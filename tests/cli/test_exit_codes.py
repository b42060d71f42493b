"""One table of exit codes: what the commands say in their help is what stands in the manual."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from coupler.cli import record, serve
from coupler.cli.exit_codes import COMMON_EXIT_CODES, TABLES, ExitCode
from coupler.cli.main import command
from tables import table

MANUAL = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def commands(group: click.Command, path: str = "coupler") -> Iterator[tuple[str, str]]:
    """The commands that tell their exit codes, with what they tell."""
    # With the settings of the whole: click keeps the first help option that it is asked for.
    context = click.Context(group, **command.context_settings)
    help = " ".join((group.get_help(context) or "").split())
    if "Exit codes" in help:
        yield path, help.partition("Exit codes")[2].partition("Options:")[0].partition("Commands:")[0]
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each, f"{path} {name}")


OTHERS = ("coupler run", "coupler resume", "coupler exec", "coupler record")
TOLD = [each for each in commands(command) if each[0] not in OTHERS]


def table_of(path: str) -> tuple[ExitCode, ...]:
    name = path.split()[1]
    return next((codes for names, codes in TABLES.items() if name in names), COMMON_EXIT_CODES)


@table(("path", "told"), TOLD)
def test_a_command_tells_only_codes_of_its_table(path: str, told: str) -> None:
    numbers = {int(number) for number in re.findall(r"\b\d+\b", told)}
    assert numbers
    assert numbers <= {each.code for each in table_of(path)}


def test_those_that_read_their_own_arguments_do_so_too() -> None:
    assert "Exit codes: that of the agent" in record.HELP
    assert "`coupler record` ends as its agent does" in MANUAL
    (told,) = re.findall(r"Exit codes: 0 when the client has left.*", MANUAL)
    assert [*map(int, re.findall(r"\d+", told))] == [0, 1, 2]
    assert serve.FAILED == 1


def test_the_manual_has_them_all() -> None:
    columns = [{each.code: each.sentence for each in codes} for codes in TABLES.values()]
    for code in {code for column in columns for code in column}:
        row = " | ".join(column.get(code, "") for column in columns)
        assert f"| {code} | {row} |" in MANUAL
