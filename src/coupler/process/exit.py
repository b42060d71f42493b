"""Noticing at once that a process has ended, in whatever thread the event loop runs.

Where the system allows it the dead process is left unreaped: as long as it is, no other process can get its
number, so that a signal to its group cannot hit a stranger. Whoever watches reaps it in the end.
"""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable

Report = Callable[[int], None]


def watch_exit(
    process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, report: Report
) -> int | None:
    """Call `report` with the return code in `loop` when the process has ended.

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
    process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, report: Report
) -> None:
    returncode = _wait(process)
    try:
        loop.call_soon_threadsafe(report, returncode)
    except RuntimeError:
        return  # the loop was closed: nobody is left to tell


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Block until the process has ended, leave it unreaped where possible, and return its return code."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.wait()
    try:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return process.wait()  # somebody else reaped it: Popen has a convention for that
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
