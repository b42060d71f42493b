"""Rules by patterns of tool names and by kinds, and what is wrong with some."""

from typing import Any

import pytest

from coupler.langchain.permission import Rule, ToolRules
from tables import table


def rules(mapping: Any) -> ToolRules:
    return ToolRules(mapping, "acp.permissions")


@table(
    ("name", "kind", "effect"),
    [
        ("delete_all", "delete", "deny"),
        ("write_file", "edit", "allow"),
        ("edit_file", "edit", "ask"),
        ("read_file", "read", None),
    ],
)
def test_the_first_pattern_that_fits_a_name_or_a_kind_counts(
    name: str, kind: str, effect: str | None
) -> None:
    found = rules({"delete_*": "deny", "write_file": "allow", "kind:edit": "ask", "write_*": "deny"}).of(
        name, kind
    )
    assert (found.rule.effect if found else None) == effect


def test_a_rule_can_be_written_in_three_ways() -> None:
    written = rules(
        {
            "a": "ask",
            "b": Rule("ask", kind="execute", decisions=("approve", "edit")),
            "c": {"effect": "ask", "kind": "read", "decisions": "respond", "message": "Really?"},
        }
    )
    found = [each.rule for name in "abc" if (each := written.of(name, "other"))]
    assert [rule.decisions for rule in found] == [("approve", "reject"), ("approve", "edit"), ("respond",)]
    assert found[2].message == "Really?"
    assert written.kinds == {"b": "execute", "c": "read"}


@table(
    ("wrong", "told"),
    [
        ({"a": "alow"}, "the rule for 'a' is not 'alow': did you mean 'allow'?"),
        ({"a": 3}, "the rule for 'a' is allow, ask, deny or made with acp.Rule"),
        ({"a": {"efect": "ask"}}, "did you mean 'effect'?"),
        ({"a": {"kind": "read"}}, "has no `effect`"),
        ({"a": {"effect": "ask", "kind": "exekute"}}, "did you mean 'execute'?"),
        ({"a": {"effect": "ask", "decisions": ["aprove"]}}, "did you mean 'approve'?"),
        ({"a": {"effect": "ask", "decisions": []}}, "`decisions` is empty"),
        ({"kind:reed": "ask"}, "did you mean 'read'?"),
        ({"kin:read": "ask"}, "means no tool"),
        ({"": "ask"}, "a pattern is the name of a tool"),
        ({3: "ask"}, "a pattern is the name of a tool"),
        (["a"], "takes a mapping"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_with_the_nearest_word(wrong: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        rules(wrong)
    assert told in str(refused.value)
