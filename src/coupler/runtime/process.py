"""Starts child processes in groups of their own and ends them without leaving orphans.

`Child` is one running program; `ProcessGroup` reaches it and all that it started by signals; `watch_exit`
reports its death at once; `Descendants` are all processes below this one, whoever started them; `RingBuffer`
keeps the last bytes of an output that may be endless.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coupler.runtime.environment import Environment, SpawnError, find_program, split_command
from coupler.runtime.guard import GuardEntry, guard_child

if sys.version_info < (3, 11, 4):
    from coupler.runtime import threads

    threads.install_timeout_backport()

READ_BYTES = 64 * 1024

# How much is still read from the stderr of a dead child, whose own children may go on writing to it.
DRAIN_BYTES = 1024 * 1024


# For Popen's creationflags, which only Windows looks at; elsewhere a new session makes a new group.
NEW_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


class Streams(NamedTuple):
    """The standard streams of a child: three pipes, unless said otherwise."""

    has_stdin: bool = True
    """False: it reads from the null device."""
    stderr_in_stdout: bool = False
    """True: what it writes to stderr comes from its stdout, in the order in which it was written."""
    keeps_stderr: bool = True
    """False: whoever spawned it takes `stderr_fd` and reads it; nothing of it is kept here."""


SEPARATE_STREAMS = Streams()


class Child:
    """A running program, made by `Child.spawn`. Belongs to the event loop that it was spawned in.

    Its stdin and stdout are file descriptors for a transport to take. Its stderr is read all the time, so
    that the child never blocks on it, and the last of it is kept for error messages. `end` leaves nothing of
    its group behind; if it is never called, the group is killed when Python exits. If we are killed
    ourselves, the guard ends it.
    """

    @classmethod
    def spawn(
        cls,
        command: str | Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Environment | Mapping[str, str | None] | None = None,
        stderr_limit: int = 64 * 1024,
        on_stderr: Callable[[bytes], None] | None = None,
        streams: Streams = SEPARATE_STREAMS,
    ) -> Child:
        """Start a program, or raise `SpawnError`.

        `env` as a mapping is ours with these overrides; `Environment.exact` gives it nothing else. The last
        `stderr_limit` bytes of stderr are kept; `on_stderr` gets all of it as it comes, in the event loop.
        """
        words = split_command(command)
        directory = _directory(cwd)
        environment = (env if isinstance(env, Environment) else Environment.inherit(env)).resolve()
        program = find_program(words[0], cwd=directory, environment=environment)
        return cls(words, program, directory, environment, RingBuffer(stderr_limit), on_stderr, streams)

    def __init__(
        self,
        words: list[str],
        program: Path,
        directory: Path,
        environment: dict[str, str],
        stderr: RingBuffer,
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

    @property
    def has_ended_itself(self) -> bool:
        """True if the child has ended, and nobody here had told it to."""
        return self.returncode is not None and not self._group.was_leader_signalled

    async def wait(self) -> int:
        """Wait until the child itself has ended; return its return code, negative for a signal."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    def interrupt(self) -> None:
        """Send SIGINT to the group, as Ctrl-C does in a terminal."""
        self._group.send(signal.SIGINT)

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
            self._guard = guard_child((child_stdin, child_stdout, child_stderr))
            try:
                self._process = _popen(words, program, directory, environment, stdio)
            except BaseException:
                self._guard.release()
                raise
            self._guard.begins(self._process.pid)
        except BaseException:
            _close_all(self._owned)
            raise
        finally:
            _close_all({child_stdin, child_stdout, child_stderr})
        self._group = ProcessGroup(self._process)
        self._safety_net = weakref.finalize(
            self, _abandon, self._group, self._process, self._owned, self._guard, os.getpid()
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
        self._drain_stderr()
        self._exited.set()
        if self._ended:
            self._forget()

    def _drain_stderr(self) -> None:
        if sys.platform == "win32" or not self._keeps_stderr:
            return
        left = DRAIN_BYTES
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
        self._drain_stderr()
        for descriptor in (self._stdin, self._stdout, self._stderr):
            self._close(descriptor)
        if self.returncode is not None:
            self._forget()

    def _forget(self) -> None:
        self._process.poll()
        self._safety_net.detach()
        self._guard.release()

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
) -> subprocess.Popen[bytes]:
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
    """Open that many pipes, or none and raise a SpawnError."""
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


