"""Effort, temperature and output length: set in files and in the session, said in servers' own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coder.script import Asked, Scripted, use
from coder.served_coder import KEY, Coder, Served
from coupler.coder.model.choice import ModelChoice, resolved_model
from coupler.coder.model.settings import ModelSettings, efforts_of, request_arguments
from labs import scripted_model
from labs.langchain.model_server import Reply, refuses
from raw_client import Frame
from tables import table

THINKING = {"COUPLER_MODEL": "openai:gpt-oss-20b"}
"""A model that is known to have levels."""


def options_of(served: Served, project: Path) -> tuple[str, dict[str, Frame]]:
    answer = served.client.call("session/new", {"cwd": str(project), "mcpServers": []})["result"]
    return answer["sessionId"], by_id(answer["configOptions"])


def by_id(options: list[Frame]) -> dict[str, Frame]:
    return {each["id"]: each for each in options}


def chosen(served: Served, session: str, option: str, value: str) -> dict[str, Frame]:
    answer = served.client.call(
        "session/set_config_option", {"sessionId": session, "configId": option, "value": value}
    )
    return by_id(answer["result"]["configOptions"])


def values(option: Frame) -> list[str]:
    return [each["value"] for each in option["options"]]


def sent(asked: Asked) -> dict[str, Any]:
    names = ("reasoning_effort", "temperature", "max_tokens", "max_completion_tokens", "chat_template_kwargs")
    return {name: asked[name] for name in names if name in asked}


def a_session(served: Served, session: str, project: Path) -> Any:
    from coder.editor import Editor

    return Editor(served.client, session, project)


def test_the_effort_is_an_option_where_the_model_takes_it_and_nothing_is_sent_before_it_is_chosen(
    coder: Coder, project: Path
) -> None:
    coder.model.plays("One.", "Two.", "Three.", "Four.")
    served = coder.served(env=THINKING, config='[coder]\nmodels = ["openai:plain"]\n')
    session, options = options_of(served, project)
    editor = a_session(served, session, project)

    assert (options["effort"]["category"], options["effort"]["currentValue"]) == ("thought_level", "default")
    assert values(options["effort"]) == ["default", "low", "medium", "high"]
    editor.prompt("One")
    chosen(served, session, "effort", "high")
    editor.prompt("Two")
    without = chosen(served, session, "model", "openai:plain")
    editor.prompt("Three")
    again = chosen(served, session, "model", "openai:gpt-oss-20b")
    editor.prompt("Four")

    assert "effort" not in without
    assert values(again["effort"]) == ["default", "low", "medium", "high"]
    assert [sent(each) for each in coder.model.asked] == [{}, {"reasoning_effort": "high"}, {}, {}]
    served.leave()


def test_a_model_of_which_nothing_is_known_has_no_option(coder: Coder, project: Path) -> None:
    served = coder.served()

    assert "effort" not in options_of(served, project)[1]
    served.leave()


def test_what_the_file_sets_is_sent_and_the_effort_can_be_taken_back(coder: Coder, project: Path) -> None:
    coder.model.plays("One.", "Two.")
    served = coder.served(config='[coder]\neffort = "low"\ntemperature = 0.2\nmax_output_tokens = 500\n')
    session, options = options_of(served, project)
    editor = a_session(served, session, project)

    assert options["effort"]["currentValue"] == "low"
    editor.prompt("One")
    chosen(served, session, "effort", "default")
    editor.prompt("Two")

    rest = {"temperature": 0.2, "max_tokens": 500}
    assert [sent(each) for each in coder.model.asked] == [{"reasoning_effort": "low", **rest}, rest]
    served.leave()


def test_a_profile_has_settings_of_its_own_also_as_a_mode(coder: Coder, project: Path) -> None:
    coder.model.plays("One.", "Two.", "Three.")
    served = coder.served(
        env=THINKING,
        config=(
            '[coder]\neffort = "low"\ntemperature = 0.2\nprofiles = ["deep"]\n'
            '[agents.deep]\nagent = "coder"\neffort = "high"\n'
        ),
    )
    editor = served.opened(project)

    editor.prompt("One")
    editor.set_mode("deep")
    editor.prompt("Two")
    editor.set_mode("interactive")
    editor.prompt("Three")

    efforts = [sent(each) for each in coder.model.asked]
    low, high = ({"reasoning_effort": effort, "temperature": 0.2} for effort in ("low", "high"))
    assert efforts == [low, high, low]
    served.leave()


def test_the_chosen_effort_is_that_of_the_loaded_session(coder: Coder, project: Path) -> None:
    coder.model.plays("One.", "Two.")
    served = coder.served(env=THINKING)
    session, _ = options_of(served, project)
    chosen(served, session, "effort", "medium")
    a_session(served, session, project).prompt("One")
    served.leave()

    again = coder.served(env=THINKING, home=served.home)
    editor, _ = again.loaded(session, project)
    editor.prompt("Two")

    assert [sent(each) for each in coder.model.asked] == [{"reasoning_effort": "medium"}] * 2
    again.leave()


def test_a_change_of_the_model_is_told_once_with_the_efforts_of_the_new_one(
    coder: Coder, project: Path
) -> None:
    served = coder.served(config='[coder]\nmodels = ["openai:gpt-oss-20b"]\n')
    session, _ = options_of(served, project)
    change = {"sessionId": session, "configId": "model", "value": "openai:gpt-oss-20b"}
    request = served.client.request("session/set_config_option", change)

    served.client.send(request)
    frames = served.client.read_until(lambda frame: frame.get("id") == request["id"])

    updates = [each["params"]["update"] for each in frames if each.get("method") == "session/update"]
    told = [each for each in updates if each["sessionUpdate"] == "config_option_update"]
    assert [[*by_id(each["configOptions"])] for each in told] == [["mode", "model", "effort"]]
    served.leave()


def test_a_loaded_session_has_the_efforts_of_the_model_that_was_chosen_in_it(
    coder: Coder, project: Path
) -> None:
    coder.model.plays("One.", "Two.")
    config = '[coder]\nmodels = ["openai:gpt-oss-20b"]\n'
    served = coder.served(config=config)
    session, _ = options_of(served, project)
    chosen(served, session, "model", "openai:gpt-oss-20b")
    chosen(served, session, "effort", "high")
    a_session(served, session, project).prompt("One")
    served.leave()

    again = coder.served(config=config, home=served.home)
    answer = again.client.call("session/load", {"sessionId": session, "cwd": str(project), "mcpServers": []})
    a_session(again, session, project).prompt("Two")

    effort = by_id(answer["result"]["configOptions"])["effort"]
    assert (effort["currentValue"], values(effort)) == ("high", ["default", "low", "medium", "high"])
    assert [sent(each) for each in coder.model.asked] == [{"reasoning_effort": "high"}] * 2
    again.leave()


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        ("Unrecognized request argument supplied: reasoning_effort", {"temperature": 0.2, "max_tokens": 500}),
        ("Unsupported value: 'temperature' does not support 0.2 with this model.", None),
        ('"gpt-oss-20b" does not support thinking', {"temperature": 0.2, "max_tokens": 500}),
        ("Function tools with reasoning_effort are not supported for this model", None),
        ("Unknown parameter", {}),
    ],
)
def test_a_server_that_refuses_a_setting_is_asked_without_it_and_that_is_told_once(
    coder: Coder, project: Path, reason: str, left: dict[str, Any] | None
) -> None:
    every = {"reasoning_effort": "low", "temperature": 0.2, "max_tokens": 500}
    named = "temperature" if "temperature" in reason else "reasoning_effort"
    accepted = {name: value for name, value in every.items() if name != named} if left is None else left

    def picky(text: str) -> Scripted:
        def answer(asked: Asked) -> Reply | str:
            return text if sent(asked) == accepted else refuses(400, reason)

        return answer

    coder.model.plays(picky("One."), picky("One."), picky("Two."))
    served = coder.served(
        env=THINKING,
        config='[coder]\neffort = "low"\ntemperature = 0.2\nmax_output_tokens = 500\nretry_seconds = 0\n',
    )
    editor = served.opened(project)

    first = editor.prompt("One")
    second = editor.prompt("Two")

    assert (first.last_message, second.last_message) == ("One.", "Two.")
    assert str(first.updates).count("Settings that its server does not take") == 1
    assert "Settings that its server" not in str(second.updates)
    served.leave()


def test_a_setting_that_langchain_itself_refuses_is_left_out_as_well(coder: Coder, project: Path) -> None:
    server = scripted_model.serve()
    try:
        served = coder.served(
            env={
                "COUPLER_MODEL": "anthropic:claude-sonnet-5-5",
                "COUPLER_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}",
            },
            config="[coder]\ntemperature = 0.2\nretry_seconds = 0\n",
        )
        editor = served.opened(project)

        first = editor.prompt("Hello")
        second = editor.prompt("Hello again")

        assert [turn.last_message for turn in (first, second)] == ["Hello from the scripted model. "] * 2
        assert str(first.updates).count("`temperature` is not supported") == 1
        assert "is not supported" not in str(second.updates)
        served.leave()
    finally:
        server.shutdown()
        server.server_close()


def test_a_sub_agent_has_the_effort_of_its_profile_or_else_the_sessions(coder: Coder, project: Path) -> None:
    coder.model.plays(
        (use("delegate", task="Think", agent="deep"), use("delegate", task="Look", agent="explore")),
        lambda asked: "Found.",
        lambda asked: "Found.",
        "Done.",
    )
    served = coder.served(
        env=THINKING, config='[agents.deep]\nagent = "coder"\neffort = "high"\ntemperature = 0.1\n'
    )
    session, _ = options_of(served, project)
    chosen(served, session, "effort", "low")

    a_session(served, session, project).prompt("Go")

    by_task = {asked.prompts[-1]: sent(asked) for asked in coder.model.asked}
    assert by_task["Think"] == {"reasoning_effort": "high", "temperature": 0.1}
    assert by_task["Look"] == by_task["Go"] == {"reasoning_effort": "low"}
    served.leave()


def test_what_is_chosen_in_a_profiles_session_holds_for_the_sub_agents_that_are_like_it(
    coder: Coder, project: Path
) -> None:
    coder.model.plays(use("delegate", task="Look", agent="explore"), "Found.", "Done.")
    config = '[agents.deep]\nagent = "coder"\neffort = "high"\n'
    served = coder.served("--agent", "deep", env=THINKING, config=config)
    session, options = options_of(served, project)
    assert options["effort"]["currentValue"] == "high"
    chosen(served, session, "effort", "low")

    a_session(served, session, project).prompt("Go")

    assert [sent(asked) for asked in coder.model.asked] == [{"reasoning_effort": "low"}] * 3
    served.leave()


@table(
    ("line", "told"),
    [
        ('effort = "hihg"', "high"),
        ("effort = true", 'must be "off" or "on"'),
        ("temperature = 3", "must be a number from 0 to 2"),
        ('temperature = "warm"', "must be a number from 0 to 2, not a text"),
        ("max_output_tokens = 0", "must be a number of tokens from 16 to"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_is_right(line: str, told: str, coupler_home: Path) -> None:
    from coupler.config import ConfigError, load

    coupler_home.mkdir(exist_ok=True)
    for section in ("coder", "agents.mine"):
        (coupler_home / "coupler.toml").write_text(f"[{section}]\n{line}\n")
        with pytest.raises(ConfigError) as caught:
            load(None, environ={"COUPLER_HOME": str(coupler_home)})
        assert told in str(caught.value)


def choice_of(text: str, base_url: str | None = None) -> ModelChoice:
    return resolved_model(text, base_url, {})


@table(
    ("model", "base_url", "efforts"),
    [
        ("openai:gpt-4.1", None, ""),
        ("openai:o4-mini", None, "low medium high"),
        ("openai:gpt-5", None, "minimal low medium high"),
        ("openai:gpt-6.1-sol", None, "off low medium high xhigh max"),
        ("anthropic:claude-sonnet-4-5", None, "off low medium high"),
        ("anthropic:claude-sonnet-5-5", None, "low medium high xhigh max"),
        ("anthropic:claude-opus-5", None, "off low medium high xhigh max"),
        ("google_genai:gemini-3-pro", None, "low medium high"),
        ("deepseek:deepseek-v4-pro", None, "off low high max"),
        ("openai:kimi-k2.6", "https://api.moonshot.ai/v1", "off on"),
        ("openrouter:anthropic/claude-sonnet-5-5", None, "off low medium high"),
        ("openrouter:meta-llama/llama-4", None, ""),
        ("ollama:gpt-oss:20b", None, "low medium high"),
        ("ollama:qwen3:8b", None, "off on"),
        ("ollama:qwen3-coder", None, ""),
        ("openai:Qwen/Qwen3-32B", "http://127.0.0.1:8000/v1", "off on"),
        ("openai:anything", "http://127.0.0.1:8000/v1", ""),
    ],
)
def test_the_efforts_of_models_are_known(model: str, base_url: str | None, efforts: str) -> None:
    assert " ".join(efforts_of(choice_of(model, base_url))) == efforts


@table(
    ("model", "base_url", "effort", "arguments"),
    [
        ("openai:gpt-5.2", None, "high", {"reasoning_effort": "high"}),
        ("openai:gpt-5.2", None, "off", {"reasoning_effort": "none"}),
        ("openai:gpt-5.2", None, "default", {}),
        ("anthropic:claude-opus-5-5", None, "max", {"reasoning_effort": "max"}),
        ("anthropic:claude-opus-5", None, "off", {"thinking": {"type": "disabled"}}),
        (
            "anthropic:claude-sonnet-4-5",
            None,
            "high",
            {"thinking": {"type": "enabled", "budget_tokens": 24_000}},
        ),
        (
            "deepseek:deepseek-v4-pro",
            None,
            "high",
            {"reasoning_effort": "high", "extra_body": {"thinking": {"type": "enabled"}}},
        ),
        (
            "openai:kimi-k2.6",
            "https://api.moonshot.ai/v1",
            "off",
            {"extra_body": {"thinking": {"type": "disabled"}}},
        ),
        ("openrouter:openai/gpt-5", None, "low", {"extra_body": {"reasoning": {"effort": "low"}}}),
        ("openrouter:openai/gpt-5", None, "off", {"extra_body": {"reasoning": {"enabled": False}}}),
        ("ollama:qwen3", None, "off", {"reasoning_effort": "none"}),
        ("ollama:qwen3", None, "on", {"reasoning_effort": "medium"}),
        (
            "openai:Qwen/Qwen3-32B",
            "http://127.0.0.1:8000/v1",
            "off",
            {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        ),
        ("openai:anything", "http://127.0.0.1:8000/v1", "low", {"reasoning_effort": "low"}),
        ("cohere:command", None, "low", {}),
    ],
)
def test_the_effort_is_said_in_the_words_of_each_server(
    model: str, base_url: str | None, effort: str, arguments: dict[str, Any]
) -> None:
    assert request_arguments(choice_of(model, base_url), ModelSettings(effort=effort)) == arguments


@table(
    ("model", "effort", "told"),
    [
        ("claude-haiku-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 4_000}}),
        ("claude-opus-4-6", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "max", {"output_config": {"effort": "max"}}),
    ],
)
def test_anthropic_gets_the_effort_as_its_server_reads_it(
    model: str, effort: str, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from coupler.coder.model.chat_model import chat_model
    from coupler.coder.model.credentials import Keyring

    asked: list[dict[str, Any]] = []
    question = scripted_model.Anthropic.question
    monkeypatch.setattr(
        scripted_model.Anthropic,
        "question",
        staticmethod(lambda request: asked.append(request) or question(request)),
    )
    server = scripted_model.serve()
    try:
        port = server.server_address[1]
        choice = resolved_model(f"anthropic:{model}", f"http://127.0.0.1:{port}", {})
        client = chat_model(choice, Keyring({"COUPLER_API_KEY": KEY}))
        settings = ModelSettings(effort=effort, max_output_tokens=20_000)

        [*client.stream("Hello", **request_arguments(choice, settings))]
    finally:
        server.shutdown()
        server.server_close()

    assert {name: asked[0].get(name) for name in told} == told
    assert asked[0]["max_tokens"] == 20_000
