"""The matrix of `make interop`: what counts as worse, and whether the page has every agent of the table."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ("agents", "cells", "report")


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the command, which is a directory and no package."""
    monkeypatch.syspath_prepend(ROOT / "interop")
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("report")
    for name in MODULES:
        sys.modules.pop(name, None)


def row(verdict: str, *failed: str) -> dict[str, Any]:
    cell = {"verdict": verdict, "seen": verdict, "failed": {id: {"seen": "", "why": ""} for id in failed}}
    return {"cells": {"check": cell}}


def test_a_cell_is_worse_if_its_verdict_is_or_if_more_assertions_fail(report: ModuleType) -> None:
    cases = [
        (row("pass"), row("pass"), False),
        (row("pass"), row("none"), True),
        (row("pass"), row("fault", "A01"), True),
        (row("fault", "A01"), row("pass"), False),
        (row("fault", "A01"), row("fault", "A01"), False),
        (row("fault", "A01"), row("fault", "A01", "A02"), True),
        (row("fault", "A01", "A02"), row("fault", "A01"), False),
        (row("fail", "A01"), row("fault", "A01"), False),
        (row("fail", "A01"), row("fail", "A01"), True),
        (row("none"), row("fail"), True),
        (row("pass"), {"missing": "there is no such package"}, True),
        ({"missing": "there is no such package"}, {"missing": "npm is missing"}, False),
        ({}, row("fault"), False),
        ({}, row("fail"), True),
    ]
    wrong = [
        (before, now) for before, now, is_worse in cases if bool([*report.worse(before, now)]) != is_worse
    ]
    assert not wrong


def test_a_failure_is_a_fault_of_the_agent_only_with_the_signs_of_one(report: ModuleType) -> None:
    agents, cells = sys.modules["agents"], sys.modules["cells"]
    fault = agents.Fault("^it forgets", "It keeps nothing.")
    agent = agents.Agent("x", "X", (), None, write="", faults={"load": fault}, check_faults={"A02": fault})
    cases = [
        ("load", "it forgets all", {}, "fault"),
        ("load", "it took too long", {}, "fail"),
        ("tool", "it forgets all", {}, "fail"),
        ("check", "1 failed: A02", {"A02": "it forgets all"}, "fault"),
        ("check", "1 failed: A02", {"A02": "it lies"}, "fail"),
        ("check", "2 failed: A02, A03", {"A02": "it forgets all", "A03": "it forgets all"}, "fail"),
    ]
    wrong = []
    for name, proof, failed, verdict in cases:
        judged = report.judged(cells.Seen("fail", proof, failed), name, agent)
        is_worse = bool([*report.worse(row("fault", *failed), {"cells": {name: judged}})])
        if (judged["verdict"], is_worse) != (verdict, verdict == "fail"):
            wrong.append((name, proof, judged, is_worse))
    assert not wrong


def test_every_fault_of_the_page_has_the_signs_that_are_recorded(report: ModuleType) -> None:
    agents = {agent.name: agent for agent in sys.modules["agents"].AGENTS}
    wrong = []
    for name, kept in report.read().items():
        for cell, found in kept.get("cells", {}).items():
            failed = {each: failure["seen"] for each, failure in found.get("failed", {}).items()}
            verdict = "fail" if found["verdict"] == "fault" else found["verdict"]
            seen = sys.modules["cells"].Seen(verdict, found["seen"], failed)
            if report.judged(seen, cell, agents[name]) != found:
                wrong.append((name, cell, found))
    assert not wrong


def test_every_agent_of_the_table_has_a_row_with_every_cell(report: ModuleType) -> None:
    kept = report.read()
    assert [*kept] == [agent.name for agent in sys.modules["agents"].AGENTS]
    lacking = {
        name: {*report.CELLS} - {*row.get("cells", ())} for name, row in kept.items() if "missing" not in row
    }
    assert not {name: cells for name, cells in lacking.items() if cells}
