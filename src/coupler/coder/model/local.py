"""Runs models on this machine, without another program: GGUF files, with the wheel `xllamacpp`.

The wheel is llama.cpp with its server, which speaks as OpenAI does. It listens on loopback, in a process of
ours, with a token that only the two know. A model is loaded when it is first asked something: that takes
seconds to minutes, and blocks nobody else. Sessions with the same model share it; its process ends when no
session uses it any more.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import httpx
from langchain_core.language_models import BaseChatModel
from openai import APIConnectionError
from pydantic import PrivateAttr, SecretStr

from coupler.coder.model.local_files import ENGINE, MOST_WINDOW, model_facts, model_file
from coupler.coder.model.local_server import LocalServer
from coupler.coder.model.openai_chat import OpenAIChat
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from langchain_core.outputs import ChatGenerationChunk, ChatResult

    from coupler.coder.model.choice import ModelChoice

log = logging.getLogger("coupler.coder")

TEMPERATURE = 0.2
"""Sampling temperature: small models lose the thread at higher ones."""

NOWHERE = "http://127.0.0.1:9/v1"
"""Placeholder for the address of a server that is not started yet."""

_BROKEN_OFF = (APIConnectionError, httpx.TransportError)
"""Errors of a broken connection, which are replaced by how the model's process ended."""

_servers: WeakValueDictionary[tuple[str, int], LocalServer] = WeakValueDictionary()


def local_model(choice: ModelChoice) -> BaseChatModel:
    """The client of a model in a file. Raises MissingExtraError, and ModelError if there is no such model."""
    file = model_file(choice)
    window = choice.context_window or min(model_facts(file).window or MOST_WINDOW, MOST_WINDOW)
    if find_spec(ENGINE) is None:
        raise MissingExtraError(
            f"The model {choice.name} needs the package {ENGINE}: run `coupler models install`, "
            f"or pip install {ENGINE}"
        )
    key = (str(file), window)
    server = _servers.get(key)
    if server is None:
        server = _servers[key] = LocalServer(*key)
    # Requests to this machine have no business with a proxy, and a kept connection none with another loop.
    unproxied: dict[str, Any] = {
        "trust_env": False,
        "timeout": None,
        "limits": httpx.Limits(max_keepalive_connections=0),
    }
    model = LocalChat(
        model=file.stem,
        api_key=SecretStr(server.token),
        base_url=NOWHERE,
        temperature=TEMPERATURE,
        timeout=None,
        max_retries=0,
        stream_usage=True,
        stream_chunk_timeout=None,
        use_responses_api=False,
        http_client=httpx.Client(**unproxied),
        http_async_client=httpx.AsyncClient(**unproxied),
    )
    model.profile = {"max_input_tokens": window}
    model._server = server
    return model


class LocalChat(OpenAIChat):
    """A chat client that starts its server before the first request."""

    _server: LocalServer = PrivateAttr()

    async def _astream(self, *messages: Any, **more: Any) -> AsyncIterator[ChatGenerationChunk]:
        self._go_to(await in_thread(self._server.address))
        try:
            async for chunk in super()._astream(*messages, **more):
                yield chunk
        except _BROKEN_OFF as error:
            raise await in_thread(self._server.death) or error from error

    async def _agenerate(self, *messages: Any, **more: Any) -> ChatResult:
        self._go_to(await in_thread(self._server.address))
        try:
            return await super()._agenerate(*messages, **more)
        except _BROKEN_OFF as error:
            raise await in_thread(self._server.death) or error from error

    def _stream(self, *messages: Any, **more: Any) -> Iterator[ChatGenerationChunk]:
        self._go_to(self._server.address())
        try:
            yield from super()._stream(*messages, **more)
        except _BROKEN_OFF as error:
            raise self._server.death() or error from error

    def _generate(self, *messages: Any, **more: Any) -> ChatResult:
        self._go_to(self._server.address())
        try:
            return super()._generate(*messages, **more)
        except _BROKEN_OFF as error:
            raise self._server.death() or error from error

    def _go_to(self, address: str) -> None:
        self.root_client.base_url = address
        self.root_async_client.base_url = address
