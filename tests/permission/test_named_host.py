"""Whether a rule names the very host of an address."""

from __future__ import annotations

import pytest

from coupler.permission.rules import Rule, names_host
from tables import table


@table(
    ("rule", "address", "is_named"),
    [
        ("fetch(http://127.0.0.1:8000/*)", "http://127.0.0.1:8000/a", True),
        ("fetch(http://localhost:8000/docs/*)", "http://localhost:8000/docs/a", True),
        ("fetch(http://localhost:8000/docs/*)", "http://localhost:8000/other", False),
        ("fetch(http://localhost:8000/*)", "http://localhost:9000/", False),
        ("fetch(http://localhost:8000/*)", "https://localhost:8000/", False),
        ("fetch(http://localhost:8000/*)", "http://user@localhost:8000/", False),
        ("fetch(http://*/*)", "http://localhost/", False),
        ("fetch(http://*.corp.example/*)", "http://wiki.corp.example/", False),
        ("fetch", "http://localhost/", False),
        ("fetch(*)", "http://localhost/", False),
        ("*", "http://localhost/", False),
        ("tool:fetch", "http://localhost/", False),
    ],
)
def test_only_a_rule_with_the_hosts_own_name_names_it(rule: str, address: str, is_named: bool) -> None:
    assert names_host([Rule.parse("allow", rule, "user")], address) == is_named


@pytest.mark.parametrize(("effect", "origin"), [("deny", "user"), ("ask", "user"), ("allow", "project")])
def test_what_allows_nothing_names_nothing(effect: str, origin: str) -> None:
    assert not names_host([Rule.parse(effect, "fetch(http://localhost/*)", origin)], "http://localhost/")
