"""The search that the model's own provider runs: offered, shown, sent back, and refused in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent

from coder.editor import Turn
from coder.script import use
from coder.served_coder import Coder, Served, surroundings, write
from coder.talking import talk
from coupler.coder.model.chat_model import chat_model
from coupler.coder.model.choice import ModelChoice
from coupler.coder.model.credentials import Keyring
from coupler.coder.search_providers import SearchSettings
from coupler.coder.tools.web_search import ModelSearchMiddleware
from forked import run
from labs.scripted_model import Call, Pause, Search
from labs.strict_model import Move, StrictModel
from raw_client import COUPLER

SETTINGS = '[coder.search]\nprovider = "model"\n'
PAGES = (("LangGraph 3", "https://example.com/3"), ("Releases", "https://example.org/all"))
SEARCH = Search("langgraph latest release", PAGES)
CLAUDE = "anthropic:claude-sonnet-5-5"


@pytest.fixture
def strict() -> Iterator[StrictModel]:
    with StrictModel() as model:
        yield model
    assert not model.ledger.malformed
    assert not model.ledger.refusals
    assert not model.ledger.surprises


@pytest.fixture
def served(coder: Coder, strict: StrictModel) -> Callable[..., Served]:
    """A coder whose model is Anthropic's, with these settings."""

    def serve(config: str = SETTINGS, home: Path | None = None) -> Served:
        env = {"COUPLER_MODEL": CLAUDE, "COUPLER_BASE_URL": strict.url}
        return coder.served(config=config, home=home, env=env)

    return serve


def warnings(turn: Turn) -> str:
    return "\n".join(str(each["content"]["text"]) for each in turn.of("agent_thought_chunk"))


def addresses(call: dict[str, Any]) -> list[str]:
    return [each["content"]["uri"] for each in call["content"]]


def test_a_search_of_anthropics_is_shown_with_its_query_and_pages_and_is_sent_back_as_it_came(
    served: Callable[..., Served], strict: StrictModel, project: Path
) -> None:
    process = served()
    editor = process.opened(project)
    strict.begin([Move("I look. ", SEARCH, "It is ", "3.0."), Move("As I said: 3.0."), Move("Still.")])

    turn = editor.prompt("Which LangGraph is the latest?")
    later = editor.prompt("Sure?")

    (search,) = turn.uses
    assert (search["kind"], search["status"]) == ("fetch", "completed")
    assert search["title"] == "Web search: langgraph latest release"
    assert search["rawInput"] == {"query": "langgraph latest release"}
    assert addresses(search) == ["https://example.com/3", "https://example.org/all"]
    assert "encrypted" not in str(turn.updates)
    assert turn.text == "I look. It is 3.0."
    cited = [each["content"] for each in turn.of("agent_message_chunk") if "uri" in each["content"]]
    assert [each["uri"] for each in cited] == ["https://example.com/3"]
    assert later.text == "As I said: 3.0."
    assert "web_search" in strict.ledger.asked[0].tools

    process.leave()
    again = served(home=process.home)
    loaded, updates = again.loaded(editor.session, project)
    assert [each["title"] for each in updates if each["sessionUpdate"] == "tool_call"] == [search["title"]]
    assert loaded.prompt("And now?").text == "Still."
    again.leave()


