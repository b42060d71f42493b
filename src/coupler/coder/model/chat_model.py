"""Makes LangChain's client of a model from a choice and its key.

The key is given to the client itself, so that nothing has to be in anybody's environment. Everything that can
be wrong before a request is made ends as a sentence that says what to do. What a server can make its client
hold is limited: the bytes of an answer, and those of one event of a stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import content

from coupler.coder.model.choice import SMALL_WINDOW, USUAL_WINDOW
from coupler.coder.model.credentials import (
    ALIASES,
    LOCAL,
    OLLAMA,
    PROVIDERS,
    Keyring,
    ModelError,
    missing_key,
    provider_of,
)
from coupler.coder.model.middleware import (
    CheckedImages,
    CutCalls,
    KeyConcealment,
    KeyRedactingCallback,
    ToolCallRecorder,
    UnreadableCalls,
    WholeCharacters,
)
from coupler.coder.model.retries import AnswerProgressCallback, with_complete_answers
from coupler.langchain.errors import AnswerTooLongError
from coupler.runtime.extras import MissingExtraError, import_extra

if TYPE_CHECKING:
    import httpx
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models import BaseChatModel

    from coupler.coder.model.choice import ModelChoice

log = logging.getLogger("coupler.coder")

CLIENT_RETRIES: Mapping[str, int] = {"google_genai": 1}
"""Value of `max_retries` by which a provider's client tries once; 0 for all others.

`ModelRetries` tries again, so that users see it and one place decides how long.
"""

COMPLETE_ANSWERS = frozenset({"google_genai", "google_vertexai"})
"""Providers besides OpenAI and Anthropic whose last chunk always says why the answer has ended."""

TIMEOUT = 600.0
"""Seconds for a whole answer."""

CHUNK_TIMEOUT, LOCAL_CHUNK_TIMEOUT = 120.0, 600.0
"""Seconds between two pieces of an answer; a machine of one's own may read a long prompt for minutes."""

NO_KEY = "none"
"""The key for servers that want none, because the client needs one."""

OWN_KEY_NAMES: Mapping[str, str] = {"cohere": "cohere_api_key", "perplexity": "pplx_api_key"}
"""The parameter of the key in LangChain classes that do not call it `api_key`."""

QUESTION = "Answer with the one word: ready"

_HOPELESS = frozenset({"auth", "no_model"})
"""Kinds of errors that will not pass by themselves."""


def chat_model(choice: ModelChoice, keyring: Keyring | None = None) -> BaseChatModel:
    """Return the client of a model. Raises ModelError or MissingExtraError; no server is asked yet."""
    key = (keyring or Keyring()).key_for(choice)
    if key is None and provider_of(choice.provider).needs_key and choice.base_url is None:
        raise missing_key(choice)
    model = make_client(choice, None if key is None else key.value)
    limit_responses(model)
    known = model.profile or {}
    model.profile = {**known, "max_input_tokens": _window(choice, known)}
    concealing = [] if key is None else [KeyRedactingCallback({key.name: key.value})]
    model.callbacks = [ToolCallRecorder(), AnswerProgressCallback(), *concealing]
    return model


def chat_models(
    choices: Mapping[str, ModelChoice], keyring: Keyring | None = None
) -> dict[str, BaseChatModel]:
    """The clients of several models by their names. The first must be usable; others are left out if not."""
    models: dict[str, BaseChatModel] = {}
    for name, choice in choices.items():
        try:
            models[name] = chat_model(choice, keyring)
        except (ModelError, MissingExtraError) as error:
            if not models:
                raise
            log.warning("the model %s is not offered: %s", name, error)
    return models


