"""Whether somebody has named the very host of an address, and not just all hosts, or all below another."""

from __future__ import annotations

from collections.abc import Iterable

from coupler.permission.rule import PROJECT, Rule
from coupler.permission.url import Url, UrlPattern


def names_host(rules: Iterable[Rule], address: str) -> bool:
    """Whether one of the rules allows the address by the name of its host; a project's own cannot."""
    url = Url.parse(address)
    return any(
        rule.effect == "allow"
        and rule.origin != PROJECT
        and isinstance(rule.compiled, UrlPattern)
        and rule.compiled.host == url.host
        and rule.compiled.covers(url)
        for rule in rules
    )
