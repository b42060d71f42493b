"""Which model holds, and what somebody without one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coupler.coder.model.choice import ModelChoice, chosen_model, how_to_set_up, named_model, resolved_model
from coupler.coder.model.credentials import (
    PROVIDERS,
    Credentials,
    ModelError,
    ollama_address,
    store_credentials,
)
from coupler.config import load
from tables import table


class Profile(NamedTuple):
    model: str | None = None
    base_url: str | None = None


class Trusting:
    """Trusts every project, or none."""

    def __init__(self, trusts: bool) -> None:
        self._trusts = trusts

    def is_trusted(self, path: str, content: bytes) -> bool:
        return self._trusts


class Places:
    """What is said where about the model."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home, self.project = home, project
        self.environ = {"COUPLER_HOME": str(home), "HOME": str(home.parent / "person")}

    def user_says(self, lines: str) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "coupler.toml").write_text(f"[coder]\n{lines}\n")

    def project_says(self, lines: str) -> None:
        (self.project / ".git").mkdir(exist_ok=True)
        (self.project / "coupler.toml").write_text(f"[coder]\n{lines}\n")

    def config(self, trusts: bool = True, **environ: str) -> Any:
        return load(str(self.project), environ={**self.environ, **environ}, trust=Trusting(trusts))

    def chosen(
        self, profile: Profile | None = None, model: str | None = None, trusts: bool = True, **environ: str
    ) -> ModelChoice | None:
        return chosen_model(
            self.config(trusts, **environ), profile or Profile(), model, {**self.environ, **environ}
        )


@pytest.fixture
def places(coupler_home: Path, tmp_path: Path) -> Places:
    return Places(coupler_home, tmp_path)


def reached(choice: ModelChoice | None) -> tuple[str, str | None]:
    assert choice is not None
    return choice.name, choice.base_url


def test_without_anything_there_is_no_model(places: Places) -> None:
    assert places.chosen() is None


def test_who_is_asked_last_counts_only_if_nobody_else_says_anything(places: Places) -> None:
    said = []
    store_credentials(Credentials(model="openai:stored"))
    said.append(places.chosen())
    places.user_says('model = "openai:user"')
    said.append(places.chosen())
    places.project_says('model = "openai:project"')
    said.append(places.chosen())
    said.append(places.chosen(COUPLER_MODEL="openai:variable"))
    said.append(places.chosen(Profile("openai:profile"), COUPLER_MODEL="openai:variable"))
    said.append(places.chosen(Profile("openai:profile"), "openai:command", COUPLER_MODEL="openai:variable"))

    assert [choice.model for choice in said if choice is not None] == [
        *("stored", "user", "project", "variable", "profile", "command")
    ]


def test_a_cloned_repository_chooses_neither_model_nor_address(places: Places) -> None:
    places.project_says('model = "openai:theirs"\nbase_url = "https://theirs.example/v1"')

    assert places.chosen(trusts=False) is None
    places.user_says('model = "openai:mine"')
    assert reached(places.chosen(trusts=False)) == ("openai:mine", None)
    assert reached(places.chosen()) == ("openai:theirs", "https://theirs.example/v1")


def test_an_address_goes_with_the_model_that_it_was_set_with(places: Places) -> None:
    places.user_says('model = "openai:mine"\nbase_url = "http://box:8000/v1/"')

    assert reached(places.chosen()) == ("openai:mine", "http://box:8000/v1")
    assert reached(places.chosen(COUPLER_MODEL="openai:other")) == ("openai:other", "http://box:8000/v1")
    assert reached(places.chosen(COUPLER_MODEL="anthropic:claude")) == ("anthropic:claude", None)
    assert reached(places.chosen(Profile("anthropic:claude"))) == ("anthropic:claude", None)
    assert reached(places.chosen(Profile(None, "http://faster/v1"))) == ("openai:mine", "http://faster/v1")
    assert reached(places.chosen(model="anthropic:claude")) == ("anthropic:claude", None)


def test_a_trusted_projects_address_is_not_for_the_model_of_a_variable(places: Places) -> None:
    places.project_says('model = "openai:theirs"\nbase_url = "https://theirs.example/v1"')

    choice = places.chosen(COUPLER_MODEL="openai:mine")

    assert reached(choice) == ("openai:mine", None)


