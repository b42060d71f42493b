"""Passes the bytes of two peers on unchanged, and records them on the way.

A `Tap` starts the agent and passes its three streams on; a `RecordingFeed` takes what passed and gives it to
the process that writes the recording; `open_recording` makes the file. A recording never overwrites another,
because an editor starts the same command again and again. Imports as little as possible, because an editor
waits for the agent behind it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from coupler.runtime.directories import data_directory
from coupler.runtime.guard import start_guarded

if TYPE_CHECKING:
    from coupler.runtime.process import ProcessGroup

READ_SIZE = 64 * 1024
"""Bytes that are passed on at once: what a pipe holds."""

GRACE = 1.0
"""Seconds between asking the agent's processes to end, and ending them."""

DRAIN_SILENCE = 0.5
"""Seconds without a byte after which the output of a dead agent is over, though somebody holds it open."""

POLL_INTERVAL = 0.25
"""Seconds between two looks at whether an editor that has closed our stdin still reads our stdout."""

DISCONNECTED_GRACE = 5.0
"""Seconds that an agent may still run after both its input and its output have ended."""

STDIN, STDOUT, STDERR = 0, 1, 2

WINDOWS = sys.platform == "win32"

MOST_WAITING = 128 * 1024 * 1024
"""Bytes that may wait for the disk before more of them are left out of the file."""

FINISH_LIMIT = 2.0
"""Seconds that `finish` waits for the last bytes to get into the file."""

PIPE_BYTES = 1024 * 1024
"""Bytes that the pipe to the writing process holds, where the system allows to set it."""

CAN_WRITE_AT_ONCE = os.name == "posix"
"""True if pipes can be made non-blocking on this system."""

INCOMPLETE = 3
"""The exit code of a writing process that had to leave something out."""

RecordKind: TypeAlias = bytes
"""Kinds: bytes of client, agent, stderr: c, a, e; their ends: C, A, E; gap: g; header: h; exit: x."""

RECORD = struct.Struct("<dcI")
"""Head of a record: its time, its kind, and the number of bytes that follow."""

GAP = struct.Struct("<cQQ?")
"""Content of a gap: the stream, the lost bytes and line ends, and whether the last byte was one."""

LAUNCHERS = frozenset(
    {"bun", "bunx", "coupler", "deno", "env", "node", "npm", "npx", "pipx", "pnpx", "python", "ruby", "sh"}
    | {"bash", "uv", "uvx", "yarn"}
)
"""Programs that start others, and their subcommands: the agent's name comes after them."""

LAUNCHING_WORDS = frozenset({"acp", "dlx", "exec", "run", "serve", "start", "tool", "x"})

_UNFIT = re.compile(r"[^A-Za-z0-9._]+")
_VERSION = re.compile(r"(?<=.)@.*|[\d.]+$")
_LONGEST_NAME = 40
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh", ".exe", ".cmd")


class RecordingFileError(Exception):
    """A file for a recording cannot be made."""


