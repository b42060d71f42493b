"""Rules as they are written, and what is said of wrong ones."""

import pytest

from coupler.permission.rules import Rule
from tables import table


@table(
    "text",
    [
        "*",
        "read",
        "edit(src/**)",
        "edit(/etc/hosts)",
        "edit(src/a(b)/**)",
        "execute",
        "execute(*)",
        "execute(git commit *)",
        "execute(grep 'two words' *)",
        "fetch(https://docs.python.org/*)",
        "fetch(https://*.example.com:8443/a/*)",
        "fetch(*)",
        "tool:lookup_price",
        "tool:lookup_*",
        "mcp:github",
        "mcp:github(*)",
        "mcp:github(create_issue)",
        "think",
        "switch_mode",
        "other",
    ],
)
def test_a_rule_is_read_and_shown_as_it_was_written(text: str) -> None:
    assert str(Rule.parse("allow", text, "user")) == text


def test_a_rule_tells_where_it_stands() -> None:
    assert Rule.parse("deny", "read", "user").described == "`read` in your coupler.toml"
    assert Rule.parse("deny", "read", "project").described == "`read` in the project's coupler.toml"
    assert Rule.parse("deny", "read", "the command line").described == "`read` in the command line"


@table(
    ("text", "problem"),
    [
        ("", "there is no subject ``"),
        ("raed", "did you mean `read`?"),
        ("Edit(src)", "did you mean `edit`?"),
        ("exec(git *)", "did you mean `execute`?"),
        ("bash(git *)", "write one of read, edit"),
        ("read(", "its brackets do not match"),
        ("read(x", "its brackets do not match"),
        ("read)x(", "its brackets do not match"),
        ("read(x)y", "its brackets do not match"),
        ("read()", "its pattern is empty: write `read` for all"),
        ("read:x", "`read` takes no name"),
        ("think(x)", "`think` takes no pattern: write `think`"),
        ("*(x)", "`*` takes no pattern"),
        ("tool", "it names no tool: write `tool:lookup_price`"),
        ("tool:", "it names no tool"),
        ("tool:x(y)", "a tool takes no pattern: write `tool:x`"),
        ("mcp", "it names no server: write `mcp:github(*)`"),
        ("mcp:x()", "its pattern is empty: write `mcp:x(*)`"),
        ("edit(../x)", "its path has `..`: write where it leads"),
        ("edit(src/**.py)", "write `src/**/*.py`"),
        ("edit(a\0b)", "cannot be shown"),
        ("edit(~nobody-of-this-name/x)", "its home directory is not known"),
        ("execute(a; b)", "write a rule for each single command"),
        ("execute(a && b)", "write a rule for each single command"),
        ("execute(a | b)", "write a rule for each single command"),
        ("execute(echo $X)", "write a rule for each single command"),
        ("execute(a > b)", "write a rule for each single command"),
        ("execute(git 'x)", "its quotes do not match"),
        ("execute('')", "its program is empty"),
        ("execute(gi* status)", "its program has a wildcard"),
        ("execute(* status)", "its program has a wildcard"),
        ("fetch(docs.python.org)", "write for example `https://docs.python.org/*`"),
        ("fetch(ftp://x.org/)", "neither http nor https"),
        ("fetch(https://me@x.org/)", "leave out what stands before the @"),
        ("fetch(https://x.org:0/)", "its port '0'"),
        ("fetch(https://x.org:http/)", "its port 'http'"),
        ("fetch(https://*example.com/)", "write `*.example.com`"),
        ("fetch(https://a.*.com/)", "write `*.example.com`"),
        ("fetch(https://bücher.de/)", "write it as `xn--bcher-kva.de`"),
        ("fetch(https://x..org/)", "is not a name"),
        ("fetch(https:///x)", "is not a name"),
    ],
)
def test_a_wrong_rule_is_named_with_what_is_wrong_and_how_to_write_it(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        Rule.parse("allow", text, "user")
    message = str(caught.value)
    assert message.startswith(f"the rule `{text}` in your coupler.toml is wrong: ")
    assert problem in message


def test_an_effect_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="write allow, ask or deny"):
        Rule.parse("permit", "read", "user")
