"""Runs whose events an earlier version stored: they are shown and told as before, and resume.

`earlier_runs/coupler.db` was written before the log of a run wrapped the events of sessions. It has one that
is over, one that waits for an answer, and one whose agent was to answer with data. All have thoughts, tool
calls, plans and usage. Beside it is what `coupler runs logs` said of each of them then, without the times.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from store.test_earlier_store import coupler, relocate

EARLIER = Path(__file__).parent / "earlier_runs"
RUNS = ("work-9gzz6", "work-f2qf7", "typed-8jeu6")
OVER, PARKED, TYPED = RUNS


@pytest.fixture
def project(tmp_path: Path, coupler_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project and its store, as if both had always been here."""
    project = tmp_path / "project"
    shutil.copytree(EARLIER / "project", project)
    coupler_home.mkdir(parents=True, exist_ok=True)
    shutil.copy(EARLIER / "coupler.db", coupler_home / "coupler.db")
    relocate(coupler_home / "coupler.db", str(project))
    monkeypatch.setenv("PATH", f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return project


def logged(project: Path, run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in coupler(project, "runs", "logs", run, "--json").splitlines()]


@pytest.mark.parametrize("run", RUNS)
def test_the_log_of_a_run_says_what_it_said(project: Path, run: str) -> None:
    told = re.sub(r"(?m)^\d\d:\d\d:\d\d ", "", coupler(project, "runs", "logs", run))

    assert told == (EARLIER / f"{run}.log").read_text()


def test_a_run_is_shown_with_its_steps_and_its_usage(project: Path) -> None:
    page = coupler(project, "runs", "show", OVER)

    assert "used 84 tokens, 0.5000 USD\n" in page
    assert re.findall(r"(?m)^  (\w+)  (\w+), ", page) == [
        (step, "success") for step in ("prepare", "first", "version", "second")
    ]


def test_what_agents_did_is_told_as_events_of_today(project: Path) -> None:
    told = [each for each in logged(project, OVER) if each.get("place") == {"path": "first"}]

    words = ("event", "id", "status", "stop_reason")
    agents = [each for each in told if each["event"] not in ("step_started", "step_finished", "decided")]
    assert [tuple(each[word] for word in words if word in each) for each in agents] == [
        ("thought",),
        ("text",),
        ("plan",),
        ("tool_call", "r", "pending"),
        ("tool_output", "r"),
        ("tool_call_update", "r", "in_progress"),
        ("tool_output", "r"),
        ("tool_call_update", "r"),
        ("tool_call_update", "r", "completed"),
        ("tool_call", "e", "in_progress"),
        *[("tool_output", "e")] * 2,
        ("tool_call_update", "e", "completed"),
        ("tool_call", "x", "in_progress"),
        ("tool_output", "x"),
        ("tool_call_update", "x", "failed"),
        ("tool_call", "o", "in_progress"),
        ("plan",),
        ("text",),
        ("turn",),
        ("tool_output", "o"),
        ("tool_call_update", "o", "failed"),
    ]
    read, first, *_ = [each for each in agents if each.get("id") == "r"]
    assert (read["input"], read["locations"]) == ({"path": "a.txt"}, [{"path": "/there/a.txt"}])
    assert first["content"] == {"type": "content", "content": {"type": "text", "text": "one\n"}}
    (edit, *_, new, _) = [each for each in agents if each.get("id") == "e"]
    change = {"type": "diff", "path": "/there/a.txt", "newText": "un\n", "oldText": "one\n"}
    assert edit["content"] == [change]
    assert new["content"] == {"type": "diff", "path": "/there/b.txt", "newText": "new\n"}
    (turn,) = [each for each in agents if each["event"] == "turn"]
    assert (turn["usage"]["input"], turn["usage"]["cached_read"], turn["usage"]["cost"]) == (30, 5, 0.25)


def test_a_parked_run_goes_on(project: Path) -> None:
    told = coupler(project, "resume", PARKED, "--quiet", "--answer", "version=5")

    assert json.loads(told) == {
        "said": "I look at it.\n\nDone: begin",
        "tokens": 42,
        "again": "I look at it.\n\nDone: go on with 5",
    }
    finished = logged(project, PARKED)[-1]
    assert (finished["usage"]["total_tokens"], finished["usage"]["cost"]) == (84, 0.5)
