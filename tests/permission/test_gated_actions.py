"""Actions that are asked about although nobody would need an allowance for them."""

import pytest

from coupler.permission.action import Action
from coupler.permission.decision import Permissions
from coupler.permission.offers import Choices
from coupler.permission.rules import Rule


def permissions(project: str, *rules: tuple[str, str]) -> Permissions:
    parsed = [Rule.parse(effect, text, "user") for effect, text in rules]
    return Permissions(parsed, Choices(project), project)


def a_read(project: str, *, is_gated: bool) -> Action:
    return Action(
        kind="read", name="read_file", paths=(f"{project}/a.txt",), roots=(project,), is_gated=is_gated
    )


@pytest.mark.parametrize(("is_gated", "decision"), [(False, "allow"), (True, "ask")])
def test_a_gated_read_inside_of_the_session_s_directories_is_asked_about(tmp_path, is_gated, decision):
    verdict = permissions(str(tmp_path)).judge(a_read(str(tmp_path), is_gated=is_gated))
    assert verdict.decision == decision


@pytest.mark.parametrize(("is_gated", "decision"), [(False, "allow"), (True, "ask")])
def test_so_is_a_thought(tmp_path, is_gated, decision):
    thought = Action(kind="think", name="think", is_gated=is_gated)
    assert permissions(str(tmp_path)).judge(thought).decision == decision


def test_a_rule_or_a_choice_for_it_still_saves_the_question(tmp_path):
    allowing = permissions(str(tmp_path), ("allow", "read"))
    assert allowing.judge(a_read(str(tmp_path), is_gated=True)).decision == "allow"

    asked = permissions(str(tmp_path)).judge(a_read(str(tmp_path), is_gated=True))
    assert {offer.kind for offer in asked.offers} >= {"allow_always", "reject_always"}


@pytest.mark.parametrize(
    ("rules", "has_restrictions"),
    [([], False), ([("allow", "read")], False), ([("ask", "edit")], True), ([("deny", "tool:x")], True)],
)
def test_rules_that_are_against_something_are_restrictions(tmp_path, rules, has_restrictions):
    assert permissions(str(tmp_path), *rules).has_restrictions is has_restrictions
