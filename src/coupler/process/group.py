"""Process groups: signals that reach a program and all that it started."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from coupler.process.descendants import Process, processes_below, send_signal, still_alive

# For Popen's creationflags, which only Windows looks at; elsewhere a new session makes a new group.
NEW_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


class Group:
    """The group that a process leads, and strays: whoever left it for a session of its own.

    A stray is found as long as its parents live; who has made itself a child of init is a daemon and stays.
    Once the group was seen empty it is never signalled again: its number may belong to a stranger by then.
    """

    def __init__(self, leader: "subprocess.Popen[bytes]") -> None:
        self._leader = leader
        self._gone = False
        self._strays: set[Process] = set()

    async def gone(self) -> None:
        """Wait until the group has no living member, and no stray lives."""
        # No system call waits for a group, so this is one of the few places that must look again and again.
        while self.alive():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def alive(self) -> bool:
        """Whether any member or stray lives. Reaps the leader if it has ended."""
        if not self._gone and self._leader.poll() is not None:
            self._gone = not _has_members(self._leader.pid)
        if self._gone and self._strays:
            self._strays = still_alive(self._strays)
        return not self._gone or bool(self._strays)

    def terminate(self) -> None:
        """Ask every member and stray to end."""
        self._find_strays()
        if sys.platform == "win32":
            self._signal(signal.CTRL_BREAK_EVENT)
        else:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process would never see the SIGTERM

    def kill(self) -> None:
        """End every member and stray."""
        self._find_strays()
        if sys.platform == "win32":
            command = ["taskkill", "/F", "/T", "/PID", str(self._leader.pid)]
            subprocess.run(command, capture_output=True, check=False)
        else:
            self._signal(signal.SIGKILL)

    def _find_strays(self) -> None:
        # Once the leader is reaped its number may be a stranger's, and its children are init's.
        if self._leader.returncode is None:
            below = processes_below(self._leader.pid)
            self._strays |= {process for process in below if not self._is_member(process)}

    def _is_member(self, process: Process) -> bool:
        try:
            return os.getpgid(process.pid) == self._leader.pid
        except ProcessLookupError:
            return True

    def _signal(self, number: int) -> None:
        for stray in still_alive(self._strays) if self._strays else ():
            send_signal(stray, number)
        if self._gone:
            return
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