def _abandon(
    group: ProcessGroup, process: subprocess.Popen[bytes], owned: set[int], guard: GuardEntry, owner: int
) -> None:
    """Kill what was never ended. A forked copy of this process does not own the children: it does nothing."""
    if os.getpid() != owner:
        return
    group.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    _close_all(owned)
    guard.release()


class ProcessGroup:
    """The group that a process leads, and its strays: processes that left it for a session of their own.

    A stray is found as long as its parents live; one that has made itself a child of init is a daemon and
    stays. Once the group was seen empty it is never signalled again: its number may belong to a stranger by
    then.
    """

    def __init__(self, leader: subprocess.Popen[bytes]) -> None:
        self.was_leader_signalled = False
        """True if the leader was still there when the group was told to end; else it had ended by itself."""
        self._leader = leader
        self._gone = False
        self._strays: set[ProcessIdentity] = set()

    async def gone(self) -> None:
        """Wait until the group has no living member, and no stray lives."""
        # No system call waits for a group, so this is one of the few places that must look again and again.
        while self.alive():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def alive(self) -> bool:
        """Return whether any member or stray lives. Reaps the leader if it has ended."""
        if not self._gone and self._leader.poll() is not None:
            self._gone = not _has_members(self._leader.pid)
        if self._gone and self._strays:
            self._strays = still_alive(self._strays)
        return not self._gone or bool(self._strays)

    def terminate(self) -> None:
        """Ask every member and stray to end."""
        if sys.platform == "win32":
            self.send(signal.CTRL_BREAK_EVENT)
        else:
            self.send(signal.SIGTERM)

    def send(self, number: int) -> None:
        """Send a signal that asks to end to every member and stray."""
        self._find_strays()
        self._signal(number)
        if sys.platform != "win32":
            self._signal(signal.SIGCONT)  # a stopped process would never see it

    def kill(self) -> None:
        """End every member and stray."""
        self._find_strays()
        if sys.platform == "win32":
            self.was_leader_signalled = self.was_leader_signalled or not _has_ended(self._leader)
            command = ["taskkill", "/F", "/T", "/PID", str(self._leader.pid)]
            subprocess.run(command, capture_output=True, check=False)
        else:
            self._signal(signal.SIGKILL)

    def _find_strays(self) -> None:
        # Once the leader is reaped its number may be a stranger's, and its children are init's.
        if self._leader.returncode is None:
            below = processes_below(self._leader.pid)
            self._strays |= {process for process in below if not self._is_member(process)}

    def _is_member(self, process: ProcessIdentity) -> bool:
        try:
            return os.getpgid(process.pid) == self._leader.pid
        except ProcessLookupError:
            return True

    def _signal(self, number: int) -> None:
        for stray in still_alive(self._strays) if self._strays else ():
            send_signal(stray, number)
        if self._gone:
            return
        self.was_leader_signalled = self.was_leader_signalled or not _has_ended(self._leader)
        try:
            if sys.platform == "win32":
                self._leader.send_signal(number)
            else:
                os.killpg(self._leader.pid, number)
        except (ProcessLookupError, PermissionError):
            # Empty, or (as macOS says it) nothing but zombies; or it is no longer ours to signal.
            self._gone = self._leader.poll() is not None