class Tap:
    """Runs an agent's process, and passes its three streams on. Belongs to the main thread.

    Three threads each read one pipe and write another, and block where the peers would: so back-pressure, and
    pipes that are closed by half or broken, mean on either side what they mean without a tap. Nothing is
    understood here, and nothing here waits for the recording. The process ends as the agent does, with its
    exit code, and leaves nothing of it running.
    """

    def __init__(self, command: list[str], feed: RecordingFeed) -> None:
        """Start the agent; raises OSError."""
        self._began = time.monotonic()
        self._early_signals: list[int] = []
        self._ending: threading.Timer | None = None
        self._pumps: tuple[Pump, ...] = ()
        self._group: ProcessGroup | None = None
        self._handle_signals()
        self._process, self._guard = start_guarded(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._feed = feed
        self.is_recorded: bool | None = False
        """True if the file is complete, once the agent has ended; None if it is still being written."""
        assert self._process.stdin and self._process.stdout and self._process.stderr
        agent = [pipe.fileno() for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)]
        self._pumps = (
            Pump(STDIN, agent[0], b"c", self._note),
            Pump(agent[1], STDOUT, b"a", self._note),
            Pump(agent[2], STDERR, b"e", self._note, gives_up=False),
        )
        for number in self._early_signals:
            self._end(number)

    def run(self) -> int:
        """Pass everything on until the agent has ended; returns its exit code, as a shell would give it."""
        client, *outputs = self._pumps
        for pump in self._pumps:
            pump.start()
        threading.Thread(target=self._leave_with_client, args=(client,), daemon=True).start()
        self._wait_for_exit()
        for pump in outputs:
            pump.drain()
        self._end_the_rest()
        self._guard.release()
        code = self._process.wait()
        self.is_recorded = self._feed.finish(self._now(), code)
        return code if code >= 0 else 128 - code

    def _note(self, kind: RecordKind, data: bytes = b"") -> None:
        self._feed.note(self._now(), kind, data)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _handle_signals(self) -> None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda number, frame: self._end(number))

    def _end(self, number: int) -> None:
        """Forward the signal to the agent and all that it started, and kill what ignores it."""
        if not self._pumps:
            self._early_signals.append(number)  # the agent is just being started
            return
        self._signal(number)
        if self._ending is None:
            self._ending = threading.Timer(GRACE, self._kill)
            self._ending.daemon = True
            self._ending.start()

    def _kill(self) -> None:
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        # Nobody may read what is still to be passed on.
        for pump in self._pumps:
            pump.stop()

    def _signal(self, number: int) -> None:
        if WINDOWS:
            with contextlib.suppress(OSError):
                self._process.send_signal(number)
            return
        # Rare, so it may cost an import.
        from coupler.runtime.process import ProcessGroup

        if self._group is None:
            self._group = ProcessGroup(self._process)
        self._group.send(number)

    def _leave_with_client(self, client: Pump) -> None:
        """End the agent when the client has closed both its output and its input."""
        client.join()
        if WINDOWS:
            return
        output = self._pumps[1]
        poll = select.poll()
        poll.register(STDOUT, 0)  # only that nobody reads it any more
        # Looked at again and again: a call that waits for it would hold the pipe open itself.
        while output.is_alive():
            if poll.poll(POLL_INTERVAL * 1000):
                self._end(signal.SIGTERM)
                return
        time.sleep(DISCONNECTED_GRACE)
        self._end(signal.SIGTERM)

    def _wait_for_exit(self) -> None:
        """Wait, and leave the dead process unreaped, so that its number and its group's are not reused."""
        if not hasattr(os, "waitid"):
            self._process.wait()
            return
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _end_the_rest(self) -> None:
        """End what the agent started and left behind."""
        self._process.wait()
        if WINDOWS:
            return
        if self._group is None:
            try:
                os.killpg(self._process.pid, 0)
            except OSError:
                return
        self._signal(signal.SIGTERM)
        assert self._group is not None
        deadline = time.monotonic() + GRACE
        while self._group.alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._group.kill()


class Pump(threading.Thread):
    """Reads one descriptor and writes another, until either ends."""

    def __init__(
        self, source: int, target: int, kind: RecordKind, note: Callable[..., None], *, gives_up: bool = True
    ) -> None:
        """Prepare a pump; with `gives_up` the end of one side ends the other, but not for our own stderr."""
        super().__init__(name=f"coupler-tap-{kind.decode()}", daemon=True)
        self.is_broken = False
        self._source = source
        self._target = target
        self._kind = kind
        self._note = note
        self._gives_up = gives_up
        self._done = threading.Event()
        self._last_read = time.monotonic()
        self._is_writing = False

    def run(self) -> None:
        kind = self._kind
        try:
            while data := self._read():
                # First noted, then passed on: an answer to it must not be noted before it.
                self._note(kind, data)
                self._write(data)
                if self.is_broken and self._gives_up:
                    break
            self._note(kind.upper())
        finally:
            if self._gives_up:
                close_descriptor(self._target)
                if self.is_broken:
                    close_descriptor(self._source)
            self._done.set()

    def drain(self) -> None:
        """Wait until a dead process's last bytes were passed on."""
        while not self._done.wait(DRAIN_SILENCE):
            if not self._is_writing and time.monotonic() - self._last_read > DRAIN_SILENCE:
                return

    def stop(self) -> None:
        """Stop waiting for the pump."""
        self._done.set()

    def _read(self) -> bytes:
        while True:
            try:
                data = os.read(self._source, READ_SIZE)
            except BlockingIOError:
                # Whoever shares the descriptor with us wants it so.
                select.select([self._source], [], [])
                continue
            except OSError:
                return b""
            self._last_read = time.monotonic()
            return data

    def _write(self, data: bytes) -> None:
        if self.is_broken:
            return
        self._is_writing = True
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:
                select.select([], [self._target], [])
            except OSError:
                self.is_broken = True
                break
        self._last_read = time.monotonic()
        self._is_writing = False


