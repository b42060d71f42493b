"""Runs the command `coupler`, also as `python -m coupler`.

`serve` and `record` are dispatched before click is imported: an editor waits for them. `exec`, `run` and
`resume` are dispatched without the other commands: a script waits for them. A shell that completes a line
sets a variable.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def main() -> None:
    """Runs the command that the arguments name. Ctrl-C before the command handles it ends it silently."""
    try:
        _dispatch(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except FileNotFoundError as error:
        if error.filename is not None or _is_directory_there():
            raise
        from coupler.cli.exit_codes import refuse

        refuse("the directory that you are in was deleted: go to another one", "coupler")


def _is_directory_there() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not needed for it
    except FileNotFoundError:
        return False
    return True


def _dispatch(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        from coupler.cli.serve import main as serve

        serve(arguments[1:])
    elif arguments[:1] == ["record"]:
        from coupler.cli.record import main as record

        record(arguments[1:])
    elif arguments[:1] == ["exec"]:
        from coupler.cli.exec.exec import main as ask

        ask(arguments[1:])
    elif arguments[:1] == ["run"]:
        from coupler.cli.run.run import main as run

        run(arguments[1:])
    elif arguments[:1] == ["resume"]:
        from coupler.cli.run.run import resume_main as resume

        resume(arguments[1:])
    elif "_COUPLER_COMPLETE" in os.environ:
        from coupler.cli.completion import write_completions

        write_completions(os.environ["_COUPLER_COMPLETE"])
    else:
        from coupler.cli.main import command, run_command

        run_command(command, arguments)


if __name__ == "__main__":
    main()
