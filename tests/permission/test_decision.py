"""The one decision: who is asked, what an answer settles besides, and what a yes includes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coupler.permission.action import Action
from coupler.permission.decision import Permission, Permissions, Verdict, nobody
from coupler.permission.offers import Choices, Offer, Scope
from permission.parts import Bench, rules
from tables import table

YES, NO = Permission(True, "yes"), Permission(False, "no")


class Asked:
    """A dialog that says what it is told to, and knows how often it was asked."""

    def __init__(self, answer: Permission) -> None:
        self.verdicts: list[Verdict] = []
        self._answer = answer

    async def __call__(self, verdict: Verdict) -> Permission:
        self.verdicts.append(verdict)
        return self._answer


def always(answer: str, rule: str) -> Permission:
    """Make an answer that is remembered for the session."""
    subject, _, pattern = rule.rstrip(")").partition("(")
    kind: Any = f"{answer}_always"
    offer = Offer(kind, "always", (Scope(subject, pattern, "session", rule),))
    return Permission(answer == "allow", "always", offer=offer)


def execute(bench: Bench, command: str) -> Action:
    return bench.action("execute", command=command)


def test_what_is_decided_is_not_asked_about(bench: Bench) -> None:
    permissions = bench.permissions(["execute(ls *)"], deny=["execute(rm *)"])
    dialog = Asked(YES)

    allowed, denied, asked = (
        asyncio.run(permissions.decide(execute(bench, command), dialog))
        for command in ("ls src", "rm x", "make")
    )

    assert (allowed.is_given, denied.is_given, asked.is_given) == (True, False, True)
    assert "`execute(rm *)`" in denied.reason
    assert [verdict.reason for verdict in dialog.verdicts] == ["no rule allows `make`"]


def test_what_no_rule_is_about_can_pass_unasked_but_not_what_one_may_mean(bench: Bench) -> None:
    permissions = bench.permissions(ask=["execute(make *)"], deny=["execute(git push *)"])
    dialog = Asked(NO)

    def passes(command: str) -> bool:
        deciding = permissions.decide(execute(bench, command), dialog, unruled="allow")
        return asyncio.run(deciding).is_given

    assert passes("cargo test")
    assert not any(map(passes, ("make all", "git push", "git $X", "[[ x ]]", "rm -rf $DIR")))
    assert len(dialog.verdicts) == 4  # a push is denied


def test_what_may_destroy_is_denied_where_nobody_can_be_asked(
    bench: Bench,
) -> None:
    permissions = bench.permissions(["*", "execute(rm *)"])
    deciding = permissions.decide(execute(bench, "rm -rf $DIR"), nobody, unruled="allow")

    permission = asyncio.run(deciding)

    assert not permission.is_given
    assert permission.verdict is not None
    assert permission.verdict.is_vital
    assert permission.reason.endswith("nobody can be asked")


def test_a_rejection_is_read_as_generously_as_a_rule_that_denies(bench: Bench) -> None:
    choices = Choices(str(bench.project))
    asyncio.run(choices.remember("deny", [Scope("execute", "git push *", "session", "git push")]))
    permissions = bench.permissions(choices=choices)

    async def decided(command: str) -> Permission:
        return await permissions.decide(execute(bench, command), nobody, unruled="allow")

    assert not asyncio.run(decided("git push origin")).is_given
    doubtful = asyncio.run(decided("git $X"))
    assert not doubtful.is_given
    assert "may be what `execute(git push *)`" in doubtful.reason
    assert asyncio.run(decided("git status")).is_given


def test_further_rules_hold_for_one_action_alone(bench: Bench) -> None:
    permissions = bench.permissions(["execute(ls *)"])
    also = rules("deny", ["execute(ls -a *)"])

    with_rule = asyncio.run(permissions.decide(execute(bench, "ls -a"), nobody, also=also))
    without = asyncio.run(permissions.decide(execute(bench, "ls -a"), nobody))

    assert (with_rule.is_given, without.is_given) == (False, True)


async def beside(
    permissions: Permissions, action: Action, other: Action, answer: Permission, **more: Any
) -> Permission:
    """Ask about an action, and while its dialog is open answer the question about another one."""
    is_open, goes_on = asyncio.Event(), asyncio.Event()

    async def patient(verdict: Verdict) -> Permission:
        is_open.set()
        await goes_on.wait()
        return Permission(False, "answered at last")

    deciding = asyncio.create_task(permissions.decide(action, patient, **more))
    await is_open.wait()
    await permissions.decide(other, Asked(answer))
    asyncio.get_running_loop().call_soon(goes_on.set)
    return await deciding


def test_an_always_answers_other_open_dialogs_that_it_decides(bench: Bench) -> None:
    for answer, is_given in (("allow", True), ("reject", False)):
        permissions = bench.permissions(choices=Choices(str(bench.project)))
        first, other = execute(bench, "make test"), execute(bench, "make clean")
        said = always(answer, "execute(make *)")

        permission = asyncio.run(beside(permissions, first, other, said))

        assert permission.is_given is is_given
        assert "`execute(make *)` in what you chose in this session" in permission.reason
        assert permission.verdict is not None
        assert permission.verdict.decision != "ask"


def test_an_always_that_is_about_something_else_leaves_dialogs_open(bench: Bench) -> None:
    permissions = bench.permissions(["switch_mode"], choices=Choices(str(bench.project)))
    plan = bench.action("switch_mode", name="present_plan")
    said = always("allow", "execute(ls *)")

    for action, more in ((execute(bench, "make"), {}), (plan, {"always_asks": True})):
        permission = asyncio.run(beside(permissions, action, execute(bench, "ls"), said, **more))

        assert permission.reason == "answered at last"


def test_a_dialog_that_takes_too_long_for_its_asker_fails_for_its_asker(bench: Bench) -> None:
    async def late(verdict: Verdict) -> Permission:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(bench.permissions().decide(execute(bench, "make"), late))


@table(
    ("granted", "done", "is_included"),
    [
        ({"kind": "edit", "paths": ("/a",)}, {"kind": "edit", "paths": ("/a",)}, True),
        ({"kind": "edit", "paths": ("/a",)}, {"kind": "read", "paths": ("/a",)}, True),
        ({"kind": "other", "paths": ("/a", "/b")}, {"kind": "edit", "paths": ("/a",)}, True),
        ({"kind": "read", "paths": ("/a",)}, {"kind": "edit", "paths": ("/a",)}, False),
        ({"kind": "delete", "paths": ("/a",)}, {"kind": "edit", "paths": ("/a",)}, False),
        ({"kind": "edit", "paths": ("/a",)}, {"kind": "edit", "paths": ("/b",)}, False),
        ({"kind": "execute", "command": "x", "paths": ("/a",)}, {"kind": "edit", "paths": ("/a",)}, False),
        ({"command": "ls -a", "cwd": "/p"}, {"command": ("ls", "-a"), "cwd": "/p"}, True),
        ({"command": "ls && x", "cwd": "/p"}, {"command": ("sh", "-c", "ls && x"), "cwd": "/p"}, True),
        ({"command": "rm -rf *", "cwd": "/p/build"}, {"command": "rm -rf *", "cwd": "/p"}, False),
        ({"command": "git status"}, {"command": "git status", "env": (("GIT_PAGER", "x"),)}, False),
        ({"command": "ls"}, {"command": "ls -a"}, False),
    ],
)
def test_a_yes_includes_what_it_was_about_and_no_more(
    granted: dict[str, Any], done: dict[str, Any], is_included: bool
) -> None:
    first, second = (Action(**{"kind": "execute", **fields}) for fields in (granted, done))

    assert first.includes(second) is is_included
