"""LangChain's clients of models: what they are made of, and what becomes of trouble, over real HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage, content
from langchain_openai import ChatOpenAI

from coupler.coder.model.chat_model import chat_model, chat_models, model_middleware
from coupler.coder.model.choice import ModelChoice, resolved_model
from coupler.coder.model.credentials import Keyring, ModelError
from coupler.langchain.errors import failure_of
from coupler.runtime.extras import MissingExtraError
from labs.langchain.model_server import RATE_LIMITED, TOO_LONG, ModelServer, Reply, refuses, says
from tables import table

KEY = "sk-of-this-test-0123456789"


def a_model(text: str, base_url: str | None = None, **environ: str) -> BaseChatModel:
    return chat_model(resolved_model(text, base_url, environ), Keyring({"COUPLER_API_KEY": KEY, **environ}))


def chunks_of(model: BaseChatModel) -> list[Any]:
    async def ask() -> list[Any]:
        return [chunk async for chunk in model.astream("Hello")]

    return asyncio.run(ask())


def text_of(model: BaseChatModel) -> str:
    return "".join(str(chunk.text) for chunk in chunks_of(model))


def test_a_server_that_speaks_as_openai_does_is_asked_with_the_key() -> None:
    with ModelServer([says("Good ", "day")]) as server:
        model = a_model("openai:some-model", server.url)

        chunks = chunks_of(model)

    assert "".join(str(chunk.text) for chunk in chunks) == "Good day"
    assert server.asked[0]["model"] == "some-model"
    assert server.asked[0]["stream_options"] == {"include_usage": True}
    assert sum((chunk.usage_metadata or {}).get("total_tokens", 0) for chunk in chunks) == 15


def test_langchain_works_out_its_types_of_blocks_once() -> None:
    a_model("anthropic:claude-sonnet-5-5")

    work_out = content._get_data_content_block_types  # type: ignore[attr-defined]
    assert "image" in work_out()
    assert work_out() is work_out()


def test_reasoning_of_an_answer_in_one_piece_is_read_like_that_of_a_stream() -> None:
    replies = {
        "field": Reply([{"reasoning_content": "Hm."}, {"content": "Yes"}]),
        "other field": Reply([{"reasoning": "Hm."}, {"content": "Yes"}]),
        "block": says("<think>Hm.</think>\n\nYes"),
        "none": says("Yes"),
    }
    found = {}
    with ModelServer([*replies.values()]) as server:
        model = a_model("openai:some-model", server.url)
        model.disable_streaming = True
        for name in replies:
            answer = model.invoke("Hello")
            found[name] = (answer.text, answer.additional_kwargs.get("reasoning_content"))

    assert "stream" not in server.asked[0] or not server.asked[0]["stream"]
    assert found == {name: ("Yes", None if name == "none" else "Hm.") for name in replies}


def test_reasoning_is_read_the_same_by_a_program_without_an_event_loop() -> None:
    with ModelServer([says("<thi", "nk>Hm.</think>", "Yes")]) as server:
        chunks = [*a_model("openai:some-model", server.url).stream("Hello")]

    whole = sum(chunks[1:], chunks[0])
    assert (whole.text, whole.additional_kwargs["reasoning_content"]) == ("Yes", "Hm.")


def test_ollama_is_a_server_that_needs_no_key() -> None:
    with ModelServer([says("Good day")]) as server:
        host = server.url.removesuffix("/v1")
        choice = resolved_model("ollama:qwen3", None, {"OLLAMA_HOST": host})

        assert text_of(chat_model(choice, Keyring({}))) == "Good day"

    assert server.asked[0]["model"] == "qwen3"


def test_a_provider_without_its_package_is_reached_as_openai_is() -> None:
    with ModelServer([says("Good day")]) as server:
        model = a_model("openrouter:some/model", server.url)

        assert text_of(model) == "Good day"

    assert isinstance(model, ChatOpenAI)
    assert "openrouter.ai" in str(a_model("openrouter:some/model").openai_api_base)  # type: ignore[attr-defined]


def test_anthropic_has_its_own_client_and_reads_again_at_a_lower_price() -> None:
    from langchain_anthropic import ChatAnthropic  # takes seconds, which every worker would pay

    model = a_model("anthropic:claude-sonnet-5-5")

    assert isinstance(model, ChatAnthropic)
    assert model.anthropic_api_key.get_secret_value() == KEY
    others = {type(each) for each in model_middleware({"a": a_model("openai:gpt-6.1-sol")})}
    added = {type(each).__name__ for each in model_middleware({"a": model}) if type(each) not in others}
    assert added == {"AnthropicPromptCachingMiddleware"}


def test_a_client_never_shows_its_key() -> None:
    for text in (
        "openai:m",
        "anthropic:claude-sonnet-5-5",
        "ollama:m",
        "groq:m",
        "google_genai:gemini-3-pro",
    ):
        model = a_model(text)

        assert KEY not in repr(model)
        assert KEY not in str(model.model_dump())


class TestWindow:
    def test_langchain_knows_those_of_many_models(self) -> None:
        assert window(a_model("anthropic:claude-sonnet-5-5")) == 1_000_000

    @table(
        ("text", "base_url", "size"),
        [
            ("openai:unheard-of", None, 128_000),
            ("ollama:qwen3", None, 32_000),
            ("openai:qwen3", "http://127.0.0.1:8000/v1", 32_000),
            ("openai:qwen3", "https://far.example/v1", 128_000),
        ],
    )
    def test_of_others_a_safe_size_is_assumed(self, text: str, base_url: str | None, size: int) -> None:
        assert window(a_model(text, base_url)) == size

    def test_what_is_set_counts(self) -> None:
        choice = ModelChoice(
            name="openai:gpt-6.1-sol", provider="openai", model="gpt-6.1-sol", context_window=9000
        )

        assert window(chat_model(choice, Keyring({"OPENAI_API_KEY": KEY}))) == 9000


def window(model: BaseChatModel) -> Any:
    return (model.profile or {}).get("max_input_tokens")


class TestBeforeAnythingIsAsked:
    def test_a_missing_key_is_told_with_the_variables_that_would_hold_it(self) -> None:
        with pytest.raises(
            ModelError, match="set ANTHROPIC_API_KEY or COUPLER_API_KEY, or run `coupler login coder`"
        ):
            chat_model(resolved_model("anthropic:claude", None, {}), Keyring({}))

    @pytest.mark.parametrize("package", ["langchain_openai", "langchain_anthropic"])
    def test_a_missing_package_is_told_with_what_installs_it(
        self, package: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, package, None)

        with pytest.raises(MissingExtraError, match=r'pip install "coupler\[coder\]"'):
            a_model(f"{package.removeprefix('langchain_')}:m")

    def test_the_package_of_another_provider_is_named(self) -> None:
        with pytest.raises(MissingExtraError, match="pip install langchain-cohere"):
            a_model("cohere:command")

    @pytest.mark.parametrize(
        ("text", "hint"), [("antropic:claude", "Did you mean anthropic?"), ("zzz:m", "Use one of anthropic,")]
    )
    def test_a_provider_that_nobody_knows_is_told_with_the_nearest(self, text: str, hint: str) -> None:
        with pytest.raises(ModelError) as caught:
            a_model(text)

        assert hint in str(caught.value)
        assert KEY not in str(caught.value)

    def test_a_model_that_cannot_be_offered_leaves_the_others_alone(self) -> None:
        choices = {text: resolved_model(text, None, {}) for text in ("openai:a", "cohere:b", "openai:c")}

        models = chat_models(choices, Keyring({"OPENAI_API_KEY": KEY}))

        assert [*models] == ["openai:a", "openai:c"]
        with pytest.raises(MissingExtraError):
            chat_models({"cohere:b": choices["cohere:b"]}, Keyring({"COUPLER_API_KEY": KEY}))


class TestTrouble:
    @table(
        ("reply", "kind", "words"),
        [
            (refuses(401, f"Incorrect API key: {KEY}"), "auth", "refused the credentials"),
            (
                refuses(404, "The model `m` does not exist", "model_not_found"),
                "no_model",
                "has no such model",
            ),
            (RATE_LIMITED, "rate_limit", "limits the rate"),
            (TOO_LONG, "context_length", "longer than the model can read"),
            (refuses(500, "on fire"), "unavailable", "has failed"),
        ],
    )
    def test_what_a_server_refuses_ends_as_a_sentence(self, reply: Reply, kind: str, words: str) -> None:
        with ModelServer([reply]) as server:
            failure = failure_from(a_model("openai:m", server.url))

        assert failure.data["kind"] == kind
        assert words in str(failure)
        assert KEY not in str(failure)

    def test_a_key_that_a_server_repeats_is_in_no_error_however_it_is_asked(self) -> None:
        with ModelServer([refuses(401, f"Incorrect API key: {KEY}")]) as server:
            model = a_model("openai:m", server.url)
            errors = []
            for ask in (lambda: text_of(model), lambda: model.invoke("Hello")):
                with pytest.raises(Exception, match="Incorrect API key") as caught:
                    ask()
                errors.append(caught.value)

        for error in errors:
            assert KEY not in f"{error!r} {error} {getattr(error, 'body', '')} {error.__cause__!r}"

    @pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
    def test_a_server_that_is_not_there_ends_as_a_sentence(self, provider: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        failure = failure_from(a_model(f"{provider}:m", f"http://127.0.0.1:{port}/v1"))

        assert failure.data["kind"] == "network"
        assert "could not be reached" in str(failure)


def failure_from(model: BaseChatModel) -> Any:
    with pytest.raises(Exception) as caught:
        text_of(model)
    failure = failure_of(caught.value, caught.value)
    assert failure is not None, caught.value
    return failure


def test_a_conversation_is_sent_as_langchain_sends_it_in_every_request() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"name": "read_file", "args": {"path": "ä.py"}, "id": "call_1", "type": "tool_call"}
    conversation: list[BaseMessage] = [
        SystemMessage("Be brief."),
        HumanMessage([{"type": "text", "text": 'Look: "ü" \u2028 \\'}, picture]),
        AIMessage("", tool_calls=[call]),
        ToolMessage("print()", tool_call_id="call_1"),
        AIMessage("It prints."),
        HumanMessage("Thanks"),
    ]
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
    with ModelServer([says("fine")] * 8) as server:
        ours = a_model("openai:some-model", server.url).bind(tools=[tool], temperature=0.5)
        theirs = ChatOpenAI(model="some-model", base_url=server.url, api_key=KEY, stream_usage=True)  # type: ignore[arg-type]

        async def ask(model: Any, messages: list[BaseMessage]) -> dict[str, Any]:
            async for _ in model.astream(messages):
                pass
            return server.asked[-1]

        async def ask_both() -> None:
            # Growing, then shorter with another beginning.
            for messages in (conversation[:2], conversation[:4], conversation, conversation[1:2]):
                sent = await ask(ours, messages)
                assert sent == await ask(theirs.bind(tools=[tool], temperature=0.5), messages)

        asyncio.run(ask_both())
