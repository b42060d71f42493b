"""`coupler login coder`: a model and its key, tried out and stored, without a process of its own."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from cli.typing_at import CTRL_C, Typist
from labs.langchain.model_server import UNAUTHORIZED, ModelServer, refuses, says

KEY = "sk-typed-0123456789abcdef"
VARIABLES = ("COUPLER_MODEL", "COUPLER_BASE_URL", "COUPLER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")


@pytest.fixture(autouse=True)
def nothing_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, langchain_loaded: forked.Loaded
) -> Iterator[None]:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    with langchain_loaded.used():
        yield


def login(*words: str, text: str = "", agent: str = "coder") -> subprocess.CompletedProcess[str]:
    done = forked.run(
        [sys.executable, "-m", "coupler", "login", agent, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ},
        check=False,
    )
    assert KEY not in done.stdout + done.stderr
    return done


def stored(home: Path) -> Any:
    file = home / "credentials.json"
    return json.loads(file.read_text()) if file.exists() else None


def test_a_key_from_stdin_is_tried_out_and_stored_for_its_user_alone(coupler_home: Path) -> None:
    with ModelServer([says("ready")]) as server:
        done = login("--model", "openai:m", "--base-url", server.url, text=f"{KEY}\n")

    assert (done.returncode, "It answers." in done.stderr) == (0, True)
    assert server.asked[0]["model"] == "m"
    assert stored(coupler_home) == {
        "model": "openai:m",
        "base_url": server.url,
        "keys": [{"provider": "openai", "base_url": server.url, "key": KEY}],
    }
    assert stat.S_IMODE((coupler_home / "credentials.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (UNAUTHORIZED, "refused the credentials"),
        (refuses(401, f"Incorrect API key: {KEY}"), "refused the credentials"),
        (refuses(404, "no such model", "model_not_found"), "no such model"),
    ],
)
def test_what_the_provider_refuses_is_not_stored(coupler_home: Path, reply: Any, words: str) -> None:
    with ModelServer([reply]) as server:
        done = login("--model", "openai:m", "--base-url", server.url, text=f"{KEY}\n")

    assert done.returncode == 1
    assert words in done.stderr
    assert "--no-check" in done.stderr
    assert stored(coupler_home) is None


def test_what_cannot_be_reached_is_stored_with_a_warning(coupler_home: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"

    done = login("--model", "openai:m", "--base-url", address, text=f"{KEY}\n")

    assert done.returncode == 0
    assert "could not be tried out" in done.stderr
    assert stored(coupler_home)["model"] == "openai:m"


def test_nothing_is_asked_of_the_server_if_that_is_not_wanted(coupler_home: Path) -> None:
    with ModelServer([UNAUTHORIZED]) as server:
        done = login("--model", "openai:m", "--base-url", server.url, "--no-check", text=f"{KEY}\n")

    assert done.returncode == 0
    assert server.asked == []
    assert stored(coupler_home)["keys"]


def test_what_is_stored_is_listed_without_keys_and_forgotten(coupler_home: Path) -> None:
    login("--model", "anthropic:a", "--no-check", text=f"{KEY}\n")
    login("--model", "openai:b", "--no-check", text=f"{KEY}2\n")

    listed = login("--list")
    one = login("--forget", "openai")
    after = login("--list").stdout
    everything = login("--forget")

    assert listed.stdout.splitlines() == [
        "anthropic: a key is stored",
        "openai: a key is stored",
        "The model to begin with is openai:b.",
        "In this directory openai:b is used, as `coupler login coder` says, "
        "with the key of `coupler login coder`.",
    ]
    assert one.returncode == 0
    assert after.splitlines()[0] == "anthropic: a key is stored"
    assert "openai" not in after
    assert "No model is set" in after
    assert (everything.stdout, stored(coupler_home)) == ("Forgotten.\n", None)
    assert login("--forget").stdout == "Nothing was stored.\n"


def test_a_login_that_something_else_comes_before_says_so(
    coupler_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUPLER_MODEL", "openai:other")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment-0123")

    done = login("--model", "anthropic:a", "--no-check", text=f"{KEY}\n")

    assert (
        "openai:other is used, as the variable COUPLER_MODEL says, with the key of OPENAI_API_KEY"
        in done.stdout
    )
    assert "sk-of-the-environment" not in done.stdout


def test_a_model_on_this_machine_needs_no_key(coupler_home: Path) -> None:
    done = login("--model", "ollama:qwen3", "--no-check")

    assert done.returncode == 0
    assert stored(coupler_home) == {"model": "ollama:qwen3", "base_url": None, "keys": []}


@pytest.mark.parametrize(
    ("words", "text", "code", "sentence"),
    [
        ((), "", 2, "name the model with --model"),
        (("--model", "gpt-5"), "", 1, "must name provider and model"),
        (("--model", "openai:m"), "", 1, "openai:m needs a key: type it, or write it to stdin"),
        (("--model", "openai:m"), "two words\n", 1, "cannot be one"),
        (("--model", "openai:m", "--base-url", "box:80"), "", 1, "must begin with https:// or http://"),
        (("browser",), "", 2, "the coder has no METHOD"),
        (("--list", "--forget"), "", 2, "exclude each other"),
        (("--forget", "groq"), "", 1, "nothing is stored for groq"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    coupler_home: Path, words: tuple[str, ...], text: str, code: int, sentence: str
) -> None:
    done = login(*words, text=text)

    assert done.returncode == code
    assert sentence in done.stderr
    assert stored(coupler_home) is None


def test_options_of_the_coder_are_refused_for_other_agents() -> None:
    done = login("--model", "openai:m", agent="some-command --acp")

    assert done.returncode == 2
    assert "are for the coder" in done.stderr


def test_a_profile_of_the_coder_shares_its_login(coupler_home: Path) -> None:
    coupler_home.mkdir(parents=True)
    (coupler_home / "coupler.toml").write_text('[agents.careful]\nagent = "coder"\n')

    done = login("--model", "openai:m", "--no-check", text=f"{KEY}\n", agent="careful")

    assert done.returncode == 0
    assert stored(coupler_home)["model"] == "openai:m"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
class TestAtATerminal:
    def test_the_model_is_suggested_and_the_key_is_not_shown(
        self, coupler_home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-at-hand-0123456789")
        with Typist(*typed("--no-check")) as person:
            person.sees("Model [openai:")
            person.types("openai:mine\n")
            person.sees("Key for OpenAI (it is not shown)")
            person.types(f"{KEY}\n")
            assert person.ends() == 0

        assert KEY not in person.shown
        assert stored(coupler_home)["keys"][0]["key"] == KEY
        assert stored(coupler_home)["model"] == "openai:mine"

    def test_ctrl_c_stores_nothing(self, coupler_home: Path) -> None:
        with Typist(*typed("--model", "openai:m")) as person:
            person.sees("Key for OpenAI")
            person.types(CTRL_C)
            assert person.ends() == 130

        assert stored(coupler_home) is None


def typed(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "coupler", "login", "coder", *words)
