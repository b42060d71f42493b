"""Models on this machine, without another program: GGUF files, run in this process by the wheel `xllamacpp`.

The wheel is llama.cpp with its server, which speaks as OpenAI does. It listens on loopback, with a token that
only this process knows. A model is loaded when it is first asked something, in a thread: that takes seconds
to minutes. Sessions with the same model share it; it is let go of when nobody has it any more.
"""

from __future__ import annotations

import atexit
import importlib
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr, SecretStr

from coupler.coder.model.errors import ModelError
from coupler.extras import MissingExtraError
from coupler.home import data_directory
from coupler.thread import in_thread

if TYPE_CHECKING:
    from langchain_core.outputs import ChatGenerationChunk, ChatResult

    from coupler.coder.model.choice import ModelChoice

PACKAGE = "xllamacpp"
ENDING = ".gguf"

WINDOW = 32_000
"""Tokens that a model takes in unless another number is set: each costs memory."""

NOWHERE = "http://127.0.0.1:9/v1"
"""The address of a server that does not listen yet."""

WARNINGS = 2
"""How much llama.cpp writes to stderr: what is wrong, and not what it does."""

_servers: WeakValueDictionary[tuple[str, int], LocalServer] = WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    """The threads of models must have ended before the interpreter does."""
    for server in [*_servers.values()]:
        server.close()


def local_model(choice: ModelChoice) -> BaseChatModel:
    """The client of a model in a file. Raises MissingExtraError, and ModelError if there is no such file."""
    file = model_file(choice)
    if find_spec(PACKAGE) is None:
        raise MissingExtraError(f"The model {choice.name} needs another package: pip install {PACKAGE}")
    key = (str(file), choice.context_window or WINDOW)
    server = _servers.get(key)
    if server is None:
        server = _servers[key] = LocalServer(*key)
    model = LocalChat(
        model=file.stem,
        api_key=SecretStr(server.token),
        base_url=NOWHERE,
        timeout=None,
        max_retries=0,
        stream_usage=True,
        stream_chunk_timeout=None,
        use_responses_api=False,
    )
    model._server = server
    return model


def models_directory() -> Path:
    """Where files are that are meant by their names alone."""
    return Path(data_directory(), "models")


def model_file(choice: ModelChoice) -> Path:
    """The file of a model that is named by its path, or by its name in the directory for models."""
    given = Path(choice.model)
    if given.is_absolute():
        if not given.is_file():
            raise ModelError(f"{choice.name} cannot be used: there is no file {given}.")
        return given
    if len(given.parts) > 1 or choice.model in (".", ".."):
        raise ModelError(
            f"{choice.name} cannot be used: write the path whole, as in local:/models/a{ENDING}."
        )
    directory = models_directory()
    for file in (directory / given, directory / f"{choice.model}{ENDING}"):
        if file.is_file():
            return file
    raise ModelError(_no_such_model(choice, directory))


def _no_such_model(choice: ModelChoice, directory: Path) -> str:
    there = sorted(file.stem for file in directory.glob(f"*{ENDING}"))
    found = f"There are {', '.join(there)}" if there else "There is none yet"
    return (
        f"{choice.name} cannot be used: {directory} has no {choice.model}{ENDING}. {found}. "
        f"Put the file there, or write its path: local:/models/a{ENDING}."
    )


class LocalServer:
    """A model in a file, loaded when it is first needed."""

    def __init__(self, file: str, window: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._file = file
        self._window = window
        self._loading = threading.Lock()
        self._server: Any = None

    def address(self) -> str:
        """Where it listens; loads the model if that has not been done. Blocks. Raises ModelError."""
        with self._loading:
            if self._server is None:
                self._server = self._loaded()
            return f"{self._server.listening_address}/v1"

    def close(self) -> None:
        """Let go of the model."""
        self._server = None

    def _loaded(self) -> Any:
        package = importlib.import_module(PACKAGE)
        parameters = package.CommonParams()
        parameters.model.path = self._file
        parameters.n_ctx = self._window
        parameters.hostnames = ["127.0.0.1"]
        parameters.port = 0
        parameters.api_keys = [self.token]
        for name, value in _EASY_TO_LIVE_WITHOUT.items():
            if hasattr(parameters, name):
                setattr(parameters, name, value)
        try:
            return package.Server(parameters)
        except RuntimeError as error:
            raise ModelError(
                f"{self._file} could not be loaded ({error}). Is it a model in GGUF that {PACKAGE} knows, "
                f"and is there memory for it? A smaller context_window than {self._window:,} needs less."
            ) from None


_EASY_TO_LIVE_WITHOUT: dict[str, Any] = {
    "n_parallel": 1,  # the window is shared by those who are answered at the same time
    "use_jinja": True,  # without it models cannot call tools
    "ui": False,
    "endpoint_slots": False,
    "verbosity": WARNINGS,
}
"""Parameters that versions of the wheel may not have."""


class LocalChat(ChatOpenAI):
    """A client that makes sure that its server is there before it asks anything."""

    _server: LocalServer = PrivateAttr()

    async def _astream(self, *messages: Any, **more: Any) -> AsyncIterator[ChatGenerationChunk]:
        self._go_to(await in_thread(self._server.address))
        async for chunk in super()._astream(*messages, **more):
            yield chunk

    async def _agenerate(self, *messages: Any, **more: Any) -> ChatResult:
        self._go_to(await in_thread(self._server.address))
        return await super()._agenerate(*messages, **more)

    def _stream(self, *messages: Any, **more: Any) -> Iterator[ChatGenerationChunk]:
        self._go_to(self._server.address())
        yield from super()._stream(*messages, **more)

    def _generate(self, *messages: Any, **more: Any) -> ChatResult:
        self._go_to(self._server.address())
        return super()._generate(*messages, **more)

    def _go_to(self, address: str) -> None:
        self.root_client.base_url = address
        self.root_async_client.base_url = address
