"""How a command of click ends: with its exit code; for Ctrl-C with 130 and no word."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from coupler.cli.exit_codes import DONE, FAILED, INTERRUPTED
from coupler.cli.refusal import refuse


def run_to_the_end(command: click.Command, arguments: list[str], program: str | None = None) -> NoReturn:
    """Run it. Left to itself, click would end with 1 for Ctrl-C, as for any failure."""
    try:
        code = command.main(arguments, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        _tell_unwritten(error, program or "coupler")
    except click.Abort as abort:
        if isinstance(abort.__cause__ or abort.__context__, EOFError):  # a question that nobody answers
            click.echo("Aborted!", file=sys.stderr)
            sys.exit(FAILED)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else DONE)


def _tell_unwritten(error: OSError, program: str) -> NoReturn:
    """What cannot be written is about no file by name: it is what the command prints."""
    from coupler.cli.exec.output import silence_stdout

    silence_stdout()
    refuse(f"the output cannot be written: {(error.strerror or str(error)).lower()}", program, FAILED)
