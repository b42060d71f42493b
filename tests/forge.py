"""Starts `python -m coupler` without importing it each time: this process has it loaded, and forks.

It is given a socket. Each message is an order: what the new process is to be, and its descriptors. The answer
is the number of a process that is a child of whoever has sent the order; see `forked.py`, which does. An
order may also name modules that are to be loaded for all that come after it.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import sys
import termios
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import coupler
from coupler.schema import decoding, methods

PACKAGES = (
    "agent",
    "cli",
    "client",
    "config",
    "conformance",
    "permission",
    "relay",
    "recording",
    "store",
    "workflow",
)
"""Nothing in them reads its surroundings when it is imported, or else `_become` tells it of the new ones."""

LATER = (
    "coupler.coder.profiles",
    "coupler.schema.lenient",
    "jinja2",
    "prompt_toolkit.input.vt100",
    "prompt_toolkit.key_binding.bindings.search",
    "prompt_toolkit.patch_stdout",
    "resource",
    "rich.console",
    "sqlite3",
    "tomllib",
    "tree_sitter_bash",
    "yaml",
)
"""What they import when it is needed, and most commands need some of."""

FIRST_SPARE_DESCRIPTOR = 300
MOST_DESCRIPTORS = 32
LONGEST_ORDER = 1 << 20


def main() -> list[str]:
    """Obey orders; returns, with the arguments, in each process that becomes a command."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    _load()
    while True:
        text, descriptors, _, _ = socket.recv_fds(orders, LONGEST_ORDER, MOST_DESCRIPTORS)
        if not text:
            sys.exit()
        order = json.loads(text)
        if "import" in order:
            _import(order["import"])
            orders.send(b"0")
            continue
        if (pid := _fork()) is None:
            orders.detach()  # its number may be that of a descriptor that was sent
            return _become(order, descriptors)
        orders.send(str(pid).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _load() -> None:
    """Import nearly everything; a module that cannot be imported is left to whoever needs it."""
    for package in PACKAGES:
        path = Path(coupler.__path__[0]) / package
        for module in pkgutil.walk_packages([str(path)], f"coupler.{package}."):
            with suppress(Exception):
                importlib.import_module(module.name)
    _make_decoders()
    _import(LATER)


def _make_decoders() -> None:
    """Have the decoders of all messages, which are made when they are first needed."""
    for method in methods.METHODS.values():
        for kind in (method.params, method.result):
            if kind is not None:
                decoding._decoders[kind]


def _import(names: Iterable[str]) -> None:
    """Have these modules loaded, as far as they can be, and keep them out of garbage collections."""
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _fork() -> int | None:
    """A process without a parent, whom the tests adopt; `None` in it, when that has happened."""
    told, tell = os.pipe()
    waiting, go = os.pipe()
    between = os.fork()
    if between == 0:
        if (pid := os.fork()) == 0:
            os.close(go)
            os.read(waiting, 1)
            return None
        os.write(tell, str(pid).encode())
        os._exit(0)
    os.waitpid(between, 0)
    pid = int(os.read(told, 100))
    for descriptor in (told, tell, waiting, go):
        os.close(descriptor)
    return pid


def _become(order: dict[str, Any], descriptors: list[int]) -> list[str]:
    """Be as if started with these arguments, descriptors, variables and this directory."""
    _take(descriptors, order["descriptors"])
    if order["session"]:
        os.setsid()
    if order["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    known_secrets = sys.modules.get("coupler.redaction.known_secrets")
    if known_secrets is not None:
        known_secrets._at_start = dict(os.environ)
    arguments: list[str] = order["arguments"]
    sys.orig_argv = arguments
    sys.path[0] = str(Path.cwd())
    sys.path[1:1] = filter(None, [order["path"]])
    return arguments


def _take(descriptors: list[int], numbers: list[int]) -> None:
    """Give the descriptors their numbers, close all others, and speak through the new ones."""
    spare = [fcntl.fcntl(each, fcntl.F_DUPFD, FIRST_SPARE_DESCRIPTOR) for each in descriptors]
    for descriptor, number in zip(spare, numbers, strict=True):
        os.dup2(descriptor, number)
    ends = [2, *sorted(number for number in numbers if number > 2), os.sysconf("SC_OPEN_MAX")]
    for below, above in pairwise(ends):
        os.closerange(below + 1, above)
    sys.stdin = sys.__stdin__ = _stream(sys.stdin, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(sys.stdout, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(sys.stderr, "w")  # type: ignore[misc]


def _stream(before: TextIO, mode: str) -> io.TextIOWrapper:
    """As Python makes it at its start."""
    assert isinstance(before, io.TextIOWrapper)
    number = before.fileno()
    unbuffered = before.write_through
    buffer = open(number, mode + "b", buffering=0 if unbuffered and mode == "w" else -1, closefd=False)
    getattr(buffer, "raw", buffer).name = before.name
    stream = io.TextIOWrapper(
        buffer,
        before.encoding,
        before.errors,
        newline="\n",
        line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
        write_through=unbuffered,
    )
    stream.mode = mode
    return stream


def _run() -> None:
    """Be `python -m coupler`, to the end.

    Python would take all modules apart then, which takes longer than most commands do. Where no thread is
    left that could suffer from it, that is spared; whatever was forgotten still has its last words.
    """
    end: object = None
    try:
        runpy.run_module("coupler", run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        end = exit.code
        if not isinstance(end, int | None):
            raise
    if any(not isinstance(thread, threading.Timer) for thread in threading.enumerate()[1:]):
        sys.exit(end)
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit((end or 0) & 0xFF)


if __name__ == "__main__":
    sys.argv = ["", *main()[3:]]
    _run()
