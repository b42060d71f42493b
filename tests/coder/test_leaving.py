"""The end of a served coder: quick, although LangChain and all that it imports is loaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coder.script import use
from coder.served_coder import Coder

MOST_OF_ALL = 0.08
"""The part of a short life's CPU time that its end may take; looking for cycles in all objects took 0.17."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_leaving_costs_little_of_what_starting_has_cost_and_closes_the_store(
    coder: Coder, project: Path
) -> None:
    coder.model.plays(use("list_directory"), "Done.")
    served = coder.served(fresh=True)
    editor = served.opened(project)
    assert editor.prompt("Look around").text == "Done."
    assert (served.home / "coupler.db-wal").exists()

    pid = served.client.process.pid
    before = cpu_seconds(pid)
    assert served.client.process.stdin is not None
    served.client.process.stdin.close()
    _, status, usage = os.wait4(pid, 0)

    whole = usage.ru_utime + usage.ru_stime
    assert os.waitstatus_to_exitcode(status) == 0
    assert whole - before < MOST_OF_ALL * whole, f"{whole - before:.2f} of {whole:.2f} s"
    assert not (served.home / "coupler.db-wal").exists()


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process by now, with all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
