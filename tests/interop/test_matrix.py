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
        (row("none"), row("fail"), True),
        (row("pass"), {"missing": "there is no such package"}, True),
        ({"missing": "there is no such package"}, {"missing": "npm is missing"}, False),
        ({}, row("fail"), False),
    ]
    wrong = [
        (before, now) for before, now, is_worse in cases if bool([*report.worse(before, now)]) != is_worse
    ]
    assert not wrong


def test_every_agent_of_the_table_has_a_row_with_every_cell(report: ModuleType) -> None:
    kept = report.read()
    assert [*kept] == [agent.name for agent in sys.modules["agents"].AGENTS]
    lacking = {
        name: {*report.CELLS} - {*row.get("cells", ())} for name, row in kept.items() if "missing" not in row
    }
    assert not {name: cells for name, cells in lacking.items() if cells}
