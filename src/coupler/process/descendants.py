"""The processes that this one started, and those that they started.

Found by their parents' numbers, so they need not be in a group of ours or known to anybody. A process whose
parent died before we looked belongs to init and is not found. On Windows none are.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process for ever: its number may be given away again, but not with the same start."""

    pid: int
    started: str


class Descendants:
    """Those of this process, but for the ones with these numbers and theirs."""

    def __init__(self, spared: Collection[int] = ()) -> None:
        self._spared = frozenset(spared)
        self._asked_to_end: set[Process] = set()

    def terminate(self) -> None:
        """Ask all to end."""
        found = self._living()
        self._asked_to_end |= found
        for process in found:
            send_signal(process, signal.SIGTERM)
            if sys.platform != "win32":
                send_signal(process, signal.SIGCONT)  # a stopped process would never see the SIGTERM

    def kill(self) -> None:
        """End all, and what they start while we do so."""
        for _ in range(3):
            found = self._living()
            if not found:
                return
            for process in found:
                send_signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))

    def alive(self) -> bool:
        """Whether any is left."""
        return bool(self._living())

    def _living(self) -> set[Process]:
        parents = dict(_parents())
        # Who lost its parent since it was asked to end is no descendant any more, but ours to end.
        orphaned = self._asked_to_end & parents.keys()
        return orphaned | _below(os.getpid(), parents, self._spared)


def children() -> set[int]:
    """The numbers of the living processes that this one started itself."""
    return {process.pid for process, parent in _parents() if parent == os.getpid()}


def processes_below(pid: int) -> set[Process]:
    """The living processes that another one started, and those that they started."""
    return _below(pid, dict(_parents()), frozenset())


def still_alive(processes: set[Process]) -> set[Process]:
    """Those that have not ended, whoever is their parent by now."""
    return processes & dict(_parents()).keys()


def send_signal(process: Process, number: int) -> None:
    """Signal a process that was found, unless it is gone or not ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, number)


def _below(ancestor: int, parents: dict[Process, int], spared: frozenset[int]) -> set[Process]:
    children: dict[int, list[Process]] = {}
    for process, parent in parents.items():
        children.setdefault(parent, []).append(process)
    found: set[Process] = set()
    waiting = [ancestor]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child.pid not in spared and child not in found:
                found.add(child)
                waiting.append(child.pid)
    return found


def _parents() -> Iterator[tuple[Process, int]]:
    """Every living process with its parent's number."""
    if sys.platform == "win32":
        return
    if sys.platform == "linux":
        yield from _parents_in_proc()
    else:
        yield from _parents_by_ps()


def _parents_in_proc() -> Iterator[tuple[Process, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state parent … start, where the name may hold anything, parentheses too
            state, parent, *rest = stat.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX":
                yield Process(int(stat.parent.name), rest[17]), int(parent)
        except (OSError, ValueError, IndexError):
            continue  # ended while we looked


def _parents_by_ps() -> Iterator[tuple[Process, int]]:
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ps:
        listed = ps.communicate()[0].decode(errors="replace")
    for line in listed.splitlines():
        with contextlib.suppress(ValueError):
            pid, parent, state, started = line.split(maxsplit=3)
            if not state.startswith("Z") and int(pid) != ps.pid:
                yield Process(int(pid), started), int(parent)
