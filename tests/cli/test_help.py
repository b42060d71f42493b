"""The help of every command: what it says, and that its examples are real ones."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

import forked
from coupler.cli import record as record_command
from coupler.cli import serve as serve_command
from coupler.cli.main import IMPORT_PATHS, SelfParsedCommand, command
from raw_client import COUPLER, PATIENCE
from tables import table

WIDEST = 80
EXAMPLES = re.compile(r"^  Examples:\n((?:    .+\n)+)", re.MULTILINE)


def commands(group: click.Command = command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words that call each command that there is, found as click finds them."""
    yield path
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


def command_at(path: tuple[str, ...]) -> click.Command:
    found: click.Command = command
    for name in path:
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), name)
        assert below is not None
        found = below
    return found


def help_of(path: tuple[str, ...]) -> str:
    found = command_at(path)
    if isinstance(found, SelfParsedCommand):
        return f"{found.get_help(click.Context(found))}\n"
    context = None
    for number in range(len(path) + 1):
        info_name = path[number - 1] if number else "coupler"
        each = command_at(path[:number])
        context = click.Context(each, context, info_name, **each.context_settings)
    assert context is not None
    return f"{found.get_help(context)}\n"


def examples_in(text: str) -> list[str]:
    found = EXAMPLES.search(text)
    return [] if found is None else [line.strip() for line in found[1].splitlines()]


def words_of_coupler(example: str) -> list[str]:
    """The arguments of the first `coupler` in a shell line."""
    inner = re.search(r"\$\((.*)\)", example)
    lexer = shlex.shlex(inner[1] if inner else example, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    words = [*lexer]
    start = next(number for number, word in enumerate(words) if word.endswith("coupler"))
    rest = words[start + 1 :]
    end = next((number for number, word in enumerate(rest) if word in ("|", "<", ">")), len(rest))
    return rest[:end]


PATHS = [pytest.param(path, id=" ".join(path) or "coupler") for path in commands()]


def test_every_command_is_found():
    assert {path.values[0][0] for path in PATHS if path.values[0]} == {*IMPORT_PATHS}
    assert len(PATHS) > 35


@table("path", PATHS)
def test_a_command_has_two_examples_that_call_it_and_can_be_typed(path):
    examples = examples_in(help_of(path))
    assert len(examples) >= 2, help_of(path)
    assert len({*examples}) == len(examples)
    calls = [example for example in examples if f"coupler {' '.join(path)}".strip() in example]
    assert len(calls) >= 1 + bool(path and not isinstance(command_at(path), click.Group))
    for example in examples:
        words = words_of_coupler(example)
        called, rest = called_by(words)
        # With the settings of the whole: click keeps the first help option that it is asked for.
        context = click.Context(called, **{**command.context_settings, "ignore_unknown_options": False})
        parser = called.make_parser(context)
        parser.parse_args([*rest])  # an option that there is not is an error here


def called_by(words: list[str]) -> tuple[click.Command, list[str]]:
    found: click.Command = command
    rest = [*words]
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        below = found.get_command(click.Context(found), rest[0])
        assert below is not None, words
        found, rest = below, rest[1:]
    return found, rest


@table("path", PATHS)
def test_help_fits_into_a_narrow_terminal_and_ends_sentences(path):
    text = help_of(path)
    too_wide = [line for line in text.splitlines() if len(line) > WIDEST and not re.match(r"\s+\d+  ", line)]
    assert too_wide == []
    short = command_at(path).get_short_help_str(200) if path else "."
    assert short.endswith(".")


@table("path", [("serve",), ("record",), ("doctor",), ("runs", "list")])
def test_the_command_itself_shows_this_help(path):
    done = forked.run([*COUPLER, *path, "--help"], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert examples_in(done.stdout) == examples_in(help_of(path)) != []


def test_what_click_knows_of_serve_and_record_is_what_they_read():
    known = {
        name: {option for each in command_at((name,)).params for option in each.opts if option[0] == "-"}
        for name in ("serve", "record")
    }
    assert known["serve"] == {*(option.name for option in serve_command.OPTIONS), "-h", "--help"}
    assert known["record"] == {*re.findall(r"(?<=[ ,])--?[a-z][a-z-]*(?=[ ,])", options(record_command.HELP))}


def options(text: str) -> str:
    lines = text.partition("Options:\n")[2].partition("\n\n")[0].splitlines()
    return "\n".join(f"{line[:19]} " for line in lines)


@table(
    ("words", "hint"),
    [
        (["rnu"], "did you mean `coupler run`?"),
        (["docter"], "did you mean `coupler doctor`?"),
        (["xyzzy"], "`coupler --help` lists those there are."),
        (["runs", "shwo"], "--help"),
        (["exec"], "--help"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_to_do(words, hint):
    done = forked.run([*COUPLER, *words], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


def test_one_command_imports_none_of_the_others():
    program = (
        "import sys; sys.argv = ['coupler', 'trust', '--help']\n"
        "from coupler.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "others = ('chat', 'check', 'exec', 'run', 'workflows')\n"
        "print([name for name in others if f'coupler.cli.{name}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines()[-1] == "[]"
