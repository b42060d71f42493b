"""Models on this machine: which file is meant, when it is loaded, and by whom it is asked."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from langchain_core.language_models import BaseChatModel

from bridges.model_server import ModelServer, says
from coupler.coder.model.chat_model import chat_model
from coupler.coder.model.choice import ModelChoice, resolved
from coupler.coder.model.errors import ModelError
from coupler.coder.model.keyring import Keyring
from coupler.extras import MissingExtraError


class FakeWheel(ModuleType):
    """Stands in for the wheel: its server has no model, but answers over HTTP."""

    def __init__(self) -> None:
        super().__init__("xllamacpp")
        self.__spec__ = ModuleSpec("xllamacpp", None)
        self.loaded: list[Any] = []
        self.threads: list[str] = []
        self.running: list[Any] = []
        self.http = ModelServer([says("from ", "here")])
        wheel = self

        class Server:
            def __init__(self, parameters: Any) -> None:
                if not Path(parameters.model.path).read_bytes().startswith(b"GGUF"):
                    raise RuntimeError("Failed to init server")
                wheel.loaded.append(parameters)
                wheel.running.append(ref(self))
                wheel.threads.append(threading.current_thread().name)
                self.listening_address = wheel.http.url.removesuffix("/v1")

        self.Server = Server

    def CommonParams(self) -> Any:
        return SimpleNamespace(model=SimpleNamespace(path=""), n_parallel=-1, use_jinja=False, ui=True)


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWheel]:
    fake = FakeWheel()
    monkeypatch.setitem(sys.modules, "xllamacpp", fake)
    with fake.http:
        yield fake
        gc.collect()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small model.gguf"
    path.write_bytes(b"GGUF")
    return path


def a_model(text: str, window: int | None = None) -> BaseChatModel:
    found = resolved(text, None, {})
    choice = ModelChoice(
        name=text, provider=found.provider, model=found.model, base_url=found.base_url, context_window=window
    )
    return chat_model(choice, Keyring({}))


async def asked(*models: BaseChatModel) -> list[str]:
    return [str((await model.ainvoke("Hello")).text) for model in models]


def test_a_file_is_loaded_when_it_is_first_asked_and_not_on_the_loop(wheel: FakeWheel, file: Path) -> None:
    model = a_model(f"local:{file}")
    before = [*wheel.loaded]

    answers = asyncio.run(asked(model, model))

    (parameters,) = wheel.loaded
    assert (before, answers) == ([], ["from here", "from here"])
    assert wheel.threads != [threading.current_thread().name]
    assert (parameters.model.path, parameters.hostnames, parameters.port) == (str(file), ["127.0.0.1"], 0)
    assert (parameters.n_parallel, parameters.use_jinja, parameters.ui) == (1, True, False)
    assert len(parameters.api_keys[0]) > 30
    assert not hasattr(parameters, "verbosity")


def test_it_streams(wheel: FakeWheel, file: Path) -> None:
    async def pieces() -> list[str]:
        return [str(chunk.text) async for chunk in a_model(f"local:{file}").astream("Hello")]

    assert [piece for piece in asyncio.run(pieces()) if piece] == ["from ", "here"]
    assert wheel.http.asked[0]["stream"]


def test_sessions_share_a_loaded_model_and_the_window_tells_two_apart(wheel: FakeWheel, file: Path) -> None:
    models = [a_model(f"local:{file}"), a_model(f"local:{file}"), a_model(f"local:{file}", 8000)]

    asyncio.run(asked(*models))

    assert [parameters.n_ctx for parameters in wheel.loaded] == [32_000, 8000]
    assert [(model.profile or {})["max_input_tokens"] for model in models] == [32_000, 32_000, 8000]


def test_a_model_that_nobody_has_any_more_is_let_go(wheel: FakeWheel, file: Path) -> None:
    model = a_model(f"local:{file}")
    asyncio.run(asked(model))
    (server,) = wheel.running
    assert server() is not None

    del model
    gc.collect()

    assert server() is None


def test_a_name_is_looked_for_among_the_models_of_coupler(wheel: FakeWheel, coupler_home: Path) -> None:
    directory = coupler_home / "models"
    directory.mkdir(parents=True)
    (directory / "tiny.gguf").write_bytes(b"GGUF")

    asyncio.run(asked(a_model("local:tiny"), a_model("local:tiny.gguf")))

    assert [parameters.model.path for parameters in wheel.loaded] == [str(directory / "tiny.gguf")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("local:large", "has no large.gguf. There are tiny."),
        ("local:/nowhere/a.gguf", "there is no file /nowhere/a.gguf"),
        ("local:../a.gguf", "write the path whole"),
        ("local:..", "write the path whole"),
    ],
)
def test_a_file_that_is_not_there_is_told_with_those_that_are(
    wheel: FakeWheel, coupler_home: Path, text: str, sentence: str
) -> None:
    (coupler_home / "models").mkdir(parents=True)
    (coupler_home / "models" / "tiny.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelError) as caught:
        a_model(text)

    assert sentence in str(caught.value)


def test_without_the_wheel_it_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coupler.coder.model.local.find_spec", lambda name: None)

    with pytest.raises(MissingExtraError, match="pip install xllamacpp"):
        a_model(f"local:{file}")


def test_a_file_that_is_no_model_is_told_and_can_be_tried_again(wheel: FakeWheel, file: Path) -> None:
    file.write_bytes(b"something else")
    model = a_model(f"local:{file}")

    with pytest.raises(ModelError, match=r"could not be loaded .* Is it a model in GGUF"):
        asyncio.run(asked(model))
    file.write_bytes(b"GGUF")

    assert asyncio.run(asked(model)) == ["from here"]
