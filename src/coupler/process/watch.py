"""A watch: ends process groups when we are gone and have not ended them, as after a SIGKILL.

It is one shell for many groups that come and go, where a guard for each would cost a second process each. It
reads from a pipe whose other end only we hold which groups there are; at the end of the pipe it ends those
that are left, and removes the files that they were run from. Windows has no such groups, and no watch.
"""

import contextlib
import os
import subprocess
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from coupler.process.sentry import dismiss_sentry, start_sentry

SCRIPT = """
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
"""A second after they were asked to end they are killed."""


class Watch:
    """Watches over groups until it is closed; its shell is started with the first of them."""

    def __init__(self) -> None:
        self._shell: _Shell | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left to watch over. It may be used again."""
        if self._shell is not None:
            self._shell.dismiss()
        self._shell = None

    def expect(self, file: str) -> None:
        """Watch over the file that the next group will be run from, before anything is in it."""
        self._tell(f"next - {file}\n")

    @contextlib.contextmanager
    def over(self, group: int, file: str) -> Iterator[None]:
        """Watch over a group meanwhile, and over the file that it was run from."""
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
    @classmethod
    def start(cls) -> Self | None:
        """A shell that listens, or None where there is none."""
        started = start_sentry(SCRIPT, "coupler-watch")
        return None if started is None else cls(*started)

    def __init__(self, process: "subprocess.Popen[bytes]", write_end: int) -> None:
        self._write_end = write_end
        # Nobody waits for a shell that does not listen.
        os.set_blocking(write_end, False)
        self.dismiss = weakref.finalize(self, dismiss_sentry, process, write_end, os.getpid())
        """A second call does nothing."""

    def tell(self, change: str) -> bool:
        """Say a line; whether it can be heard."""
        try:
            os.write(self._write_end, os.fsencode(change))
        except OSError:
            return False
        return True
