"""The names that templates and expressions use."""

from __future__ import annotations

from coupler.workflow.expressions.expression import Reference, references, references_of_expression
from tables import table


@table(
    ("template", "found"),
    [
        ("no template", []),
        ("{{ broken", []),
        ("{{ steps.diff.stdout }}", [Reference(("steps", "diff", "stdout"), 1)]),
        ("a\n{{ inputs['x'] }}", [Reference(("inputs", "x"), 2)]),
        ("{{ steps.a.results[0].b.text }}", [Reference(("steps", "a", "results", 0, "b", "text"), 1)]),
        ("{{ steps.a.stdout.strip().x }}", [Reference(("steps", "a", "stdout"), 1)]),
        ("{{ steps[inputs.name].stdout }}", [Reference(("steps",), 1), Reference(("inputs", "name"), 1)]),
        ("{{ steps.a[1:vars.n] }}", [Reference(("steps", "a"), 1), Reference(("vars", "n"), 1)]),
        ("{{ x | default(y) }}", [Reference(("x",), 1, True), Reference(("y",), 1)]),
        ("{{ steps.a.text is defined }}", [Reference(("steps", "a", "text"), 1, True)]),
        ("{{ x | join(y) if z is none else [w] }}", [Reference((name,), 1) for name in "zxyw"]),
        (
            "{% for a in b %}{{ a.c }}{{ loop.index }}{{ d }}{% endfor %}",
            [Reference(("b",), 1), Reference(("d",), 1)],
        ),
        (
            "{% set a = b %}\n{{ a }}{{ range(3) }}{% if c %}{{ d }}{% endif %}",
            [Reference(("b",), 1), Reference(("c",), 2), Reference(("d",), 2)],
        ),
    ],
)
def test_the_names_of_a_template_are_found_in_their_lines(template: str, found: list[Reference]) -> None:
    assert sorted(references(template)) == sorted(found)


def test_the_names_of_an_expression_are_found() -> None:
    found = references_of_expression("steps.gate.approved and\n not inputs.n > vars.m")

    assert found == [
        Reference(("steps", "gate", "approved"), 1),
        Reference(("inputs", "n"), 2),
        Reference(("vars", "m"), 2),
    ]
    assert references_of_expression("a b") == []
