"""The hard floor: what no rule lets an agent do, however it is written, and what it has nothing against."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from coupler.permission.action import LONGEST_TIME, Budget
from coupler.permission.claims import Destruction, Doubt, claims_of
from permission.floor import tables as floor_tables
from permission.floor.hidden import HIDDEN
from permission.floor.ordinary import ORDINARY
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


@table("command", HIDDEN)
def test_what_is_hidden_is_denied_or_asked_about_each_time(bench: Bench, command: str) -> None:
    verdict = bench.run(command, *EVERYTHING)
    roots = [str(bench.project)]
    claims = claims_of(bench.action("execute", command=command), roots[0], roots, Budget())

    assert verdict.decision in {"deny", "ask"}, verdict.reason
    assert verdict.decision == "deny" or {offer.kind for offer in verdict.offers} == {
        "allow_once",
        "reject_once",
    }
    assert any(
        isinstance(each, Destruction) or (isinstance(each, Doubt) and each.is_vital) for each in claims
    )


@table("command", ORDINARY)
def test_it_asks_about_nothing_that_is_ordinary(bench: Bench, command: str) -> None:
    verdict = bench.run(command, *EVERYTHING, "read(/**)")

    assert verdict.decision == "allow", verdict.reason


@table(
    "home, command, decision",
    [
        ("/root", "chmod 700 ~/.ssh", "allow"),
        ("/root", "chmod 700 /root/.ssh", "allow"),
        ("/root", "chmod 000 ~", "allow"),
        ("/home/me", "chmod 700 ~/.ssh", "allow"),
        ("/srv/people/me", "chmod 700 ~/.ssh ~/.gnupg", "allow"),
        ("/root", "chmod -R 700 ~/.ssh", "deny"),
        ("/root", "chmod -R 700 ~", "deny"),
        ("/srv/people/me", "chmod -R 000 ~", "deny"),
        ("/root", "chmod 700 ~/..", "deny"),
        ("/root", "chmod 000 /", "deny"),
        ("/root", "chmod 777 /etc", "deny"),
    ],
)
def test_the_rights_of_one_directory_in_a_home_are_its_users_to_change(
    bench: Bench, home: str, command: str, decision: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", home)
        verdict = bench.run(command, *EVERYTHING)

    assert verdict.decision == decision, verdict.reason


@table(
    "command, decisions",
    [
        ("rm -rf " + " /*" * 1000, {"deny"}),
        ("rm -rf " + "/*" * 1000, {"deny"}),
        ("rm -rf " + " /*" * 6000, {"deny", "ask"}),
        ("rm -rf " + "{a,b}" * 300, {"ask"}),
        ("rm -rf " + "{a," * 300 + "/" + "}" * 300, {"ask"}),
        ("rm -rf " + "$(" * 300 + "echo /" + ")" * 300, {"ask"}),
        ("x=/; " + "x=$x$x; " * 200 + "rm -rf $x", {"deny", "ask"}),
        ("; ".join(["sh -c 'rm -rf build'"] * 150), {"allow", "ask"}),
        ("echo " + "'" * 20_001 + " | sh", {"ask"}),
        ("echo " + '\\"' * 9_000 + " | sh", {"ask"}),
        ("python -c '" + "/ " * 9_000 + "'", {"allow", "ask"}),
        ('rm -rf "$A$B$C$D$E' + "\\\\a" * 9_000 + '"', {"ask"}),
        ('rm -rf "' + "$A" * 400 + '"', {"ask"}),
        ("rm -rf " + "${A:-" * 60 + "/" + "}" * 60, {"deny", "ask"}),
        ("; ".join(f"x{i}=$x{i + 1}$x{i + 1}" for i in range(80)) + "; rm -rf $x0", {"ask"}),
        ("echo " + "a" * 90_000 + " | sh", {"ask"}),
        ("env " * 900 + "$A", {"ask"}),
        ("uv run " * 500 + "ls", {"allow", "ask"}),
        ("npx " * 900 + "rm -rf build", {"allow", "ask"}),
        ("sudo " * 400 + "rm -rf /", {"deny", "ask"}),
        ("sh -c '" + 'echo "' * 2_000 + "'", {"allow", "ask"}),
        ("sed 's/" + "a\\/" * 4_000 + "/x/' f", {"allow", "ask"}),
        ("sed '" + "/a\\/" * 3_000 + "p' f", {"allow", "ask"}),
        ("python -c '" + "for " * 4_500 + "'", {"allow", "ask"}),
        ("x " + "a/b/c/d " * 2_200, {"allow", "ask"}),
    ],
)
def test_long_and_deep_lines_get_an_answer_in_time(bench: Bench, command: str, decisions: set[str]) -> None:
    start = time.monotonic()
    verdict = bench.run(command, *EVERYTHING)

    assert verdict.decision in decisions, verdict.reason
    assert time.monotonic() - start < LONGEST_TIME * 4
