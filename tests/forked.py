"""`Popen` and `run` as in `subprocess`, but `python -m coupler …` is a fork of a process that has it loaded.

What is started is a process like any other, a child of this one: its arguments, directory, variables,
descriptors, session and terminal are as asked for, and it ends as Python does. Only the imports are not
repeated, which are most of what a start costs. Whatever could make a difference to Python itself is really
started, and so is all that is no `python -m coupler …`. Tests of what is imported and when use `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import json
import os
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COUPLER = [sys.executable, "-m", "coupler"]
TESTS = str(Path(__file__).parent)
PR_SET_CHILD_SUBREAPER = 36
MEASURED = {"COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"}
OF_PIPES = {"stdin", "stdout", "stderr", "text", "encoding", "errors", "bufsize"}
TO_PYTHON_ITSELF = ("PYTHON", "COVERAGE", "LC_", "LANG", "LD_", "MALLOC_", "OPENSSL_", "SSL_")
"""How names of variables begin that are read by Python before any program, or by libraries at their start."""


def take_terminal() -> None:
    """For `preexec_fn`: make the terminal on stdin the one that controls the new session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Popen(subprocess.Popen[Any]):
    """Forks what it can, and starts the rest."""

    def __init__(self, command: Any, **options: Any) -> None:
        self._order = _order(command, **options)
        super().__init__(command, **options)

    def _execute_child(self, *arguments: Any) -> None:
        """What `subprocess` does to start a program, when it has made the pipes."""
        if self._order is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        pipes = arguments[10:16]
        theirs = enumerate((pipes[0], pipes[3], pipes[5]))
        standard = [own if end == -1 else end for own, end in theirs]
        self.pid = _forge().order(self._order, [*standard, *self._order["descriptors"][3:]])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@contextmanager
def having_loaded(*modules: str) -> Iterator[None]:
    """Meanwhile all that is forked begins with these modules imported, beside those of `coupler`."""
    loaded = Loaded(*modules)
    try:
        with loaded.used():
            yield
    finally:
        loaded.close()


class Loaded:
    """A process that has these modules imported as well, to be forked now and then."""

    def __init__(self, *modules: str) -> None:
        self._forges: list[_Forge] = []
        if sys.platform == "linux":
            self._forges.append(_Forge())
            self._forges[0].order({"import": modules}, [])

    @contextmanager
    def used(self) -> Iterator[None]:
        """Meanwhile all that is forked begins with them."""
        usual = [*_forges]
        _forges[:] = self._forges or usual
        try:
            yield
        finally:
            _forges[:] = usual

    def close(self) -> None:
        """End the process."""
        for forge in self._forges:
            forge.close()


def run(
    command: list[Any],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def start_child(
    words: list[str],
    program: Path,
    directory: Path,
    environment: dict[str, str],
    stdio: tuple[int, int, int],
) -> subprocess.Popen[bytes]:
    """In the place of `process.child._popen`: what the product starts is a fork, too."""
    streams = dict(zip(("stdin", "stdout", "stderr"), stdio, strict=True))
    return Popen(words, cwd=directory, env=environment, start_new_session=True, **streams)


class _Forge:
    """The process that has `coupler` loaded; see `forge.py`."""

    def __init__(self) -> None:
        variables = {name: value for name, value in os.environ.items() if name not in MEASURED}
        self.variables = _to_python_itself(variables)
        self._orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._prctl = ctypes.CDLL(None).prctl
        program = str(Path(__file__).with_name("forge.py"))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=variables,
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def order(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """The number of the new process. It has no parent for a moment, in which this one adopts orphans."""
        with self._lock:
            self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._orders, [json.dumps(order).encode()], descriptors)
                answer = self._orders.recv(100)
            finally:
                self._prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the process that has coupler loaded has ended: see its traceback on stderr"
        return int(answer)

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


def _order(
    command: Any,
    *,
    cwd: Any = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    start_new_session: bool = False,
    preexec_fn: Any = None,
    **options: Any,
) -> dict[str, Any] | None:
    """What the forge is to do; `None` for what is really started."""
    variables = dict(os.environ if env is None else env)
    # With any other path, a module that is loaded could be another one.
    path = TESTS if variables.get("PYTHONPATH") == TESTS else None
    to_python = {name: value for name, value in variables.items() if not (path and name == "PYTHONPATH")}
    is_forked = (
        sys.platform == "linux"
        and isinstance(command, list | tuple)
        and [*command[:3]] == COUPLER
        and options.keys() <= OF_PIPES
        and preexec_fn in (None, take_terminal)
        and not variables.keys() & MEASURED
        and _to_python_itself(to_python) == _forge().variables
        and Path(cwd or os.curdir).is_dir()
    )
    if not is_forked:
        return None
    return {
        "arguments": [os.fspath(word) for word in command],
        "cwd": str(Path.cwd() / os.fspath(cwd or "")),
        "env": variables,
        "path": path,
        "session": start_new_session,
        "terminal": preexec_fn is take_terminal,
        "descriptors": [0, 1, 2, *pass_fds],
    }


_forges: list[_Forge] = []


def _forge() -> _Forge:
    """The one of this process, made when it is needed."""
    if not _forges:
        _forges.append(_Forge())
    return _forges[0]


def _to_python_itself(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(TO_PYTHON_ITSELF)}