def _has_members(group: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    # Dead members count for killpg until init reaps them, and the init of many a container never does.
    return sys.platform != "linux" or any(state not in "ZX" for state in _states(group))


def _states(group: int) -> Iterator[str]:
    """The state letters of a group's members, as /proc tells them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state parent group …, where the name may hold anything, parentheses too
            state, _parent, member_of = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # ended while we looked
        if int(member_of) == group:
            yield state


ExitCallback = Callable[[int], None]


def watch_exit(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, report: ExitCallback
) -> int | None:
    """Call `report` with the return code in `loop` when the process has ended.

    Where the system allows it the dead process is left unreaped: as long as it is, no other process can get
    its number, so that a signal to its group cannot hit a stranger. Whoever watches reaps it in the end.
    Returns the descriptor that the loop watches, for the caller to close; None where a thread waits.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
        loop.add_reader(descriptor, lambda: report(_wait(process)))
    except (AttributeError, NotImplementedError, OSError):
        # Not Linux, not a selector loop, or a kernel without it.
        threading.Thread(target=_wait_in_thread, args=(process, loop, report), daemon=True).start()
        return None
    return descriptor


def _wait_in_thread(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, report: ExitCallback
) -> None:
    returncode = _wait(process)
    try:
        loop.call_soon_threadsafe(report, returncode)
    except RuntimeError:
        return  # the loop was closed: nobody is left to tell


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Block until the process has ended, leave it unreaped where possible, and return its return code."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.wait()
    try:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return process.wait()  # somebody else reaped it: Popen has a convention for that
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, and leave it unreaped where possible."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


class ProcessIdentity(NamedTuple):
    """Identifies one process uniquely: its pid may be reused, but not with the same start time."""

    pid: int
    started: str


class Descendants:
    """The processes that this one started, and those that they started, but for the spared ones and theirs.

    They are found by their parents' numbers, so they need not be in a group of ours or known to anybody. A
    process whose parent died before we looked belongs to init and is not found. On Windows none are.
    """

    def __init__(self, spared: Collection[int] = ()) -> None:
        self._spared = frozenset(spared)
        self._asked_to_end: set[ProcessIdentity] = set()

    def terminate(self) -> None:
        """Ask all of them to end."""
        found = self._living()
        self._asked_to_end |= found
        for process in found:
            send_signal(process, signal.SIGTERM)
            if sys.platform != "win32":
                send_signal(process, signal.SIGCONT)  # a stopped process would never see the SIGTERM

    def kill(self) -> None:
        """Kill all of them, and what they start meanwhile."""
        for _ in range(3):
            found = self._living()
            if not found:
                return
            for process in found:
                send_signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))

    def alive(self) -> bool:
        """Return whether any is left."""
        return bool(self._living())

    def _living(self) -> set[ProcessIdentity]:
        parents = dict(_parents())
        # A process that lost its parent since it was asked to end is no descendant any more, but ours to end.
        orphaned = self._asked_to_end & parents.keys()
        return orphaned | _below(os.getpid(), parents, self._spared)


def child_pids() -> set[int]:
    """The numbers of the living processes that this one started itself."""
    return {process.pid for process, parent in _parents() if parent == os.getpid()}


def processes_below(pid: int) -> set[ProcessIdentity]:
    """The living processes that another one started, and those that they started."""
    return _below(pid, dict(_parents()), frozenset())


def still_alive(processes: set[ProcessIdentity]) -> set[ProcessIdentity]:
    """Those that have not ended, whoever is their parent by now."""
    return processes & dict(_parents()).keys()


def send_signal(process: ProcessIdentity, number: int) -> None:
    """Signal a process that was found, unless it is gone or not ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, number)


def _below(
    ancestor: int, parents: dict[ProcessIdentity, int], spared: frozenset[int]
) -> set[ProcessIdentity]:
    children: dict[int, list[ProcessIdentity]] = {}
    for process, parent in parents.items():
        children.setdefault(parent, []).append(process)
    found: set[ProcessIdentity] = set()
    waiting = [ancestor]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child.pid not in spared and child not in found:
                found.add(child)
                waiting.append(child.pid)
    return found


def _parents() -> Iterator[tuple[ProcessIdentity, int]]:
    """Every living process with its parent's number."""
    if sys.platform == "win32":
        return
    if sys.platform == "linux":
        yield from _parents_in_proc()
    else:
        yield from _parents_by_ps()


