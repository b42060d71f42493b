"""Ends our child processes when we die without having ended them, as after a SIGKILL.

The guard is a shell that waits for the end of a pipe whose other end only we hold; one for all our children.
It is told of a child before that is started, and then knows it by the pipes that will be its standard
streams. So no child runs unknown to it, in whatever moment we die. Then it ends the child's process group,
and what left the group for a session of its own: all that descends from a living child, or has one of the
child's pipes as a standard stream. Of what has cut itself off from both nothing is known: it is a daemon and
stays, as it does when a child is ended by us. Where there is no /proc, a child is known from the moment in
which it has a number. Windows has no process groups, and no guard.

As long as a guard lives it holds locks on the files that `lock_while_guarding` has named. So others can see
whether something of a process that was killed is left.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

GUARD_SCRIPT = """
trap '' HUP INT QUIT TERM
keys=' '
while read -r what key value; do
    case $what$keys in
    end*" $key "*)
        keys="${keys%% $key *} ${keys#* $key }"
        unset "pipes_$key" "group_$key" "file_$key" ;;
    end*) ;;
    *" $key "*) eval "${what}_$key=\\$value" ;;
    *) keys="$keys$key "; eval "${what}_$key=\\$value" ;;
    esac
done
[ "$keys" = ' ' ] && exit 0

groups=' ' pipes=' ' found=
for key in $keys; do
    eval "groups=\\"\\$groups\\$group_$key \\" pipes=\\"\\$pipes\\$pipes_$key \\""
done

# Prints number, parent, group and start of every living process.
list() {
    if [ -r /proc/self/stat ]; then
        for stat in /proc/[0-9]*/stat; do
            read -r line <"$stat" || continue
            pid=${stat#/proc/}
            set -- ${line##*) }
            case $1 in Z|X) ;; *) echo "${pid%/stat} $2 $3 ${20}" ;; esac
        done
    else
        ps -A -o pid=,ppid=,pgid=,stat=,lstart= | while read -r pid parent group state start; do
            case $state in Z*) ;; *) echo "$pid $parent $group $(echo "$start" | tr -s ' ' _)" ;; esac
        done
    fi
}

# Adds to `found` who is in a group or holds a pipe of our children, and all that descends from those.
find_all() {
    known=' '
    for process in $found; do known="$known${process%%:*} "; done
    links=$(ls -l /proc/[0-9]*/fd/[012] | grep -F ' -> pipe:[')
    while read -r link; do
        pid=${link#*/proc/} pipe=${link##*\\[}
        case $pipes in *" ${pipe%]} "*) known="$known${pid%%/*} " ;; esac
    done <<LINKS
$links
LINKS
    listed=$(list)
    more=yes
    while [ "$more" ]; do
        more=
        while read -r pid parent group start; do
            case $known in *" $pid "*) continue ;; esac
            case "$known/$groups" in *" $parent "*/*|*/*" $group "*) known="$known$pid " more=yes ;; esac
        done <<LISTED
$listed
LISTED
    done
    while read -r pid parent group start; do
        case $known in *" $pid "*) ;; *) continue ;; esac
        case "$found " in *" $pid:$start "*) ;; *) found="$found $pid:$start" ;; esac
    done <<LISTED
$listed
LISTED
}

# Keeps of `found` those that live: a number may be a stranger's by now, but not with the same start.
look_again() {
    listed=$(list) living=
    while read -r pid parent group start; do
        case $groups in *" $group "*) living="$living $pid:$start"; continue ;; esac
        case "$found " in *" $pid:$start "*) living="$living $pid:$start" ;; esac
    done <<LISTED
$listed
LISTED
    found=$living
}

send() {
    for group in $groups; do kill -s "$1" -- "-$group"; done
    for process in $found; do kill -s "$1" "${process%%:*}"; done
}

find_all
send TERM
send CONT
for key in $keys; do
    eval "[ \\"\\$file_$key\\" ] && rm -f -- \\"\\$file_$key\\""
done
tries=0
while [ $tries -lt 20 ]; do
    sleep 0.05
    look_again
    [ "$found" ] || exit 0
    tries=$((tries + 1))
done
find_all
send KILL
tries=0
while [ $tries -lt 40 ]; do
    look_again
    [ "$found" ] || exit 0
    sleep 0.05
    tries=$((tries + 1))
done
"""
"""Shell script that reads from the pipe what there is to end and to remove, under a number for each.

Once we are gone it asks the processes that are left to end, removes the files, kills the processes a second
later, and stays until they are dead; two seconds at the most, for one that is stuck in the kernel.
"""


class GuardEntry:
    """Something that the guard ends or removes when we die, until it is released."""

    def __init__(self, guard: _Guard, **facts: object) -> None:
        self._guard = guard
        self._number = guard.add(facts)

    def begins(self, group: int) -> None:
        """Name the group of a child that was started."""
        self._guard.tell(self._number, "group", group)

    def release(self) -> None:
        """Say that it has ended, or is gone. A second call does nothing."""
        self._guard.remove(self._number)


def guard_child(streams: Iterable[int]) -> GuardEntry:
    """Guard the child that will be started with these ends of pipes as its standard streams."""
    return GuardEntry(_GUARD, pipes=" ".join(str(os.fstat(each).st_ino) for each in streams))


def start_guarded(command: Sequence[str], **options: Any) -> tuple[subprocess.Popen[bytes], GuardEntry]:
    """Start a program in a session of its own, with a pipe as its stdout; raises `OSError`.

    The options are those of `Popen`. Release the entry when the program and what it started have ended.
    """
    stdout, its_stdout = os.pipe()
    entry = guard_child([its_stdout])
    try:
        process = subprocess.Popen(command, stdout=its_stdout, start_new_session=True, **options)
    except BaseException:
        entry.release()
        os.close(stdout)
        raise
    finally:
        os.close(its_stdout)
    entry.begins(process.pid)
    process.stdout = open(stdout, "rb", 0)  # noqa: PTH123 - it is open already
    return process, entry


@contextlib.contextmanager
def guarded_file(path: str) -> Iterator[None]:
    """Have a file removed if we die inside of the `with` block."""
    entry = GuardEntry(_GUARD, file=path)
    try:
        yield
    finally:
        entry.release()


@contextlib.contextmanager
def one_guard_for_all() -> Iterator[None]:
    """Keep the guard's shell inside of the `with` block; else it ends with the last child."""
    entry = GuardEntry(_GUARD)
    try:
        yield
    finally:
        entry.release()


