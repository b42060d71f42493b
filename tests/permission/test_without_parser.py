"""Commands where the parser of the shell's language is not installed."""

import sys

import pytest

from coupler.permission import shell
from coupler.permission.action import Budget
from coupler.permission.claims import Destruction, Doubt, claims_of
from permission.floor import tables as floor_tables
from permission.parts import Bench
from tables import table


@pytest.fixture(autouse=True)
def without_parser(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    shell._language.cache_clear()
    yield
    monkeypatch.undo()
    shell._language.cache_clear()


@table(
    "command",
    [
        "git status",
        "git commit -m 'two words'",
        'git commit -m "a; b"',
        "timeout 5 git status",
        "git  status",
    ],
)
def test_a_single_plain_command_is_still_judged(bench: Bench, command: str) -> None:
    assert bench.run(command, "execute(git *)").decision == "allow"


@table(
    "command",
    [
        "git status; git status",
        "git status | git status",
        "git status && git status",
        "git status &",
        "git status\ngit status",
        "git status > x",
        "git status < x",
        "git $X",
        'git "$X"',
        "git `x`",
        'git "`x`"',
        "git $(x)",
        "git *.py",
        "git ?",
        "git [a]",
        "git {a,b}",
        "git ~/x",
        "git #x",
        "git \\x",
        "git 'x",
        "git (x)",
        "! git status",
        "LANG=C git status",
        "git status\0",
    ],
)
def test_anything_else_is_asked_about(bench: Bench, command: str) -> None:
    verdict = bench.run(command, "execute(git *)", "execute", "*")
    assert verdict.decision == "ask"
    assert [offer.kind for offer in verdict.offers] == ["allow_once", "reject_once"]


def test_the_reason_names_the_command_that_installs_the_parser(bench: Bench) -> None:
    assert 'pip install "coupler[shell]"' in bench.run("git status; ls", "execute").reason


def test_a_denied_command_is_still_denied(bench: Bench) -> None:
    assert bench.run("rm x", "execute", deny=["execute(rm *)"]).decision == "deny"


def test_words_without_a_shell_need_no_parser(bench: Bench) -> None:
    assert bench.run(("git", "commit", "-m", "a; $(b)"), "execute(git *)").decision == "allow"


@table("command", [*floor_tables.DELETING, *floor_tables.DISKS, *floor_tables.MACHINE, *floor_tables.RIGHTS])
def test_the_floor_holds_without_it(bench: Bench, command: str) -> None:
    roots = [str(bench.project)]
    claims = claims_of(bench.action("execute", command=command), roots[0], roots, Budget())

    assert any(
        isinstance(each, Destruction) or (isinstance(each, Doubt) and each.is_vital) for each in claims
    )
