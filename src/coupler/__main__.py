"""The command `coupler`, and `python -m coupler`.

`serve` and `record` are dispatched before any library for command lines is imported: an editor waits for
them. `exec` is dispatched without the other commands: a script waits for it.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        from coupler.cli.serve import main as serve

        serve(arguments[1:])
    elif arguments[:1] == ["record"]:
        from coupler.cli.record import main as record

        record(arguments[1:])
    elif arguments[:1] == ["exec"]:
        from coupler.cli.exec import main as ask

        ask(arguments[1:])
    else:
        from coupler.cli.command import command

        command()


if __name__ == "__main__":
    main()
