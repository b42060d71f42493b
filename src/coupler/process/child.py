"""A child process in a group of its own.

Its stdin and stdout are file descriptors for a transport to take. Its stderr is read all the time, so that
the child never blocks on it, and the last of it is kept for error messages. Its death is noticed at once.
`end` leaves nothing of its group behind; if it is never called, the group is killed when Python exits.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coupler.process.command import find_program, split_command
from coupler.process.environment import Environment
from coupler.process.errors import SpawnError
from coupler.process.exit import watch_exit
from coupler.process.group import NEW_GROUP, Group
from coupler.process.ring import Ring

if sys.version_info < (3, 11, 4):
    from coupler import timeouts

    timeouts.install()

READ_BYTES = 64 * 1024

# How much is still read from the stderr of a dead child, whose own children may go on writing to it.
LAST_WORDS_BYTES = 1024 * 1024


class Streams(NamedTuple):
    """What a child's standard streams are: three pipes, unless said otherwise."""

    has_stdin: bool = True
    """False: it reads from the null device."""
    stderr_in_stdout: bool = False
    """True: what it writes to stderr comes from its stdout, in the order in which it was written."""
    keeps_stderr: bool = True
    """False: whoever spawned it takes `stderr_fd` and reads it; nothing of it is kept here."""


APART = Streams()


