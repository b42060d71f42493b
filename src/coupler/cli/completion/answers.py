"""What a shell is answered when somebody presses the tabulator key.

It is asked in the middle of a line that somebody types. So it imports no more than it needs, writes nothing
but answers, and has none rather than an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

from coupler.cli.completion.scripts import PROGRAM, VARIABLE
from coupler.cli.completion.words import completed


def answer(instruction: str) -> None:
    """Write the completions that a script asks for, as in `bash_complete`."""
    shell, _, wanted = instruction.partition("_")
    chosen = get_completion_class(shell)
    if chosen is None or wanted != "complete":
        return
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        spoken, sys.stderr = sys.stderr, nowhere
        try:
            text = _completions(chosen, shell)
        except Exception:
            # Whatever is wrong with a file or the store is told by the commands that use it.
            text = ""
        finally:
            sys.stderr = spoken
    sys.stdout.write(f"{text}\n")


def _completions(chosen: type[ShellComplete], shell: str) -> str:
    from coupler.cli.command import command

    asking = chosen(command, {}, PROGRAM, VARIABLE)
    arguments, _ = asking.get_completion_args()
    for path, each in _called(command, arguments):
        for parameter in each.params:
            completed(parameter, path, has_help=shell != "bash")
    return asking.complete()


def _called(command: click.Command, words: Sequence[str]) -> Iterator[tuple[str, click.Command]]:
    """The command that the words call, after those that it is below."""
    path: list[str] = []
    yield "", command
    for word in words:
        if not isinstance(command, click.Group):
            return
        found = command.get_command(click.Context(command), word)
        if found is None:
            continue
        path.append(word)
        command = found
        yield " ".join(path), command
