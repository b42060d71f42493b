"""`[agents.NAME]`: how an agent is started and set up, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coupler.client.errors import AgentError
from coupler.config import load
from coupler.config.lookup import ConfigError
from coupler.providers.catalogue import choose_form, merged_entries


def config_of(home: Path, text: str) -> Any:
    home.mkdir(parents=True, exist_ok=True)
    (home / "coupler.toml").write_text(text)
    return load(None, environ={"COUPLER_HOME": str(home)})


def test_a_table_sets_an_agent_up_with_files_from_its_own_directory_on(coupler_home: Path) -> None:
    config = config_of(
        coupler_home,
        """
        [agents.reviewer]
        agent = "claude:native"
        system = '''Two
        lines'''
        model = "opus"
        mode = "read_only"
        options = { effort = "high", max_turns = 3 }
        tools = { allow = ["read(**)"], deny = ["edit(**)"] }
        context = ["docs/style.md"]
        skills = ["/skills/review.md"]
        """,
    )

    (table,) = config.agents

    assert (table.agent, table.model, table.mode) == ("claude:native", "opus", "read_only")
    assert table.system.startswith("Two\n")
    assert table.options == {"effort": "high", "max_turns": 3}
    assert (table.allow, table.deny) == (("read(**)",), ("edit(**)",))
    assert table.context == (str(coupler_home / "docs" / "style.md"),)
    assert table.skills == ("/skills/review.md",)


def test_rules_may_only_forbid(coupler_home: Path) -> None:
    config = config_of(coupler_home, '[agents.reviewer]\nagent = "claude"\ntools = { deny = ["edit(**)"] }\n')

    (table,) = config.agents

    assert (table.allow, table.deny) == ((), ("edit(**)",))


def test_a_profile_of_the_coder_has_an_address_servers_and_hooks(coupler_home: Path) -> None:
    config = config_of(
        coupler_home,
        """
        [agents.careful]
        agent = "coder"
        base_url = "http://localhost:8000/v1"
        mcp = ["github", "docs", "github"]
        [agents.careful.hooks]
        before_tool = "check-it --fast"
        turn_end = ["make lint", "make test"]
        [agents.plain]
        agent = "coder"
        [agents.alone]
        agent = "coder"
        mcp = []
        """,
    )

    careful, plain, alone = config.agents

    assert careful.base_url == "http://localhost:8000/v1"
    assert careful.mcp == ("github", "docs")
    assert careful.hooks == {"before_tool": ("check-it --fast",), "turn_end": ("make lint", "make test")}
    assert (plain.base_url, plain.mcp, plain.hooks) == (None, None, {})
    assert alone.mcp == ()


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ('agent = "claude"\ncommand = "x"', "either `command` or `agent`, not both"),
        ('agent = "npx -y thing"', "a command line goes into `command`"),
        ('agent = "x"', "must be another agent than itself"),
        ("system = 5", "must be a text that is not empty, not a number"),
        ('sistem = "x"', "did you mean `system`"),
        ('tools = { alow = ["read(**)"] }', "did you mean `allow`"),
        ('tools = { allow = "read(**)" }', "must be a list of texts, not a text"),
        ("options = { x = [1] }", "must be a text, a number, true or false, not a list"),
        ("context = [5]", "item 1 of `agents.x.context`"),
        ('base_url = "localhost:8000"', "must begin with https:// or http:// and name a host"),
        ('base_url = "https://me:pw@host/v1"', "must hold no password"),
        ("mcp = { command = 'x' }", "the servers are tables [mcp.NAME]"),
        ('mcp = "github"', "must be a list of names, not a text"),
        ('hooks = "make lint"', "must be a table with a command line for each event, not a text"),
        ('hooks = { beforetool = "x" }', "did you mean `before_tool`"),
        ("hooks = { before_tool = 5 }", "must be a command line or a list of them, not a number"),
        ('hooks = { turn_end = ["make", ""] }', "item 2 of `agents.x.hooks.turn_end`"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_right(coupler_home: Path, lines: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(coupler_home, f"[agents.x]\n{lines}\n")

    assert complaint in str(caught.value)


def test_an_agent_that_stands_on_another_is_started_like_it(coupler_home: Path) -> None:
    entries = merged_entries(
        config_of(
            coupler_home,
            """
            [agents.mine]
            command = ["mine", "--acp"]
            env = { A = "1", B = "1" }
            [agents.top]
            agent = "mine"
            title = "Top"
            env = { A = "2" }
            [agents.native]
            agent = "claude:native"
            """,
        )
    )

    assert entries["top"].programs == (("mine", "--acp"),)
    assert (entries["top"].name, entries["top"].title) == ("top", "Top")
    assert entries["top"].env == {"A": "2", "B": "1"}
    assert (entries["native"].programs, entries["native"].native) == ((), "claude")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[agents.a]\nagent = "nobody"', "Its `agent`, nobody, is unknown"),
        ('[agents.a]\nagent = "b"\n[agents.b]\nagent = "a"', "in the end stands on itself"),
    ],
)
def test_an_agent_that_stands_on_nothing_cannot_be_started(
    coupler_home: Path, text: str, complaint: str
) -> None:
    entry = merged_entries(config_of(coupler_home, text))["a"]

    with pytest.raises(AgentError, match=complaint):
        choose_form(entry)