def _parents_in_proc() -> Iterator[tuple[ProcessIdentity, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state parent … start, where the name may hold anything, parentheses too
            state, parent, *rest = stat.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX":
                yield ProcessIdentity(int(stat.parent.name), rest[17]), int(parent)
        except (OSError, ValueError, IndexError):
            continue  # ended while we looked


def _parents_by_ps() -> Iterator[tuple[ProcessIdentity, int]]:
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ps:
        listed = ps.communicate()[0].decode(errors="replace")
    for line in listed.splitlines():
        with contextlib.suppress(ValueError):
            pid, parent, state, started = line.split(maxsplit=3)
            if not state.startswith("Z") and int(pid) != ps.pid:
                yield ProcessIdentity(int(pid), started), int(parent)


class RingBuffer:
    """Keeps the last `limit` bytes of what is appended; memory stays below three times that."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._dropped = False

    def append(self, chunk: bytes) -> None:
        if len(chunk) > self._limit:
            chunk = chunk[len(chunk) - self._limit :]
            self._dropped = True
        self._kept += chunk
        # Trimming only now and then makes appending cheap for a flood of small chunks.
        if len(self._kept) > 2 * self._limit:
            self._trim()

    @property
    def is_cut(self) -> bool:
        """True if the beginning was dropped."""
        return self._dropped or len(self._kept) > self._limit

    def text(self) -> str:
        """The kept bytes as text. Without its beginning it starts with a whole line, or character."""
        kept = self._whole_characters()
        if self._dropped and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]
        return kept.decode("utf-8", "replace")

    def tail(self, *, is_final: bool) -> str:
        """As much of the end as fits the limit, also when it is encoded again, from a whole character on.

        Unless it is final, the last character may not be there yet, and is left out.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(self._whole_characters(), is_final)
        encoded = text.encode()
        if len(encoded) <= self._limit:
            return text
        # What is no text was replaced by something longer.
        self._dropped = True
        cut = encoded[len(encoded) - self._limit :]
        return cut[torn_character_bytes(cut) :].decode()

    def last(self, most: int) -> str:
        """At most so many bytes of the end as text; a last character that is not there yet is left out."""
        cut = bytes(self._kept[-min(most, self._limit) :])
        is_whole = not self._dropped and len(cut) == len(self._kept)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(cut if is_whole else cut[torn_character_bytes(cut) :])

    def _whole_characters(self) -> bytes:
        if len(self._kept) > self._limit:
            self._trim()
        kept = bytes(self._kept)
        return kept[torn_character_bytes(kept) :] if self._dropped else kept

    def _trim(self) -> None:
        del self._kept[: -self._limit]
        self._dropped = True


def torn_character_bytes(kept: bytes) -> int:
    """Count the bytes at the beginning that belong to a character which began before them."""
    begins = (index for index, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80)
    return next(begins, len(kept) if len(kept) < 4 else 0)


EXCERPT_LENGTH = 2000
"""Characters of the end of an output that an error quotes."""


def last_lines(output: str, limit: int = EXCERPT_LENGTH) -> str:
    """Return the end of an output in whole lines; of a last line that is too long, its last words."""
    output = output.strip()
    if len(output) <= limit:
        return output
    cut = output[-limit:]
    if output[-limit - 1].isspace():
        return cut.lstrip()
    for separators in ("\n", " \t"):
        begins = min((index for each in separators if (index := cut.find(each)) >= 0), default=-1)
        if begins >= 0 and (separators == "\n" or begins <= limit // 2):
            return ("" if separators == "\n" else "… ") + cut[begins:].lstrip()
    return f"…{cut}"