@pytest.mark.parametrize("other", ["google_genai:gemini-3-pro", "openai:scripted"])
def test_another_model_goes_on_with_a_conversation_in_which_one_has_searched(
    coder: Coder, project: Path, other: str
) -> None:
    with StrictModel() as strict:
        models = f'[coder]\nmodels = ["{other}"]\n{SETTINGS}'
        env = {"COUPLER_MODEL": CLAUDE, "COUPLER_BASE_URL": strict.url}
        env |= {"GOOGLE_API_KEY": "g", "GOOGLE_GEMINI_BASE_URL": strict.url}
        env |= {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": f"{strict.url}/v1"}
        process = coder.served(config=models, env=env)
        editor = process.opened(project)
        strict.begin([Move("I look. ", SEARCH, "It is 3.0."), Move("So it is.")])
        editor.prompt("Which is the latest?")
        chosen = {"sessionId": editor.session, "configId": "model", "value": other}
        answer = editor.client.call("session/set_config_option", chosen)
        assert "result" in answer, answer

        turn = editor.prompt("Sure?")

        assert turn.text == "So it is.", strict.ledger
        process.leave()


def test_a_search_beside_calls_and_in_an_answer_that_is_paused_goes_on(
    served: Callable[..., Served], strict: StrictModel, project: Path
) -> None:
    process = served()
    editor = process.opened(project)
    listing = Call("list_directory", {"path": "."})
    strict.begin([Move(SEARCH, Pause()), Move("So far. ", SEARCH, listing), Move("Done.")])

    turn = editor.prompt("Look")

    assert [(use["kind"], use["status"]) for use in turn.uses] == [
        ("fetch", "completed"),
        ("fetch", "completed"),
        ("read", "completed"),
    ]
    assert turn.messages[-1] == "Done."
    assert not strict.left
    process.leave()


def test_openai_searches_by_its_responses_and_gets_its_searches_back(strict: StrictModel) -> None:
    # In this process: no server on this machine is OpenAI's own.
    choice = ModelChoice(name="openai:gpt-5.5", provider="openai", model="gpt-5.5")
    model: Any = chat_model(choice, Keyring({"OPENAI_API_KEY": "sk-of-the-tests"}))
    model.root_async_client.base_url = f"{strict.url}/v1"
    search = ModelSearchMiddleware({"m": model}, {"m": choice}, SearchSettings("model"))
    graph = create_agent(model, [added], middleware=[search])
    plan = [Move("I look. ", SEARCH, Call("added", {"a": 1, "b": 2})), Move("It is 3.0."), Move("Yes.")]
    strict.begin(plan, marker="web_search_call.action.sources")

    seen = talk(graph, "Which is the latest?", "Sure?")

    assert [reply.text for reply in seen.replies] == ["I look. \n\nIt is 3.0.", "Yes."]
    searched = next(call for call in seen.replies[0].tool_calls if call.name == "web_search")
    assert (searched.kind, searched.status) == ("fetch", "completed")
    assert "langgraph latest release" in searched.title
    assert [each.content.uri for each in searched.content] == [address for _, address in PAGES]
    assert "web_search" in strict.ledger.asked[-1].tools


def added(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_search_that_fails_says_why(
    served: Callable[..., Served], strict: StrictModel, project: Path
) -> None:
    process = served()
    editor = process.opened(project)
    strict.begin([Move(Search("x", error="max_uses_exceeded"), "I cannot search.")])

    turn = editor.prompt("Look")

    assert turn.use["status"] == "failed"
    assert "max_uses_exceeded" in str(turn.use["content"])
    process.leave()


def test_modes_and_rules_decide_whether_it_is_offered_because_nobody_can_be_asked(
    served: Callable[..., Served], strict: StrictModel, project: Path
) -> None:
    process = served()
    offered = {}
    for mode in ("interactive", "accept-edits", "read-only", "planning", "agentic"):
        editor = process.opened(project)
        editor.set_mode(mode)
        strict.begin([Move("Hello.")])
        editor.prompt("Hello")
        offered[mode] = "web_search" in strict.ledger.asked[-1].tools
    process.leave()
    for rule in ('deny = ["fetch"]', 'deny = ["tool:web_search"]', 'ask = ["tool:web_search"]'):
        process = served(f"[permissions]\n{rule}\n{SETTINGS}")
        strict.begin([Move("Hello.")])
        process.opened(project).prompt("Hello")
        offered[rule] = "web_search" in strict.ledger.asked[-1].tools
        process.leave()
    without = served("")
    strict.begin([Move("Hello.")])
    without.opened(project).prompt("Hello")
    offered["without the setting"] = "web_search" in strict.ledger.asked[-1].tools
    without.leave()

    assert [name for name, is_offered in offered.items() if is_offered] == [
        "interactive",
        "accept-edits",
        "planning",
        "agentic",
    ]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("openai:scripted", "openai:scripted has no web search: its server is not OpenAI's own"),
        ("google_genai:gemini-3-pro", "LangChain cannot send Google's searches back beside other tools"),
        ("ollama:qwen3-coder", "its provider offers none that the coder can use"),
    ],
)
def test_what_a_model_cannot_do_is_refused_in_words_once_and_it_works_without(
    coder: Coder, strict: StrictModel, project: Path, model: str, reason: str
) -> None:
    url = strict.url if model.startswith("google") else f"{strict.url}/v1"
    process = coder.served(config=SETTINGS, env={"COUPLER_MODEL": model, "COUPLER_BASE_URL": url})
    editor = process.opened(project)
    strict.begin([Move("Hello."), Move("Again.")])

    first, second = editor.prompt("Hello"), editor.prompt("Hello")

    assert reason in warnings(first)
    assert (
        "choose a model of Anthropic or of OpenAI itself, or set `provider` of [coder.search] to searxng"
        in (warnings(first))
    )
    assert warnings(second) == ""
    assert second.text == "Again."
    assert "web_search" not in strict.ledger.asked[-1].tools
    process.leave()


def test_settings_for_search_servers_beside_it_are_an_error_in_words(coder: Coder, project: Path) -> None:
    coder.model.plays(use("list_directory", path="."), "Hello.")
    process = coder.served(config=f'{SETTINGS}key_variable = "MY_OWN"\n')

    turn = process.opened(project).prompt("Hello")

    assert "takes no `key_variable`: take that out of [coder.search]" in warnings(turn)
    process.leave()


def test_doctor_says_whether_the_model_that_is_set_can_search(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, {"coupler.toml": SETTINGS})
    told = {}
    for model, url in ((CLAUDE, ""), ("openai:scripted", "http://127.0.0.1:9/v1")):
        env = {**surroundings(home, url or None), "COUPLER_MODEL": model}
        shown = run([*COUPLER, "doctor", "--offline"], cwd=tmp_path, env=env, capture_output=True, text=True)
        told[model] = " ".join(shown.stdout.split())

    assert "The search of the model's provider" in told[CLAUDE]
    assert "its server is not OpenAI's own" in told["openai:scripted"]
