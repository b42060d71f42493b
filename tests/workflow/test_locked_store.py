"""`coupler run` while another program has locked the store."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from coder.waiting import until
from raw_client import COUPLER, PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

# As the real one, with less patience.
IMPATIENT = """
from coupler.store.database import Database

Database.__init__.__kwdefaults__["patience"] = 0.2
"""
WORKFLOW = """
steps:
  - {id: a, run: "touch began; while [ ! -e go ]; do sleep 0.02; done; echo done >> a"}
  - {id: b, run: "echo done >> b"}
"""


def test_a_run_that_waits_for_the_store_ends_when_it_is_cancelled_and_can_be_resumed(
    tmp_path: Path, coupler_home: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    (tmp_path / "flow.yaml").write_text(WORKFLOW)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        run = subprocess.Popen(
            [*COUPLER, "run", "./flow.yaml"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=stderr
        )
    until((tmp_path / "began").exists)
    with closing(sqlite3.connect(coupler_home / "coupler.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        (tmp_path / "go").touch()
        until(lambda: "cannot be stored, trying again" in errors.read_text())

        cancelled_at = time.monotonic()
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=PATIENCE)

    assert time.monotonic() - cancelled_at < 10
    assert run.returncode == 4
    assert "another program holds" in errors.read_text().splitlines()[-1]

    started = re.search(r"the run (\S+) of flow started", output.decode())
    assert started is not None
    resumed = subprocess.run([*COUPLER, "resume", started[1]], cwd=tmp_path, capture_output=True)
    assert resumed.returncode == 0, resumed.stderr.decode()
    assert (tmp_path / "b").read_text() == "done\n"
