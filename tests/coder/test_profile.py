"""Profiles of the coder, as `coupler.toml` has them."""

import os

import pytest

from coupler.coder.profiles import ProfileError, profile_names, profile_of
from coupler.config import load
from coupler.providers.catalogue import resolve


@pytest.fixture
def configured(coupler_home):
    """A function that writes the user's file and reads it as configuration."""

    def write(text):
        coupler_home.mkdir(exist_ok=True)
        (coupler_home / "coupler.toml").write_text(text)
        return load(None, environ=os.environ)

    return write


def test_the_coder_itself_is_a_profile_without_a_table(configured):
    profile = profile_of("coder", configured(""))

    assert profile.name == "coder"
    assert (profile.system, profile.model, profile.mcp) == (None, None, None)


def test_what_a_profile_leaves_open_is_as_the_one_below_has_it(configured):
    config = configured("""
        [agents.coder]
        system = "Be kind."
        model = "openai:small"
        tools.deny = ["fetch"]
        [agents.reviewer]
        agent = "coder"
        system = "Review, and change nothing."
        mode = "read-only"
        tools.deny = ["execute(git push *)"]
        hooks.turn_end = "notify-send done"
        [agents.strict]
        agent = "reviewer"
        model = "openai:large"
        mcp = ["issues"]
        [mcp.issues]
        command = "issues-mcp"
    """)

    strict = profile_of("strict", config)

    assert strict.system == "Review, and change nothing."
    assert strict.model == "openai:large"
    assert strict.mode == "read-only"
    assert strict.deny == ("fetch", "execute(git push *)")
    assert strict.mcp == ("issues",)
    assert strict.hooks == {"turn_end": ("notify-send done",)}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("reveiwer", "did you mean 'reviewer'?"),
        ("unheard-of", '[agents.unheard-of] with agent = "coder"'),
        ("other", "the agent other is not based on `coder`"),
        ("mine", "the agent mine is not based on `coder`"),
        ("circle", "the agent circle is not based on `coder`"),
    ],
)
def test_what_is_no_profile_is_refused_with_what_there_is(configured, name, told):
    config = configured("""
        [agents.reviewer]
        agent = "coder"
        [agents.other]
        agent = "claude"
        [agents.mine]
        command = "my-agent --acp"
        [agents.circle]
        agent = "other-circle"
        [agents.other-circle]
        agent = "circle"
    """)

    with pytest.raises(ProfileError) as error:
        profile_of(name, config)

    assert told in str(error.value)
    assert profile_names(config) == ["coder", "reviewer"]


def test_a_profile_is_started_by_its_own_name(configured):
    configured('[agents.reviewer]\nagent = "coder"\nmodel = "openai:small"\n')

    chosen = resolve("reviewer")

    assert chosen is not None
    assert chosen.command == ("coupler", "serve", "--agent", "reviewer")


def test_an_mcp_server_that_is_not_set_is_refused_by_name(configured):
    config = configured(
        '[agents.reviewer]\nagent = "coder"\nmcp = ["isues"]\n[mcp.issues]\ncommand = "issues"\n'
    )

    with pytest.raises(ProfileError, match="'isues', which is not set: did you mean 'issues'"):
        profile_of("reviewer", config)
