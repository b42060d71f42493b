"""A guard: ends a process group when we are gone and have not ended it, as after a SIGKILL.

It is a shell that waits for the end of a pipe whose other end only we hold. Then it lets the group end by
itself, for a program sees that nobody talks to it any more, asks it to, and kills it. Who has left the group
for a session of its own is not found. Windows has no such groups, and no guards.
"""

import os
import subprocess
import weakref
from typing import Self

from coupler.process.sentry import dismiss_sentry, start_sentry

SCRIPT = """
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
"""A second to end by itself, and a second after it was asked to."""


class Guard:
    """Watches over one group until it is dismissed."""

    @classmethod
    def over(cls, group: int) -> Self | None:
        """A guard, or None where there is no shell to be one."""
        started = start_sentry(SCRIPT, "coupler-guard", str(group))
        return None if started is None else cls(*started)

    def __init__(self, process: "subprocess.Popen[bytes]", write_end: int) -> None:
        self.dismiss = weakref.finalize(self, dismiss_sentry, process, write_end, os.getpid())
        """The group has ended, and nobody has to watch over it. A second call does nothing."""