def model_middleware(
    models: Mapping[str, BaseChatModel], keyring: Keyring | None = None
) -> list[AgentMiddleware[Any, Any]]:
    """Return the middleware around the models.

    It redacts keys, removes lone surrogates and images that cannot be used, refuses truncated tool calls, and
    uses Anthropic's prompt cache.
    """
    around: list[AgentMiddleware[Any, Any]] = [
        WholeCharacters(),
        CheckedImages(),
        UnreadableCalls(),
        CutCalls(),
    ]
    if keyring is not None and keyring.concealed:
        around.append(KeyConcealment(keyring.concealed))
    if any(type(model).__name__ == "ChatAnthropic" for model in models.values()):
        from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware

        around.append(AnthropicPromptCachingMiddleware(unsupported_model_behavior="ignore"))
    return around


def _window(choice: ModelChoice, known: Mapping[str, Any]) -> int:
    if choice.context_window is not None:
        return choice.context_window
    size = known.get("max_input_tokens")
    if isinstance(size, int) and size > 0:
        return size
    return SMALL_WINDOW if _is_own_machine(choice) else USUAL_WINDOW


def make_client(choice: ModelChoice, key: str | None) -> BaseChatModel:
    """Return the client of a model with this key, whatever else is stored or set."""
    _cache_block_types()
    match choice.provider:
        case "openai":
            return _as_openai(choice, key, choice.base_url)
        case "anthropic":
            return _anthropic(choice, key)
        case provider if provider == OLLAMA:
            return _as_openai(choice, key, choice.base_url)
        case provider if provider == LOCAL:
            import_extra("langchain_openai", extra="coder", feature=f"The model {choice.name}")
            from coupler.coder.model.local import local_model

            return local_model(choice)
        case provider:
            return _by_langchain(provider, choice, key)


def _cache_block_types() -> None:
    """Have LangChain work out once which types of content blocks there are.

    It does so for each block of each message of each request, which takes most of the time that the client
    of Anthropic needs for a request: 0.2 s in a conversation of 800 messages.
    """
    work_out = getattr(content, "_get_data_content_block_types", None)
    if callable(work_out) and not hasattr(work_out, "cache_info"):
        setattr(content, "_get_data_content_block_types", cache(work_out))  # noqa: B010 - it is private


def _as_openai(choice: ModelChoice, key: str | None, address: str | None) -> BaseChatModel:
    """Make the client of an OpenAI-compatible server."""
    import_extra("langchain_openai", extra="coder", feature=f"The model {choice.name}")
    from coupler.coder.model.openai_chat import OpenAIChat

    return OpenAIChat(**openai_arguments(choice, key, address))


def openai_arguments(choice: ModelChoice, key: str | None, address: str | None) -> dict[str, Any]:
    """Return the arguments of LangChain's class for OpenAI."""
    arguments: dict[str, Any] = {
        "model": choice.model,
        "api_key": key or NO_KEY,
        "base_url": address,
        "timeout": TIMEOUT,
        "max_retries": 0,
        "stream_usage": True,
        "stream_chunk_timeout": LOCAL_CHUNK_TIMEOUT if _is_own_machine(choice) else CHUNK_TIMEOUT,
    }
    if address is not None and choice.provider != "openai":
        # Others' servers know only the older of OpenAI's two ways to be asked.
        arguments["use_responses_api"] = False
    return arguments


def _anthropic(choice: ModelChoice, key: str | None) -> BaseChatModel:
    anthropic = import_extra("langchain_anthropic", extra="coder", feature=f"The model {choice.name}")
    arguments = {} if choice.base_url is None else {"base_url": choice.base_url}
    model: BaseChatModel = anthropic.ChatAnthropic(
        model=choice.model,
        api_key=key or NO_KEY,
        timeout=TIMEOUT,
        max_retries=0,
        stream_usage=True,
        **arguments,
    )
    return with_complete_answers(model)


