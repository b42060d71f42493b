"""`[coder]`: what can be set for Coupler's own agent, by whom, and what is wrong with it."""

from __future__ import annotations

import pytest

from coupler.config import ConfigError

EVERYTHING = """
[coder]
model = "openai:small"
base_url = "https://models.example.org/v1"
context_window = 200000
models = ["openai:large", "local:/models/a b.gguf"]
mode = "planning"
sandbox = "on"
profiles = ["careful"]
"""


class Trusting:
    """Trusts every file."""

    def is_trusted(self, path: str, content: bytes) -> bool:
        return True


def values(config):
    said = config.coder
    single = [said.model, said.base_url, said.context_window, said.mode, said.sandbox]
    return single, [[entry.text for entry in each] for each in (said.models, said.profiles)]


def test_the_user_sets_everything(place):
    place.user_says(EVERYTHING)

    single, lists = values(place.load())

    assert single == ["openai:small", "https://models.example.org/v1", 200_000, "planning", "on"]
    assert lists == [["openai:large", "local:/models/a b.gguf"], ["careful"]]


def test_a_cloned_repository_names_no_model_and_no_address(place):
    place.project_says(EVERYTHING)

    config = place.load()

    assert values(config) == ([None, None, None, "interactive", "off"], [[], []])
    assert {note.key for note in config.notes} >= {"coder.model", "coder.base_url", "coder.sandbox"}


def test_a_trusted_project_names_the_model_but_neither_mode_nor_sandbox(place):
    place.user_says("[coder]\nsandbox = 'auto'\nmode = 'read-only'\nmodels = ['ollama:a']")
    place.project_says(EVERYTHING)

    single, lists = values(place.load(trust=Trusting()))

    assert single == ["openai:small", "https://models.example.org/v1", 200_000, "read-only", "auto"]
    assert lists == [["ollama:a", "openai:large", "local:/models/a b.gguf"], ["careful"]]


def test_variables_come_before_what_files_say(place):
    place.user_says(EVERYTHING)
    environ = {**place.environ, "COUPLER_MODEL": "ollama:b", "COUPLER_BASE_URL": "http://[::1]:8080"}

    config = place.load(environ=environ)

    assert (config.coder.model, config.coder.base_url) == ("ollama:b", "http://[::1]:8080")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("model = 'claude'", "must name provider and model"),
        ("model = 'anthropic:'", "must name provider and model"),
        ("model = 5", 'must be a model as "provider:name", not a number'),
        ('model = "a:\\nb"', "must be one line without control characters"),
        ("base_ulr = 'a:b'", "did you mean `base_url`"),
        ("models = ['a:b', 'sk-abc']", "item 2 of `coder.models`"),
        ("base_url = 'models.example.org'", "must begin with https:// or http://"),
        ("base_url = 'http://host:port/'", "is no address: look at its host and port"),
        ("base_url = 'http://host/v1?key=x'", "must end with its path"),
        ("base_url = 'http://:secret@host/v1'", "must hold no password"),
        ("context_window = 12", "must be a number of tokens from 4,000 to 100,000,000"),
        ("context_window = true", "must be a number of tokens, not true or false"),
        ("mode = 'auto'", 'must be "interactive" or'),
        ("sandbox = 'yes'", 'must be "off" or "auto" or "on"'),
        ("profiles = ['two words']", "must be the name of an agent"),
    ],
)
def test_what_is_wrong_is_said_and_its_value_is_not_repeated(place, line, complaint):
    place.user_says(f"[coder]\n{line}")

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert complaint in str(caught.value)
    assert "sk-abc" not in str(caught.value)
    assert "secret" not in str(caught.value)
