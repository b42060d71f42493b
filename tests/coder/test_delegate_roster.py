"""Who a task can be given to, by the configuration and by what is installed."""

import os

import pytest

from coupler.coder.other_agents import OtherAgent
from coupler.coder.profiles import CoderProfile
from coupler.coder.sub_agents import MOST_LINES, Roster
from coupler.config import load

OWN = CoderProfile(
    name="own",
    system="You are mine.",
    deny=("fetch",),
    hooks={"before_tool": ("check",), "turn_end": ("tidy",)},
)


@pytest.fixture
def roster(coupler_home, monkeypatch, tmp_path):
    """A function that writes the user's file, and makes a roster where no other program is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def made(text=""):
        coupler_home.mkdir(exist_ok=True)
        (coupler_home / "coupler.toml").write_text(text)
        return Roster(load(None, environ=os.environ), OWN)

    return made


def test_without_anything_there_are_the_coder_and_the_explorer(roster):
    assert roster().names()[:2] == ["coder", "explore"]
    assert "claude" not in roster().names()


def test_a_program_that_is_installed_is_told_of(roster, tmp_path):
    program = tmp_path / "claude-agent-acp"
    program.touch(mode=0o755)

    assert "- claude: Claude Code, another program" in roster().lines()


def test_one_that_is_not_installed_can_be_named_all_the_same(roster):
    assert isinstance(roster().find("claude"), OtherAgent)
    assert isinstance(roster().find("claude:acp"), OtherAgent)


def test_a_profile_is_told_of_with_the_beginning_of_its_instructions(roster):
    text = '[agents.reviewer]\nagent = "coder"\nsystem = """Review it.\n  Be kind."""\n'

    assert "- reviewer: a profile of coder: Review it. Be kind." in roster(text).lines()


def test_the_coder_and_the_explorer_are_as_who_gives_them_the_task(roster):
    coder, explorer = roster().find("coder"), roster().find("explore")

    assert coder == explorer
    assert (coder.system, coder.deny) == ("You are mine.", ("fetch",))


def test_what_the_giver_denies_and_checks_holds_for_other_profiles_too(roster):
    text = """
        [agents.reviewer]
        agent = "coder"
        tools.deny = ["execute"]
        hooks.before_tool = "look"
        hooks.after_tool = "note"
        hooks.turn_end = "never"
    """

    reviewer = roster(text).find("reviewer")

    assert reviewer.deny == ("fetch", "execute")
    assert reviewer.hooks == {"before_tool": ("check", "look"), "after_tool": ("note",)}


def test_an_agent_of_the_user_that_is_called_explore_goes_first(roster):
    there = roster('[agents.explore]\ncommand = ["surveyor"]\n')

    assert isinstance(there.find("explore"), OtherAgent)
    assert not there.is_explorer("explore")


def test_a_profile_of_another_agent_has_what_its_tables_say(roster):
    text = """
        [agents.other]
        command = ["other"]
        system = "Be kind."
        mode = "careful"
        options.depth = 1
        [agents.tuned]
        agent = "other"
        mode = "bold"
        options.speed = "high"
    """

    tuned = roster(text).find("tuned")

    assert (tuned.system, tuned.mode) == ("Be kind.", "bold")
    assert tuned.options == {"depth": 1, "speed": "high"}


@pytest.mark.parametrize("name", ["", "sh", "sh -c true", "/bin/sh", "coder:acp", "claude:shell", "nobody"])
def test_whoever_is_not_known_by_name_is_nobody(roster, name):
    with pytest.raises(ValueError, match="there is no agent"):
        roster().find(name)


def test_a_long_list_is_told_in_part(roster):
    text = "\n".join(f'[agents.a{number}]\nagent = "coder"' for number in range(100))

    assert len([*roster(text).lines()]) == MOST_LINES
    assert roster(text).find("a99").name == "a99"