def _by_langchain(provider: str, choice: ModelChoice, key: str | None) -> BaseChatModel:
    """Make the client of any other provider by its own package, or else by its OpenAI-compatible address."""
    from langchain.chat_models import init_chat_model

    compatible = provider_of(provider).compatible_at
    if compatible is not None and find_spec(f"langchain_{provider}") is None:
        return _as_openai(choice, key, choice.base_url or compatible)
    arguments: dict[str, Any] = {} if key is None else {OWN_KEY_NAMES.get(provider, "api_key"): key}
    if choice.base_url is not None:
        arguments["base_url"] = choice.base_url
    if provider == "google_genai":
        arguments["client_args"] = limiting_arguments()  # its client cannot be reached later
    try:
        model = _without_retries(
            provider,
            lambda **more: init_chat_model(choice.model, model_provider=provider, **arguments, **more),
        )
    except ImportError as error:
        raise MissingExtraError(f"The model {choice.name} cannot be used: {error}") from None
    except ValueError as error:
        raise ModelError(_complaint(provider, choice, error)) from None
    return with_complete_answers(model) if provider in COMPLETE_ANSWERS else model


def _without_retries(provider: str, make: Callable[..., BaseChatModel]) -> BaseChatModel:
    """Make a client that does not try again by itself, as far as its class has that setting."""
    model = make()
    if "max_retries" not in type(model).model_fields:
        return model
    return make(max_retries=CLIENT_RETRIES.get(provider, 0))


def _complaint(provider: str, choice: ModelChoice, error: ValueError) -> str:
    """Describe what is wrong with a model, without pydantic's quotes of values: one of them is the key."""
    if provider not in PROVIDERS and "Unsupported provider" in str(error):
        near = get_close_matches(provider, [*PROVIDERS, *ALIASES], n=1, cutoff=0.6)
        hint = f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(PROVIDERS)}."
        return (
            f"{choice.name} cannot be used: there is no provider {provider}. {hint} "
            "A server that speaks as OpenAI does is openai:NAME with a base_url."
        )
    errors = getattr(error, "errors", None)
    problems = errors(include_input=False, include_url=False) if callable(errors) else []
    said = "; ".join(str(each.get("msg", "")) for each in problems) or type(error).__name__
    return f"{choice.name} cannot be used: {said}"


def _is_own_machine(choice: ModelChoice) -> bool:
    from urllib.parse import urlsplit

    if choice.provider in (OLLAMA, LOCAL):
        return True
    host = urlsplit(choice.base_url).hostname if choice.base_url is not None else None
    return host is not None and (host == "localhost" or host == "::1" or host.startswith("127."))


class TrialResult(Enum):
    """The result of a trial: whether a model answers with a key."""

    WORKS = "works"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It could not be reached, or what is needed to ask it is not installed."""


async def try_model(choice: ModelChoice, key: str | None, seconds: float) -> tuple[TrialResult, str]:
    """Make one small request with this key; returns its result, and a sentence about it without the key."""
    try:
        from coupler.langchain.errors import failure_of
    except ImportError:
        return TrialResult.UNKNOWN, 'the coder needs more packages: pip install "coupler[coder]"'
    try:
        model = make_client(choice, key)
        async with asyncio.timeout(seconds):
            async for _ in model.astream(QUESTION):
                break
    except MissingExtraError as error:
        return TrialResult.UNKNOWN, str(error)
    except ModelError as error:
        return TrialResult.REFUSED, str(error)
    except TimeoutError:
        return TrialResult.UNKNOWN, f"there was no answer within {seconds:g} seconds."
    except Exception as error:
        # Whatever a provider's package raises: it is told apart by its kind, and told by its words.
        failure = failure_of(error, error)
        sentence = str(failure or error)
        if key is not None:
            sentence = sentence.replace(key, "…")
        kind = failure.data.get("kind") if failure is not None else None
        return (TrialResult.REFUSED if kind in _HOPELESS else TrialResult.UNKNOWN), sentence
    return TrialResult.WORKS, ""


LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of an answer, unpacked."""

MOST_PACKED = 1024 * 1024
"""Bytes that an answer may have more before it is unpacked than after that."""

LARGEST_EVENT = 16 * 1024 * 1024
"""Bytes of one event of a stream: an image may be one."""

