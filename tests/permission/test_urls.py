"""Addresses against rules."""

import pytest

from permission.parts import Bench
from tables import table


@table(
    ("url", "rule", "decision"),
    [
        ("https://docs.python.org/3/", "fetch(https://docs.python.org/*)", "allow"),
        ("https://docs.python.org", "fetch(https://docs.python.org/*)", "allow"),
        ("https://docs.python.org", "fetch(https://docs.python.org)", "allow"),
        ("https://docs.python.org/3/?q=a", "fetch(https://docs.python.org/*)", "allow"),
        ("HTTPS://DOCS.Python.org/3/", "fetch(https://docs.python.org/*)", "allow"),
        ("https://docs.python.org:443/3/", "fetch(https://docs.python.org/*)", "allow"),
        ("https://docs.python.org/3/", "fetch(HTTPS://Docs.Python.ORG/3/*)", "allow"),
        ("https://docs.python.org/2/", "fetch(https://docs.python.org/3/*)", "ask"),
        ("http://docs.python.org/3/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org:8443/3/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org:8443/3/", "fetch(https://docs.python.org:8443/*)", "allow"),
        ("https://python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org.evil.com/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://evildocs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://evil.com/docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://evil.com/https://docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org@evil.com/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org:x@evil.com/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://user@docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://evil.com\\@docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org\\.evil.com/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://evil.com#@docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org#@evil.com/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org?@evil.com/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org/?q=a@b", "fetch(https://docs.python.org/*)", "allow"),
        ("https://evil.com?@docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org./", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org%2eevil.com/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs%2epython.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs\u3002python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://d\u043ecs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://\uff44ocs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://xn--dcs-7cd.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org/\u202e", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org /", "fetch(https://docs.python.org/*)", "ask"),
        (" https://docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org/\n", "fetch(https://docs.python.org/*)", "ask"),
        ("https:\t//docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https:docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https:/docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("https:///docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("//docs.python.org/", "fetch(https://docs.python.org/*)", "ask"),
        ("docs.python.org", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org:/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org:99999/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org:4 43/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org/3/../2/", "fetch(https://docs.python.org/3/*)", "ask"),
        ("https://docs.python.org/3/%2e%2e/2/", "fetch(https://docs.python.org/3/*)", "ask"),
        ("https://docs.python.org/3/%2E./2/", "fetch(https://docs.python.org/3/*)", "ask"),
        ("https://docs.python.org/3%2f..%2f2/", "fetch(https://docs.python.org/*)", "ask"),
        ("https://docs.python.org/3/%252e%252e/2", "fetch(https://docs.python.org/3/*)", "ask"),
        ("https://a.example.com/", "fetch(https://*.example.com/*)", "allow"),
        ("https://a.b.example.com/", "fetch(https://*.example.com/*)", "allow"),
        ("https://example.com/", "fetch(https://*.example.com/*)", "ask"),
        ("https://badexample.com/", "fetch(https://*.example.com/*)", "ask"),
        ("https://example.com.evil.com/", "fetch(https://*.example.com/*)", "ask"),
        ("https://evil.com/.example.com/", "fetch(https://*.example.com/*)", "ask"),
        ("https://anything.org/x", "fetch(https://*)", "allow"),
        ("http://anything.org/x", "fetch(https://*)", "ask"),
        ("http://127.0.0.1:8000/x", "fetch(http://127.0.0.1:8000/*)", "allow"),
        ("http://2130706433/", "fetch", "ask"),
        ("http://0x7f.1/", "fetch", "ask"),
        ("http://0177.0.0.1/", "fetch", "ask"),
        ("http://127.1/", "fetch", "ask"),
        ("http://[::1]/", "fetch", "ask"),
        ("http://[::ffff:127.0.0.1]/", "fetch", "ask"),
        ("http://[", "fetch", "ask"),
        ("file:///etc/passwd", "fetch", "ask"),
        ("ftp://example.com/", "fetch", "ask"),
        ("javascript:alert(1)", "fetch", "ask"),
        ("data:text/plain,x", "fetch", "ask"),
        ("", "fetch", "ask"),
        ("https://", "fetch", "ask"),
        ("https://example.com/x", "fetch", "allow"),
        ("https://example.com/x", "*", "allow"),
        ("https://example.com/x", "fetch(*)", "allow"),
        ("https://example.com/x", "execute", "ask"),
    ],
)
def test_a_rule_covers_the_addresses_it_says_and_no_others(
    bench: Bench, url: str, rule: str, decision: str
) -> None:
    verdict = bench.fetch(url, rule)
    assert verdict.decision == decision, verdict.reason


@table(
    "url",
    [
        "https://evil.com/",
        "http://evil.com/",
        "https://EVIL.com/x?y",
        "https://evil.com:8443/",
        "https://evil.com./",
        "https://user:password@evil.com/",
        "https://good.com@evil.com/",
        "https://evil.com\\@good.com/",
        "https://\uff45vil.com/",
        "https://evil\u3002com/",
        "https://evil.com/a/../b",
        " https://evil.com/",
        "ht\ntps://evil.com/",
    ],
)
def test_a_denied_host_is_denied_however_it_is_written(bench: Bench, url: str) -> None:
    assert bench.fetch(url, "fetch", deny=["fetch(https://evil.com/*)"]).decision == "deny"


@pytest.mark.parametrize("url", ["https://x.com/admin", "https://x.com/a/../admin", "https://x.com/%61dmin"])
def test_a_denied_path_is_denied_however_it_is_written(bench: Bench, url: str) -> None:
    assert bench.fetch(url, "fetch", deny=["fetch(https://x.com/admin*)"]).decision == "deny"


def test_what_is_not_denied_is_not_denied(bench: Bench) -> None:
    for url in ("https://notevil.com/", "https://evil.com.org/", "https://x.com/?evil.com"):
        assert bench.fetch(url, "fetch", deny=["fetch(https://evil.com/*)"]).decision == "allow"


def test_one_address_that_is_not_allowed_is_enough(bench: Bench) -> None:
    action = bench.action("fetch", urls=("https://a.com/", "https://b.com/"))
    assert bench.judge(action, ["fetch(https://a.com/*)"]).decision == "ask"


def test_a_fetch_that_does_not_say_its_address_is_asked_about(bench: Bench) -> None:
    assert bench.judge(bench.action("fetch"), ["fetch"]).decision == "ask"
