"""Ends child process groups when this process dies without having ended them, as after a SIGKILL.

A guard is a shell that waits for the end of a pipe whose other end only we hold. `GroupGuard` watches one
group. `SharedGroupGuard` watches many that come and go with one shell, where a guard for each would cost a
second process each. A process that has left its group for a session of its own is not found. Windows has no
such groups, and no guards.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Self

GUARD_SCRIPT = """
trap '' HUP INT QUIT TERM
read -r never
for signal in TERM KILL; do
    tries=0
    while [ $tries -lt 20 ]; do
        kill -s 0 -- "-$1" 2>/dev/null || exit 0
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -s $signal -- "-$1" 2>/dev/null
done
"""
"""Shell script that gives the group a second to end by itself once we are gone, as its input ends.

Then it is asked to end, and a second later it is killed.
"""


class GroupGuard:
    """Watches over one group until it is dismissed."""

    @classmethod
    def over(cls, group: int) -> Self | None:
        """Start a guard for a group; None where there is no shell to be one."""
        started = start_guard_shell(GUARD_SCRIPT, "coupler-guard", str(group))
        return None if started is None else cls(*started)

    def __init__(self, process: subprocess.Popen[bytes], write_end: int) -> None:
        self.dismiss = weakref.finalize(self, dismiss_guard_shell, process, write_end, os.getpid())
        """Ends the guard, because the group has ended. A second call does nothing."""


SHARED_GUARD_SCRIPT = """
trap '' HUP INT QUIT TERM
groups=' '
next=
while read -r change group file; do
    case $change in
    next) next=$file ;;
    begins) groups="$groups$group "; eval "file_$group=\\$file"; next= ;;
    ends) groups="${groups%% $group *} ${groups#* $group }"; unset "file_$group" ;;
    esac
done
[ "$next" ] && rm -f -- "$next"
for group in $groups; do
    kill -s TERM -- "-$group"
    kill -s CONT -- "-$group"
    eval "rm -f -- \\"\\$file_$group\\""
done
tries=0
while [ $tries -lt 20 ]; do
    living=
    for group in $groups; do kill -s 0 -- "-$group" && living=yes; done
    [ "$living" ] || exit 0
    sleep 0.05
    tries=$((tries + 1))
done
for group in $groups; do kill -s KILL -- "-$group"; done
"""
"""Shell script that reads from the pipe which groups begin and end.

Once we are gone it asks those that are left to end, removes the files that they were run from, and kills the
groups a second later.
"""


class SharedGroupGuard:
    """Watches over many groups until it is closed; its shell is started with the first of them."""

    def __init__(self) -> None:
        self._shell: _Shell | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching. It may be used again."""
        if self._shell is not None:
            self._shell.dismiss()
        self._shell = None

    def expect(self, file: str) -> None:
        """Watch over the file that the next group will be run from, before anything is in it."""
        self._tell(f"next - {file}\n")

    @contextlib.contextmanager
    def over(self, group: int, file: str) -> Iterator[None]:
        """Watch over a group inside of the `with` block, and over the file that it was run from."""
        self._tell(f"begins {group} {file}\n")
        try:
            yield
        finally:
            if self._shell is not None:
                self._shell.tell(f"ends {group}\n")

    def _tell(self, change: str) -> None:
        if self._shell is None or not self._shell.tell(change):
            self._shell = _Shell.start()
            if self._shell is not None:
                self._shell.tell(change)


class _Shell:
    """The shell of a `SharedGroupGuard`, and the pipe to it."""

    @classmethod
    def start(cls) -> Self | None:
        """Start the shell; None where there is none."""
        started = start_guard_shell(SHARED_GUARD_SCRIPT, "coupler-watch")
        return None if started is None else cls(*started)

    def __init__(self, process: subprocess.Popen[bytes], write_end: int) -> None:
        self._write_end = write_end
        # Nobody waits for a shell that does not listen.
        os.set_blocking(write_end, False)
        self.dismiss = weakref.finalize(self, dismiss_guard_shell, process, write_end, os.getpid())
        """Ends the shell. A second call does nothing."""

    def tell(self, change: str) -> bool:
        """Write a line to the shell; False if it does not read any more."""
        try:
            os.write(self._write_end, os.fsencode(change))
        except OSError:
            return False
        return True


def start_guard_shell(script: str, name: str, *words: str) -> tuple[subprocess.Popen[bytes], int] | None:
    """Start a shell in a session of its own, which outlives us and learns of our death by the end of a pipe.

    Returns its process and the write end of the pipe that it reads; None where there is no shell.
    """
    if not hasattr(os, "killpg"):
        return None
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script, name, *words],
            cwd="/",
            # It outlives us, and has no use for the keys among our variables.
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        os.close(write_end)
        return None
    finally:
        os.close(read_end)
    return process, write_end


def dismiss_guard_shell(process: subprocess.Popen[bytes], write_end: int, owner: int) -> None:
    """Kill the guard before it acts; in a forked copy of its owner only close the pipe."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
    os.close(write_end)