MOST_LINES = 256
"""Lines of one event: the packages copy all of it for each."""

MOST_EVENTS = 250_000
"""Events of a stream, empty ones and comments too: each costs time, however few its bytes are."""

ENCODINGS = ("gzip", "deflate")
"""Compressions that are asked for and read: of others a few bytes may unpack to all memory."""

CLIENTS = ("root_async_client", "_async_client", "async_client")
"""Attributes of LangChain's classes that hold a provider's client."""

MOST_WRAPPERS = 4
"""Clients of a provider's package around that of httpx."""


def limit_responses(model: BaseChatModel) -> None:
    """Limit the answers that a model's client takes, if it is one of httpx or httpx2."""
    for name in CLIENTS:
        client: Any = getattr(model, name, None)
        for _ in range(MOST_WRAPPERS):
            hooks = getattr(client, "event_hooks", None)
            if hooks is not None:
                _limit_client(client, hooks)
                break
            client = getattr(client, "_client", None)


def limiting_arguments() -> dict[str, Any]:
    """Return arguments of httpx by which a client limits its answers from the start."""
    return {
        "event_hooks": {"response": [limit_response]},
        "headers": {"accept-encoding": ", ".join(ENCODINGS)},
    }


def _limit_client(client: Any, hooks: dict[str, list[Any]]) -> None:
    if limit_response not in hooks["response"]:  # LangChain shares its clients
        client.event_hooks = {**hooks, "response": [*hooks["response"], limit_response]}
        client.headers["accept-encoding"] = ", ".join(ENCODINGS)


async def limit_response(response: httpx.Response) -> None:
    """Have an answer raise AnswerTooLongError where it is over a limit, however it is read."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *ENCODINGS):
        raise AnswerTooLongError(f"it is packed with {encoding[:50]!r}, which is not read")
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    read, read_packed = response.aiter_bytes, response.aiter_raw
    size = 0

    async def limited_packed(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        packed = 0
        async for chunk in read_packed(chunk_size):
            packed += len(chunk)
            # What follows the end of packed data unpacks to nothing, and is held.
            if packed > size + MOST_PACKED:
                raise AnswerTooLongError("it goes on after the end of its packed data")
            yield chunk

    async def limited(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        nonlocal size
        event = _OpenEvent()
        async for chunk in read(chunk_size):
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise AnswerTooLongError(f"it is over {LARGEST_ANSWER:,} bytes")
            if is_stream:
                event.take(chunk)
            yield chunk

    if encoding in ENCODINGS:
        response.aiter_raw = limited_packed  # type: ignore[method-assign]
    response.aiter_bytes = limited  # type: ignore[method-assign]


class _OpenEvent:
    """Counts the bytes and the lines of the event that has not ended, and the events before it."""

    def __init__(self) -> None:
        self._size = self._lines = self._ended = 0
        self._ends_line = False

    def take(self, chunk: bytes) -> None:
        """Count a piece of the stream; raises AnswerTooLongError if an event in it is over a limit."""
        text = chunk.replace(b"\r", b"") if b"\n" in chunk else chunk.replace(b"\r", b"\n")
        if self._ends_line and text.startswith(b"\n"):
            self._size = self._lines = 0
        first, *others = text.split(b"\n\n")
        self._ended += len(others)
        if self._ended > MOST_EVENTS:
            raise AnswerTooLongError(f"it has more than {MOST_EVENTS:,} events")
        self._add(first)
        for event in others:
            self._size = self._lines = 0
            self._add(event)
        self._ends_line = text.endswith(b"\n")

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        self._lines += part.count(b"\n")
        if self._size > LARGEST_EVENT:
            raise AnswerTooLongError(f"an event of it is over {LARGEST_EVENT:,} bytes")
        if self._lines > MOST_LINES:
            raise AnswerTooLongError(f"an event of it is over {MOST_LINES} lines")
