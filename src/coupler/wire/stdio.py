"""Takes file descriptors 0 and 1 for the protocol, so that nothing else can write into it.

Afterwards 1 is stderr and 0 is empty, at operating-system level: prints, C libraries and child processes
cannot reach the peer. This module imports next to nothing, because it has to run before everything else.
"""

from __future__ import annotations

import contextlib
import os
import sys


class StdioIsTerminal(Exception):  # noqa: N818
    """Stdin is a terminal: somebody typed the command, and there is no peer on the other side."""

    def __init__(self) -> None:
        super().__init__("stdin is a terminal: this speaks a protocol over it, so let an editor start it")


def take_over() -> tuple[int, int]:
    """Move stdin and stdout to private descriptors; returns (read, write)."""
    if os.isatty(0):
        raise StdioIsTerminal
    _open_missing()
    incoming, outgoing = os.dup(0), os.dup(1)
    _replace(0, os.devnull, os.O_RDONLY)
    os.dup2(2, 1)
    # What was printed before goes where later prints go.
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    _close_in_forks(incoming, outgoing)
    return incoming, outgoing


def _open_missing() -> None:
    """Open the null device on closed standard descriptors, so that no private one gets their number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            _replace(fd, os.devnull, os.O_RDWR)


def _replace(fd: int, path: str, flags: int) -> None:
    opened = os.open(path, flags)
    os.dup2(opened, fd)
    if opened != fd:
        os.close(opened)


def _close_in_forks(*fds: int) -> None:
    """Close the protocol's pipes in forked children, as long as the numbers mean them."""
    meant = {fd: _identity(fd) for fd in fds}

    def close() -> None:
        for fd, identity in meant.items():
            with contextlib.suppress(OSError):
                if _identity(fd) == identity:
                    os.close(fd)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=close)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
