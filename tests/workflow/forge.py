"""Starts `coupler` again and again without importing it each time: one process has it loaded, and forks.

Each line on stdin is an order: arguments, the file for what is written, and after how many seconds it is
killed, if it is. Each is answered by a line with the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

LOADED = (
    "coupler.cli.command",
    "coupler.workflow.engine.starting",
    "coupler.workflow.commands.command",
    "yaml",
    "jinja2",
)


def main() -> None:
    for module in LOADED:
        importlib.import_module(module)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(order["arguments"], order["output"])
        if order["kill_after"] is not None:
            signal.sigtimedwait({signal.SIGCHLD}, order["kill_after"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        signal.sigtimedwait({signal.SIGCHLD}, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(arguments: list[str], output: str) -> None:
    """Be the command, as if it had been started with these arguments."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, standard in ((null, 0), (written, 1), (written, 2)):
        os.dup2(descriptor, standard)
    sys.argv = ["coupler", *arguments]
    from coupler.__main__ import main as coupler

    try:
        coupler()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(99)
    os._exit(0)


if __name__ == "__main__":
    main()
