"""Models on this machine: which file is meant, when it is loaded, and by whom it is asked."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from langchain_core.language_models import BaseChatModel

from coupler.coder.model.chat_model import chat_model
from coupler.coder.model.choice import ModelChoice, resolved_model
from coupler.coder.model.credentials import Keyring, ModelError
from coupler.coder.model.local_files import ModelFacts, model_facts
from coupler.runtime.extras import MissingExtraError

HERE = Path(__file__).parent
PATIENCE = 30.0


def gguf(*facts: tuple[str, str | int | list[str]], rest: bytes = b"") -> bytes:
    """The beginning of a model's file."""
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, len(facts))
    for name, value in facts:
        content += struct.pack("<Q", len(name)) + name.encode()
        if isinstance(value, int):
            content += struct.pack("<II", 4, value)
        elif isinstance(value, list):
            content += struct.pack("<IIQ", 9, 8, len(value))
            content += b"".join(struct.pack("<Q", len(word)) + word.encode() for word in value)
        else:
            content += struct.pack("<IQ", 8, len(value)) + value.encode()
    return content + rest


class Engine:
    """What the stand-in for the wheel has noted."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    @property
    def loaded(self) -> list[dict[str, Any]]:
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def running(self) -> list[int]:
        return [each["pid"] for each in self.loaded if psutil.pid_exists(each["pid"])]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    notes = tmp_path / "notes"
    monkeypatch.setenv("COUPLER_TEST_ENGINE_NOTES", str(notes))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE / "engine"), str(HERE.parents[1])]))
    monkeypatch.syspath_prepend(str(HERE / "engine"))
    return Engine(notes)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small model.gguf"
    path.write_bytes(gguf())
    return path


def a_model(text: str | Path, window: int | None = None) -> BaseChatModel:
    text = f"local:{text}" if isinstance(text, Path) else text
    found = resolved_model(text, None, {})
    choice = ModelChoice(
        name=text, provider=found.provider, model=found.model, base_url=found.base_url, context_window=window
    )
    return chat_model(choice, Keyring({}))


async def asked(*models: BaseChatModel) -> list[str]:
    return [str((await model.ainvoke("Hello")).text) for model in models]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_file_is_loaded_when_it_is_first_asked_in_a_process_of_its_own(engine: Engine, file: Path) -> None:
    model = a_model(file)
    before = engine.loaded

    answers = asyncio.run(asked(model, model))

    (noted,) = engine.loaded
    assert (before, answers) == ([], ["from here", "from here"])
    assert (noted["path"], noted["hostnames"], noted["port"]) == (str(file), ["127.0.0.1"], 0)
    assert (noted["n_parallel"], noted["use_jinja"], noted["ui"]) == (1, True, False)
    assert len(noted["api_keys"][0]) > 30
    assert "verbosity" not in noted
    assert noted["pid"] != os.getpid()


def test_the_loop_goes_on_while_a_model_is_loaded(engine: Engine, file: Path) -> None:
    file.write_bytes(gguf(rest=b"slow"))
    model = a_model(file)

    async def go_on_once_it_loads() -> list[str]:
        answers = asyncio.create_task(asked(model))
        async with asyncio.timeout(PATIENCE):
            while not engine.loaded:
                await asyncio.sleep(0.01)
            file.with_name("go on").touch()
            return await answers

    assert asyncio.run(go_on_once_it_loads()) == ["from here"]


def test_it_streams(engine: Engine, file: Path) -> None:
    async def pieces() -> list[str]:
        return [str(chunk.text) async for chunk in a_model(file).astream("Hello")]

    assert [piece for piece in asyncio.run(pieces()) if piece] == ["from ", "here"]


def test_no_proxy_is_asked_for_it(engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    assert asyncio.run(asked(a_model(file))) == ["from here"]


def test_its_process_has_no_keys(engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COUPLER_API_KEY", "OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "sk-very-secret")

    asyncio.run(asked(a_model(file)))

    assert "sk-very-secret" not in engine.loaded[0]["environment"].values()


def test_sessions_share_a_loaded_model_and_the_window_tells_two_apart(engine: Engine, file: Path) -> None:
    models = [a_model(file), a_model(file), a_model(file, 8000)]

    asyncio.run(asked(*models))

    assert [noted["n_ctx"] for noted in engine.loaded] == [32_000, 8000]
    assert [(model.profile or {})["max_input_tokens"] for model in models] == [32_000, 32_000, 8000]


@pytest.mark.parametrize(("trained", "used"), [(8192, 8192), (262_144, 32_000)])
def test_the_window_is_no_larger_than_the_model_was_trained_for(
    engine: Engine, file: Path, trained: int, used: int
) -> None:
    file.write_bytes(gguf(("general.architecture", "llama"), ("llama.context_length", trained)))
    model = a_model(file)

    asyncio.run(asked(model))

    assert engine.loaded[0]["n_ctx"] == used
    assert (model.profile or {})["max_input_tokens"] == used


def test_a_model_that_nobody_has_any_more_is_let_go(engine: Engine, file: Path) -> None:
    model = a_model(file)
    asyncio.run(asked(model))
    assert engine.running

    del model
    gc.collect()

    assert engine.running == []


def test_it_ends_with_a_process_that_was_killed(engine: Engine, file: Path) -> None:
    program = "import asyncio, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
    program += "from coder.model.test_local import a_model, asked; model = a_model(Path(sys.argv[2]))\n"
    program += "asyncio.run(asked(model)); print('asked', flush=True); input()"
    user = subprocess.Popen(
        [sys.executable, "-c", program, HERE.parents[1], file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with user:
        assert user.stdout is not None and user.stdout.readline() == b"asked\n"
        (process,) = engine.running
        user.kill()

    wait_until(lambda: not psutil.pid_exists(process))


def test_a_name_is_looked_for_among_the_models_of_coupler(engine: Engine, coupler_home: Path) -> None:
    directory = coupler_home / "models"
    directory.mkdir(parents=True)
    (directory / "tiny.gguf").write_bytes(gguf())

    asyncio.run(asked(a_model("local:tiny"), a_model("local:tiny.gguf")))

    assert {noted["path"] for noted in engine.loaded} == {str(directory / "tiny.gguf")}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("local:large", "has no large.gguf. There are tiny."),
        ("local:smollm2", "is not installed yet: run `coupler models install smollm2`"),
        ("local:/nowhere/a.gguf", "there is no file /nowhere/a.gguf"),
        ("local:../a.gguf", "write the path whole"),
        ("local:..", "write the path whole"),
        ("local:text", "is no model: a file in the format GGUF is needed"),
    ],
)
def test_a_file_that_cannot_be_meant_is_told_with_what_to_do(
    engine: Engine, coupler_home: Path, text: str, sentence: str
) -> None:
    (coupler_home / "models").mkdir(parents=True)
    (coupler_home / "models" / "tiny.gguf").write_bytes(gguf())
    (coupler_home / "models" / "text").write_text("Dear model,")

    with pytest.raises(ModelError) as caught:
        a_model(text)

    assert sentence in str(caught.value)


def test_without_the_wheel_it_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "coupler.coder.model.local.find_spec", lambda name: None if name == "xllamacpp" else real(name)
    )

    with pytest.raises(MissingExtraError, match="run `coupler models install`, or pip install xllamacpp"):
        a_model(file)


def test_a_model_that_cannot_be_loaded_is_told_and_can_be_tried_again(engine: Engine, file: Path) -> None:
    file.write_bytes(gguf(rest=b"broken"))
    model = a_model(file)

    with pytest.raises(
        ModelError, match=r"Failed to init server: .*tensor is missing.*Is it a model in GGUF"
    ):
        asyncio.run(asked(model))
    file.write_bytes(gguf())

    assert asyncio.run(asked(model)) == ["from here"]


def test_a_processor_that_is_too_old_is_told(engine: Engine, file: Path) -> None:
    file.write_bytes(gguf(rest=b"illegal"))

    with pytest.raises(ModelError, match="SIGILL: xllamacpp wants a newer processor"):
        asyncio.run(asked(a_model(file)))


def test_a_model_that_dies_while_it_answers_is_told_and_loaded_again(engine: Engine, file: Path) -> None:
    file.write_bytes(gguf(rest=b"fragile"))
    model = a_model(file)

    with pytest.raises(ModelError, match=r"SIGKILL, as when memory runs out: .*ggml: out of memory"):
        asyncio.run(asked(model))
    file.write_bytes(gguf())

    assert asyncio.run(asked(model)) == ["from here"]


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        (
            gguf(("general.architecture", "qwen3"), ("general.name", "Q"), ("qwen3.context_length", 40)),
            (40, "Q"),
        ),
        (
            gguf(("general.architecture", "a"), ("general.tags", ["tiny", "new"]), ("a.context_length", 40)),
            (40, None),
        ),
        (gguf(("a.words", ["w"] * 2000), ("general.name", "Q")), (None, None)),
        (gguf(("general.name", "Q"), rest=b"more"), (None, "Q")),
        (gguf(("general.architecture", "a"), ("b.context_length", 40)), (None, None)),
        (gguf()[:9], (None, None)),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), (None, None)),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 1), (None, None)),
    ],
)
def test_what_a_file_says_of_itself_is_read_as_far_as_it_can_be(
    file: Path, content: bytes, facts: tuple[int | None, str | None]
) -> None:
    file.write_bytes(content)

    found = model_facts(file)

    assert (found.window, found.title) == facts
    assert isinstance(found, ModelFacts)