def open_missing_streams() -> None:
    """Put the null device where a standard stream is closed, or else a file would get its number."""
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def close_descriptor(descriptor: int) -> None:
    """Close a descriptor; a standard one is put to the null device, so that no file can get its number."""
    with contextlib.suppress(OSError):
        if descriptor > STDERR:
            os.close(descriptor)
            return
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, descriptor)
        os.close(null)


def exit_at_once(code: int) -> NoReturn:
    """Exit without waiting for threads, one of which may be blocked in a pipe."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be no stderr at all
        sys.stderr.flush()
    os._exit(code)


class Gap(NamedTuple):
    """Counts what is missing of one stream."""

    size: int = 0
    lines: int = 0
    ends_line: bool = True

    def with_more(self, data: bytes) -> Gap:
        ends_line = data.endswith(b"\n") if data else self.ends_line
        return Gap(self.size + len(data), self.lines + data.count(b"\n"), ends_line)


class RecordingFeed:
    """Feeds what passed to the process that writes the recording. Can be used from any thread.

    Whoever passes bytes on notes them here and goes on, in microseconds and whatever the disk does. They go
    to a process of its own, which understands, masks and writes them; so the work takes no time from those
    who pass bytes on, a fault in it cannot reach them, and their violent end loses nothing that was noted.
    Only what its pipe does not hold waits for a thread: one that ran for each note would take the
    interpreter's lock away.
    """

    def __init__(self, limit: int = MOST_WAITING) -> None:
        self._limit = limit
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._last = 0.0
        self._gaps: dict[bytes, Gap] = {}
        self._change = threading.Condition()
        self._is_over = False
        self._has_lost = False
        self._is_feeding = False
        self._writer: subprocess.Popen[bytes] | None = None

    @property
    def waiting(self) -> int:
        """Bytes that wait for the disk."""
        return self._size

    def start(self, file: int, header: bytes) -> None:
        """Begin to write to an open file, also what was noted before; raises OSError.

        `header` is for the writing process, which reads it as `RecordingHeader`.
        """
        try:
            writer = _start_writer(file)
        except OSError:
            self._give_up()
            raise
        with self._change:
            before, self._waiting = self._waiting, deque()
            self._size = 0
            self._writer = writer
            # Now and not by the thread: what follows must not have to wait for that one to run.
            for record in (_record(0.0, b"h", header), *before):
                self._send(record)
        threading.Thread(target=self._feed, args=(self._writer,), daemon=True).start()

    def note(self, at: float, kind: RecordKind, data: bytes = b"") -> None:
        """Keep this for the file, or count it as missing if too much is waiting already."""
        with self._change:
            if self._size + len(data) > self._limit:
                self._gaps[kind.lower()] = self._gaps.get(kind.lower(), Gap()).with_more(data)
                self._has_lost = True
                return
            stream = kind.lower()
            if stream in self._gaps:
                self._put(at, b"g", GAP.pack(stream, *self._gaps.pop(stream)))
            self._put(at, kind, data)

    def finish(self, at: float, exit_code: int | None = None, patience: float = FINISH_LIMIT) -> bool | None:
        """End the recording, and wait for the file, but not for long.

        True if all of it is in the file, False if something is missing, None if it is still being written.
        """
        with self._change:
            for kind, gap in self._gaps.items():
                self._put(at, b"g", GAP.pack(kind, *gap))
            self._put(at, b"x", b"" if exit_code is None else b"%d" % exit_code)
            self._is_over = True
            self._change.notify()
        if self._writer is None:
            return False
        try:
            return self._writer.wait(patience) == 0 and not self._has_lost
        except subprocess.TimeoutExpired:
            return False if self._has_lost else None  # it goes on without us

    def _put(self, at: float, kind: RecordKind, data: bytes) -> None:
        # Two threads may come in another order than they looked at the clock.
        self._last = max(at, self._last)
        self._send(_record(self._last, kind, data))

    def _send(self, record: bytes) -> None:
        rest = record[self._write_at_once(record) :]
        if rest:
            self._waiting.append(rest)
            self._size += len(rest)
            self._change.notify()

    def _write_at_once(self, record: bytes) -> int:
        """Write what the pipe takes, and count it: nothing while other notes wait, which come first."""
        if self._writer is None or self._waiting or self._is_feeding or not CAN_WRITE_AT_ONCE:
            return 0
        assert self._writer.stdin is not None
        try:
            return os.write(self._writer.stdin.fileno(), record)
        except BlockingIOError:
            return 0
        except (OSError, ValueError):  # it died; the thread will notice
            return 0

    def _feed(self, writer: subprocess.Popen[bytes]) -> None:
        pipe = writer.stdin
        assert pipe is not None
        # A writing process that has died takes nothing more, and nobody misses what is read here.
        with contextlib.suppress(OSError):
            while piece := self._take():
                view = memoryview(piece)
                while view:
                    try:
                        view = view[os.write(pipe.fileno(), view) :]
                    except BlockingIOError:
                        select.select([], [pipe], [])
        self._give_up()
        with contextlib.suppress(OSError):
            pipe.close()

    def _give_up(self) -> None:
        """Drop what waits, and keep nothing any more."""
        with self._change:
            self._limit = -1
            self._waiting.clear()

    def _take(self) -> bytes:
        """The next bytes to feed; none when the recording is over."""
        with self._change:
            self._is_feeding = False
            while not self._waiting:
                if self._is_over:
                    return b""
                self._change.wait()
            pieces = [self._waiting.popleft()]
            size = len(pieces[0])
            while self._waiting and size < PIPE_BYTES:
                pieces.append(self._waiting.popleft())
                size += len(pieces[-1])
            self._size -= size
            self._is_feeding = True
            return b"".join(pieces)


def _record(at: float, kind: RecordKind, data: bytes) -> bytes:
    return RECORD.pack(at, kind, len(data)) + data


def _start_writer(file: int) -> subprocess.Popen[bytes]:
    """Start the writing process in a session of its own.

    What ends us by a signal to our group does not end it before its work is done. -P keeps the directory that
    an editor started us in off the module path.
    """
    writer = subprocess.Popen(
        [sys.executable, "-P", "-m", "coupler.recording.writer"],
        stdin=subprocess.PIPE,
        stdout=file,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
    assert writer.stdin is not None
    if CAN_WRITE_AT_ONCE:
        os.set_blocking(writer.stdin.fileno(), False)
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(writer.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return writer


def default_recording_path(command: list[str]) -> str:
    """Return a file in the user's own directory, named after the time and the agent; raises NoHomeError."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{agent_name(command)}.ndjson"
    return os.path.join(data_directory(), "recordings", name)


