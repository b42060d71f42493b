"""A guard: ends a process group when we are gone and have not ended it, as after a SIGKILL.

It is a shell that waits for the end of a pipe whose other end only we hold. Then it lets the group end by
itself, for a program sees that nobody talks to it any more, asks it to, and kills it. Who has left the group
for a session of its own is not found. Windows has no such groups, and no guards.
"""

import os
import subprocess
import weakref
from typing import Self

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
        if not hasattr(os, "killpg"):
            return None
        read_end, write_end = os.pipe()
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT, "coupler-guard", str(group)],
                cwd="/",
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
        return cls(process, write_end)

    def __init__(self, process: "subprocess.Popen[bytes]", write_end: int) -> None:
        self.dismiss = weakref.finalize(self, _dismiss, process, write_end, os.getpid())
        """The group has ended, and nobody has to watch over it. A second call does nothing."""


def _dismiss(process: "subprocess.Popen[bytes]", write_end: int, owner: int) -> None:
    if os.getpid() == owner:  # else we are a forked copy, and the guard is not ours
        process.kill()
        process.wait()
    os.close(write_end)