def test_the_usual_variables_name_an_address_too(places: Places) -> None:
    places.user_says('model = "openai:mine"')

    choice = places.chosen(OPENAI_BASE_URL="https://proxy.example/v1")

    assert reached(choice) == ("openai:mine", "https://proxy.example/v1")


def test_the_window_that_is_set_is_for_the_model_that_is_set(places: Places) -> None:
    places.user_says('model = "openai:mine"\ncontext_window = 50000')

    own, other = places.chosen(), places.chosen(Profile("openai:other"))

    assert own is not None
    assert other is not None
    assert (own.context_window, other.context_window) == (50_000, None)


def test_the_general_key_is_meant_for_models_where_the_set_one_is(places: Places) -> None:
    places.user_says('model = "openai:mine"\nbase_url = "http://box:8000/v1"')
    config = places.config()

    others = [
        named_model(text, config, Profile(), environ=places.environ) for text in ("openai:b", "anthropic:c")
    ]
    of_profile = places.chosen(Profile("groq:d"))

    assert [(each.base_url, each.is_main) for each in others] == [("http://box:8000/v1", True), (None, False)]
    assert of_profile is not None
    assert not of_profile.is_main


def test_a_login_makes_another_choice_of_the_same_model(places: Places) -> None:
    places.user_says('model = "openai:mine"')
    before = places.chosen()
    store_credentials(Credentials().with_login("openai:mine", None, ("openai", None), "sk-stored-0123456789"))

    after = places.chosen()

    assert before != after
    assert reached(before) == reached(after)


@table(
    ("text", "provider", "model"),
    [
        ("anthropic:claude-sonnet-5-5", "anthropic", "claude-sonnet-5-5"),
        ("Claude:opus", "anthropic", "opus"),
        ("google:gemini-3", "google_genai", "gemini-3"),
        ("openrouter:a/b:free", "openrouter", "a/b:free"),
        ("local:/models/a b.gguf", "local", "/models/a b.gguf"),
    ],
)
def test_a_text_names_provider_and_model(text: str, provider: str, model: str) -> None:
    choice = resolved_model(text, None, {})

    assert (choice.provider, choice.model, choice.name) == (provider, model, text)


@table("text", ["gpt-5", "groq:", ":x", "sk-0123456789", "a b:c", "openai:a\nb"])
def test_what_is_no_model_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ModelError, match=r"must (name provider and model|be one line)") as caught:
        resolved_model(text, None, {})

    assert text not in str(caught.value)


@table(
    ("host", "address"),
    [
        ("", "http://localhost:11434/v1"),
        ("0.0.0.0", "http://localhost:11434/v1"),
        (":8080", "http://localhost:8080/v1"),
        ("gpu-box", "http://gpu-box:11434/v1"),
        ("gpu-box:9000", "http://gpu-box:9000/v1"),
        ("https://ollama.example/", "https://ollama.example/v1"),
        ("http://box:80/ollama", "http://box:80/ollama/v1"),
        ("https://ollama.example:443", "https://ollama.example:443/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("[::1]:9000", "http://[::1]:9000/v1"),
    ],
)
def test_ollama_is_where_its_variable_says(host: str, address: str) -> None:
    assert ollama_address({"OLLAMA_HOST": host}) == address
    assert resolved_model("ollama:qwen3", None, {"OLLAMA_HOST": host}).base_url == address


def test_without_a_model_three_ways_are_told_and_which_key_is_there(places: Places) -> None:
    told = how_to_set_up({**places.environ, "ANTHROPIC_API_KEY": "sk-ant-0123456789"})

    for words in ("coupler login coder", "COUPLER_MODEL=", "COUPLER_BASE_URL=", "ollama:", "coupler.toml"):
        assert words in told
    assert "`ANTHROPIC_API_KEY` is set: `COUPLER_MODEL=anthropic:" in told
    assert "sk-ant" not in told
    assert "OPENAI_API_KEY" not in told


def test_the_models_that_are_named_as_examples_exist() -> None:
    from langchain_anthropic.data._profiles import _PROFILES as ANTHROPIC
    from langchain_openai.data._profiles import _PROFILES as OPENAI

    assert PROVIDERS["anthropic"].example in ANTHROPIC
    assert PROVIDERS["openai"].example in OPENAI
