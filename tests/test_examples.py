"""The examples do what they show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from raw_client import serve, texts

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_demo_shows_a_plan_tool_calls_and_the_streamed_answer():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"], capture_output=True, timeout=60, text=True, encoding="utf-8"
    )

    assert done.returncode == 0, done.stderr
    for sight in ("● Find the Python files", "● Find Python files search, completed", "read, completed"):
        assert sight in done.stdout
    assert "This project has" in done.stdout and "turn ended: end_turn" in done.stdout


def test_the_surveyor_goes_on_where_a_link_leads_nowhere(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing.py")
    (tmp_path / "here.py").write_text("a = 1\n")
    with serve(EXAMPLES / "surveyor.py") as client:
        client.initialize()

        updates, answer = client.prompt(client.new_session(str(tmp_path)), "look")

    assert answer["result"] == {"stopReason": "end_turn"}
    assert "`here.py` with 1 lines" in texts(updates)


def test_the_surveyor_says_so_where_there_is_nothing(tmp_path):
    with serve(EXAMPLES / "surveyor.py") as client:
        client.initialize()

        updates, _ = client.prompt(client.new_session(str(tmp_path)), "look")

    assert texts(updates) == f"There is no Python under {tmp_path}."