def lock_while_guarding(path: str) -> None:
    """Have the guard hold a lock on this file for as long as it lives, which may be longer than we do."""
    _GUARD.lock(path)


def stop_locking(path: str) -> None:
    """Remove the file that `lock_while_guarding` has named."""
    _GUARD.unlock(path)


def is_locked_by_guard(path: str) -> bool:
    """Return whether a guard lives, here or of another process, that was told to lock this file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


class _Guard:
    """The guard of this process: its shell is started for the first entry and ended with the last one."""

    def __init__(self) -> None:
        # Garbage that is collected meanwhile may release an entry.
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._entries: dict[int, dict[str, object]] = {}
        self._shell: _Shell | None = None
        self._locked_files: set[str] = set()

    def lock(self, path: str) -> None:
        with self._lock:
            self._locked_files.add(path)
            if self._shell is not None:
                self._start_shell()

    def unlock(self, path: str) -> None:
        with self._lock:
            self._locked_files.discard(path)
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - pathlib is not needed for one name

    def add(self, facts: dict[str, object]) -> int:
        with self._lock:
            number = next(self._numbers)
            self._entries[number] = facts
            self._write("".join(_line(what, number, fact) for what, fact in facts.items()))
            return number

    def tell(self, number: int, what: str, fact: object) -> None:
        with self._lock:
            if number in self._entries:
                self._entries[number][what] = fact
                self._write(_line(what, number, fact))

    def remove(self, number: int) -> None:
        with self._lock:
            if self._entries.pop(number, None) is None or self._shell is None:
                return
            if self._entries:
                self._shell.write(f"end {number}\n")
            else:
                self._shell.dismiss()
                self._shell = None

    def forget(self) -> None:
        """Leave everything to the process that we are a fork of."""
        self._lock = threading.RLock()
        self._entries = {}
        self._locked_files = set()
        if self._shell is not None:
            self._shell.dismiss()
            self._shell = None

    def _write(self, lines: str) -> None:
        if not lines or (self._shell is not None and self._shell.write(lines)):
            return
        # One that has died, or does not read, is replaced.
        self._start_shell()

    def _start_shell(self) -> None:
        """Start a shell that is told everything, in place of the one that there is."""
        earlier, self._shell = self._shell, _Shell.start(self._locked_files)
        if earlier is not None:
            earlier.dismiss()
        if self._shell is not None:
            known = [*self._entries.items()]
            told = [_line(what, number, fact) for number, entry in known for what, fact in entry.items()]
            self._shell.write("".join(told))


def _line(what: str, number: int, fact: object) -> str:
    return f"{what} {number} {fact}\n"


class _Shell:
    """A shell in a session of its own, which outlives us; the end of a pipe tells it of our death."""

    @classmethod
    def start(cls, locked_files: Iterable[str]) -> Self | None:
        """Start the shell, which holds locks on these files; None where there is none."""
        if not hasattr(os, "killpg"):
            return None
        try:
            read_end, write_end = os.pipe()
        except OSError:
            return None
        locks = [descriptor for path in locked_files if (descriptor := _locked(path)) is not None]
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", GUARD_SCRIPT, "coupler-guard"],
                cwd="/",
                # It outlives us, and has no use for the keys among our variables.
                env={"PATH": os.environ.get("PATH", os.defpath)},
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=locks,
            )
        except OSError:
            os.close(write_end)
            return None
        finally:
            for descriptor in (read_end, *locks):
                os.close(descriptor)
        return cls(process, write_end)

    def __init__(self, process: subprocess.Popen[bytes], write_end: int) -> None:
        self._write_end = write_end
        # Nobody waits for a shell that does not listen.
        os.set_blocking(write_end, False)
        self.dismiss = weakref.finalize(self, _dismiss, process, write_end, os.getpid())
        """Ends the shell before it acts. A second call does nothing."""

    def write(self, lines: str) -> bool:
        """Write lines to the shell; False if it does not read any more."""
        try:
            os.write(self._write_end, os.fsencode(lines))
        except OSError:
            return False
        return True


def _locked(path: str) -> int | None:
    """Open a file with a lock that holds while any copy of the descriptor is open; None if it fails."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    # Shared with the shell that this one replaces; those who look have it for a moment only.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _dismiss(process: subprocess.Popen[bytes], write_end: int, owner: int) -> None:
    """Kill the shell; in a forked copy of its owner only close the pipe."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
    else:
        process.returncode = 0  # not ours to wait for
    os.close(write_end)


_GUARD = _Guard()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GUARD.forget)
