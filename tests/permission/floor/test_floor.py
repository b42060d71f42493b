"""The hard floor: what no rule lets an agent do, however it is written, and what it has nothing against."""

from __future__ import annotations

from pathlib import Path

import pytest

from permission.floor import tables as floor_tables
from permission.parts import Bench
from tables import table

EVERYTHING = ("*", "execute(rm *)", "execute(python -c *)", "edit(/**)", "delete(/**)", "move(/**)")


@pytest.fixture
def bench(bench: Bench) -> Bench:
    (bench.project / "link-to-root").symlink_to("/")
    (bench.project / "link-to-home").symlink_to(Path.home())
    return bench


@table("command", floor_tables.FATAL)
def test_nobody_allows_what_wrecks_a_machine_or_a_home(bench: Bench, command: str) -> None:
    verdict = bench.run(command, *EVERYTHING)

    assert verdict.decision == "deny", verdict.reason
    assert verdict.offers == ()


@table("command", floor_tables.ALLOWED)
def test_it_has_nothing_against_what_only_looks_like_it(bench: Bench, command: str) -> None:
    verdict = bench.run(command, *EVERYTHING, "read(/**)")

    assert verdict.decision != "deny", verdict.reason
    assert not any(word in verdict.reason for word in ("would", "deletes", "formats")), verdict.reason


@table("command", floor_tables.ASKED)
def test_what_may_be_such_a_thing_is_asked_about_whatever_is_allowed(bench: Bench, command: str) -> None:
    verdict = bench.run(command, *EVERYTHING)

    assert verdict.decision == "ask", verdict.reason
    assert [offer.kind for offer in verdict.offers] == ["allow_once", "reject_once"]
