"""The hard floor against more disguises than anybody has thought of when it was made."""

from __future__ import annotations

from pathlib import Path

import pytest

from permission.floor import disguises as floor_disguises
from permission.floor import renamed as floor_renamed
from permission.floor import tables as floor_tables
from permission.parts import Bench
from tables import table

pytestmark = pytest.mark.long

EVERYTHING = ("*", "execute(rm *)", "execute(python -c *)", "edit(/**)", "delete(/**)", "move(/**)")


@pytest.fixture
def bench(bench: Bench) -> Bench:
    (bench.project / "link-to-root").symlink_to("/")
    (bench.project / "link-to-home").symlink_to(Path.home())
    return bench


@table("command", [*floor_disguises.DENIED, *floor_renamed.DENIED])
def test_no_disguise_gets_below_the_floor(bench: Bench, command: str) -> None:
    verdict = bench.run(command, *EVERYTHING)

    assert verdict.decision == "deny", verdict.reason
    assert verdict.is_final


@table("command", [*floor_disguises.ASKED, *floor_renamed.ASKED])
def test_what_cannot_be_told_from_something_harmless_is_at_least_asked_about(
    bench: Bench, command: str
) -> None:
    assert bench.run(command, *EVERYTHING).decision == "ask"


@table("command", [*floor_disguises.HARMLESS, *floor_renamed.HARMLESS])
def test_it_has_nothing_against_their_harmless_relatives(bench: Bench, command: str) -> None:
    verdict = bench.run(command, *EVERYTHING, "read(/**)")

    assert verdict.decision != "deny", verdict.reason


def test_these_are_others_than_those_that_it_was_made_for() -> None:
    assert len({*floor_disguises.DENIED} - {*floor_tables.FATAL}) >= 100