class Child:
    """A running program, made by `Child.spawn`. Belongs to the event loop that it was spawned in."""

    @classmethod
    def spawn(
        cls,
        command: str | Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Environment | Mapping[str, str | None] | None = None,
        stderr_limit: int = 64 * 1024,
        on_stderr: Callable[[bytes], None] | None = None,
        streams: Streams = APART,
    ) -> "Child":
        """Start a program, or raise `SpawnError`.

        `env` as a mapping is ours with these overrides; `Environment.exact` gives it nothing else. The last
        `stderr_limit` bytes of stderr are kept; `on_stderr` gets all of it as it comes, in the event loop.
        """
        words = split_command(command)
        directory = _directory(cwd)
        environment = (env if isinstance(env, Environment) else Environment.inherit(env)).resolve()
        program = find_program(words[0], cwd=directory, environment=environment)
        return cls(words, program, directory, environment, Ring(stderr_limit), on_stderr, streams)

    def __init__(
        self,
        words: list[str],
        program: Path,
        directory: Path,
        environment: dict[str, str],
        stderr: Ring,
        on_stderr: Callable[[bytes], None] | None,
        streams: Streams,
    ) -> None:
        self.command = words
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ring = stderr
        self._on_stderr = on_stderr
        self._exited = asyncio.Event()
        self._ending = asyncio.Lock()
        self._ended = False
        self._keeps_stderr = streams.keeps_stderr
        self._start(words, program, directory, environment, streams)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin_fd(self) -> int:
        """The write end of the child's stdin. Reading this hands it over: the reader owns and closes it."""
        self._owned.discard(self._stdin)
        return self._stdin

    @property
    def stdout_fd(self) -> int:
        """The read end of the child's stdout. Reading this hands it over: the reader owns and closes it."""
        self._owned.discard(self._stdout)
        return self._stdout

    @property
    def stderr_fd(self) -> int:
        """The read end of a stderr that is not kept. Reading this hands it over, as with stdout."""
        assert not self._keeps_stderr
        self._owned.discard(self._stderr)
        return self._stderr

    @property
    def stderr(self) -> str:
        """The last of what the child wrote to stderr; complete once `wait` has returned."""
        return self._ring.text()

    async def wait(self) -> int:
        """Wait until the child itself has ended; return its return code, negative for a signal."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    async def end(self, grace: float = 5.0, *, linger: float = 0.5) -> None:
        """End the child and its whole group, gently first.

        Closes stdin, unless somebody took it and so has to close it; after `linger` seconds sends SIGTERM to
        the group, and after `grace` more SIGKILL. Cancelled, it kills at once. A second call does nothing,
        unless it has no grace: then the patience of the first is over.
        """
        if not grace and self._ending.locked():
            self._group.kill()
        async with self._ending:
            if self._ended:
                return
            self._close(self._stdin)
            try:
                if not await self._gone_within(linger):
                    self._group.terminate()
                    await self._gone_within(grace)
            finally:
                self._kill()
            # Killed, it still has to be seen dead; only a process stuck in the kernel takes longer than this.
            await self._gone_within(1.0)

    def _start(
        self,
        words: list[str],
        program: Path,
        directory: Path,
        environment: dict[str, str],
        streams: Streams,
    ) -> None:
        (child_stdin, self._stdin), (self._stdout, child_stdout), (self._stderr, child_stderr) = _pipes(3)
        self._owned = {self._stdin, self._stdout, self._stderr}
        try:
            stdin = child_stdin if streams.has_stdin else subprocess.DEVNULL
            stderr = child_stdout if streams.stderr_in_stdout else child_stderr
            stdio = (stdin, child_stdout, stderr)
            self._process = _popen(words, program, directory, environment, stdio)
        except BaseException:
            _close_all(self._owned)
            raise
        finally:
            _close_all({child_stdin, child_stdout, child_stderr})
        self._group = Group(self._process)
        self._safety_net = weakref.finalize(
            self, _abandon, self._group, self._process, self._owned, os.getpid()
        )
        if self._keeps_stderr:
            self._read_stderr()
        self._exit_fd = watch_exit(self._process, self._loop, self._note_exit)
        if self._exit_fd is not None:
            self._owned.add(self._exit_fd)

    def _read_stderr(self) -> None:
        if sys.platform == "win32":  # pipes cannot be polled there
            threading.Thread(target=self._read_stderr_in_thread, args=(self._stderr,), daemon=True).start()
            return
        os.set_blocking(self._stderr, False)
        self._loop.add_reader(self._stderr, self._read_stderr_once)

    def _read_stderr_in_thread(self, descriptor: int) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # closed by `end`, or the loop is closed
            while chunk := os.read(descriptor, READ_BYTES):
                self._loop.call_soon_threadsafe(self._keep_stderr, chunk)

    def _read_stderr_once(self) -> int:
        """Read what is there, at most READ_BYTES; return how much that was."""
        try:
            chunk = os.read(self._stderr, READ_BYTES)
        except BlockingIOError:
            return 0
        if chunk:
            self._keep_stderr(chunk)
        else:
            self._close(self._stderr)
        return len(chunk)

    def _keep_stderr(self, chunk: bytes) -> None:
        self._ring.append(chunk)
        if self._on_stderr is None:
            return
        try:
            self._on_stderr(chunk)
        except Exception as error:
            # Reading must go on, or the child blocks; a listener that failed once is not asked again.
            self._on_stderr = None
            self._loop.call_exception_handler({"message": "A listener on stderr failed", "exception": error})

    def _note_exit(self, returncode: int) -> None:
        if self._exit_fd is not None:
            self._close(self._exit_fd)
        self.returncode = returncode
        self._read_last_words()
        self._exited.set()
        if self._ended:
            self._forget()

    def _read_last_words(self) -> None:
        if sys.platform == "win32" or not self._keeps_stderr:
            return
        left = LAST_WORDS_BYTES
        while left > 0 and self._stderr in self._owned:
            read = self._read_stderr_once()
            if not read:
                return
            left -= read

    async def _gone_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
                await self._group.gone()
        except TimeoutError:
            return False
        return True

    def _kill(self) -> None:
        self._ended = True
        self._group.kill()
        self._read_last_words()
        for descriptor in (self._stdin, self._stdout, self._stderr):
            self._close(descriptor)
        if self.returncode is not None:
            self._forget()

    def _forget(self) -> None:
        self._process.poll()
        self._safety_net.detach()

    def _close(self, descriptor: int) -> None:
        if descriptor not in self._owned:
            return
        self._owned.discard(descriptor)
        if sys.platform != "win32":
            self._loop.remove_reader(descriptor)
        os.close(descriptor)


def _directory(cwd: str | os.PathLike[str] | None) -> Path:
    directory = Path.cwd() if cwd is None else Path(cwd).absolute()
    if not directory.is_dir():
        found = "is not a directory" if directory.exists() else "does not exist"
        raise SpawnError("missing_directory", f"The working directory {str(directory)!r} {found}.")
    return directory


def _popen(
    words: list[str],
    program: Path,
    directory: Path,
    environment: dict[str, str],
    stdio: tuple[int, int, int],
) -> "subprocess.Popen[bytes]":
    # On Windows a .cmd shim starts only by its full name; elsewhere a program may look at how it was called.
    arguments = [str(program), *words[1:]] if sys.platform == "win32" else words
    try:
        return subprocess.Popen(
            arguments,
            executable=None if sys.platform == "win32" else program,
            cwd=directory,
            env=environment,
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            start_new_session=True,
            creationflags=NEW_GROUP,
        )
    except FileNotFoundError:
        # It exists, or it would not have been found: what is missing is the interpreter that it names.
        raise SpawnError(
            "not_executable", f"{str(program)!r} names an interpreter in its first line that does not exist."
        ) from None
    except PermissionError as error:
        raise SpawnError("not_executable", f"{str(program)!r} may not be run: {error.strerror}.") from None
    except OSError as error:
        raise SpawnError("refused", f"{str(program)!r} could not be started: {error.strerror}.") from error


def _pipes(count: int) -> list[tuple[int, int]]:
    """That many pipes, or none and an error that says why."""
    pipes: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            pipes.append(os.pipe())  # noqa: PERF401
    except OSError as error:
        _close_all({descriptor for pipe in pipes for descriptor in pipe})
        raise SpawnError(
            "refused", f"No pipes for a child process could be opened: {error.strerror}."
        ) from error
    return pipes


def _close_all(descriptors: set[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _abandon(group: Group, process: "subprocess.Popen[bytes]", owned: set[int], owner: int) -> None:
    """Kill what was never ended. A forked copy of this process does not own the children: it does nothing."""
    if os.getpid() != owner:
        return
    group.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    _close_all(owned)
