"""The command `coupler`, and `python -m coupler`.

`serve` is dispatched before any library for command lines is imported: an editor waits for its first answer.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        from coupler.cli.serve import main as serve

        serve(arguments[1:])
    else:
        from coupler.cli.command import command

        command()


if __name__ == "__main__":
    main()
