"""`coupler check` on served graphs: made by LangChain, by deepagents, and by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from bridges.acting import surroundings

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured")]

GRAPHS = Path(__file__).parent / "graphs" / "conforming.py"
COUPLER = [sys.executable, "-m", "coupler"]
PATIENCE = 900.0

TURNS = "A14,A28,A30,A34,A44,A45,A46,A47,A48,A49,A51,A52,A53,A54,A55,S01,T11"
"""What depends on the graph; the rest is the same code for all, and each start imports all of LangChain."""


@pytest.mark.parametrize(("graph", "only"), [("created", None), ("deep", TURNS), ("plain", TURNS)])
def test_a_served_graph_conforms(graph, only, tmp_path):
    options = ["--json", "--timeout", "30", "--slow-prompt", "be slow", *(["--only", only] if only else [])]
    ended = forked.run(
        [*COUPLER, "check", *options, "--", *COUPLER, "serve", f"{GRAPHS}:{graph}"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        env={**os.environ, **surroundings(tmp_path)},
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    assert [each for each in report["results"] if each["outcome"] in ("failed", "warned")] == []
    passed = {each["id"] for each in report["results"] if each["outcome"] == "passed"}
    assert {"A28", "A44", "A46", "A47", "A52"} <= passed