def agent_name(command: list[str]) -> str:
    """Name the agent of a command, for people: `npx -y @vendor/some-agent --acp` is some-agent."""
    fallback = name = _plain(command[0])
    for word in command:
        name = _plain(word)
        if name and not word.startswith("-") and not _is_launcher(name):
            return name
    return fallback or "agent"


def open_recording(path: str) -> tuple[int, str]:
    """Open a new file; returns a descriptor and the path, which gets a number if there is such a file."""
    path = os.path.abspath(path)
    try:
        _make_directory(os.path.dirname(path))
        if os.path.isdir(path):
            raise RecordingFileError(f"{path} is a directory: name a file in it")
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            # A named pipe: reading too, or else opening it waits for a reader; nor does writing wait for one.
            return os.open(path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0)), path
        return _open_new(path)
    except OSError as error:
        raise RecordingFileError(f"{path} cannot be written: {error.strerror}") from None


def _open_new(path: str) -> tuple[int, str]:
    stem, extension = os.path.splitext(path)
    number = 1
    while True:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600), path
        except FileExistsError:
            number += 1
            path = f"{stem}-{number}{extension}"


def _make_directory(directory: str) -> None:
    """Make our own directory, for its user alone; any other has to be there."""
    try:
        ours = os.path.join(data_directory(), "recordings")
    except OSError:
        return
    if directory == ours:
        os.makedirs(directory, mode=0o700, exist_ok=True)


def _plain(word: str) -> str:
    """Return the last part of a path or a package's name, without file suffix and version."""
    name = word.replace("\\", "/").rstrip("/").rpartition("/")[2].partition(":")[0]
    for extension in _SCRIPTS:
        name = name.removesuffix(extension)
    name = _VERSION.sub("", name) if "@" in name[1:] else name
    return _UNFIT.sub("-", name).strip("-.")[:_LONGEST_NAME]


def _is_launcher(name: str) -> bool:
    return name.rstrip("0123456789.") in LAUNCHERS or name in LAUNCHING_WORDS
