"""Where keys come from, how they are stored, and that nobody gets to see them."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from coupler.coder.model.choice import ModelChoice
from coupler.coder.model.credentials import (
    Credentials,
    Keyring,
    ModelError,
    ModelKey,
    StoredKey,
    remove_credentials,
    store_credentials,
    stored_credentials,
)
from coupler.coder.model.middleware import KeyConcealment

GENERAL, USUAL, STORED = "general-0123456789", "usual-0123456789", "stored-0123456789"


def a_choice(provider: str = "openai", base_url: str | None = None, *, is_main: bool = True) -> ModelChoice:
    return ModelChoice(name=f"{provider}:m", provider=provider, model="m", base_url=base_url, is_main=is_main)


def value_of(key: ModelKey | None) -> str | None:
    return None if key is None else key.value


class TestKeyring:
    def test_the_general_variable_comes_before_the_usual_one_and_that_before_what_is_stored(
        self, coupler_home: Path
    ) -> None:
        store_credentials(Credentials().with_login("openai:m", None, ("openai", None), STORED))
        environ = {"COUPLER_API_KEY": GENERAL, "OPENAI_API_KEY": USUAL}

        keys = [
            Keyring(environ).key_for(a_choice()),
            Keyring({"OPENAI_API_KEY": USUAL}).key_for(a_choice()),
            Keyring({}).key_for(a_choice()),
        ]

        assert [value_of(key) for key in keys] == [GENERAL, USUAL, STORED]
        assert [key.source for key in keys if key] == [
            *("COUPLER_API_KEY", "OPENAI_API_KEY", "`coupler login coder`")
        ]

    def test_the_general_key_is_sent_to_nobody_that_it_is_not_for(self) -> None:
        keyring = Keyring({"COUPLER_API_KEY": GENERAL})

        assert keyring.key_for(a_choice("groq", is_main=False)) is None

    def test_a_stored_key_is_for_one_address(self, coupler_home: Path) -> None:
        store_credentials(
            Credentials().with_login(
                "openai:m", "https://a.example/v1", ("openai", "https://a.example/v1"), STORED
            )
        )
        keyring = Keyring({})

        assert value_of(keyring.key_for(a_choice(base_url="https://a.example/v1"))) == STORED
        assert keyring.key_for(a_choice(base_url="https://b.example/v1")) is None
        assert keyring.key_for(a_choice()) is None

    @pytest.mark.parametrize("value", ["sk-with a space", "sk-with\nbreak-0123", "sk-“quoted”-0123"])
    def test_what_cannot_be_a_key_is_refused_and_not_repeated(self, value: str) -> None:
        with pytest.raises(ModelError, match="The key in OPENAI_API_KEY cannot be one") as caught:
            Keyring({"OPENAI_API_KEY": value}).key_for(a_choice())

        assert "sk-" not in str(caught.value)

    def test_a_key_does_not_show_itself(self) -> None:
        key = ModelKey(GENERAL, "COUPLER_API_KEY")

        assert GENERAL not in f"{key!r} {key}"
        assert STORED not in repr(Credentials(keys=(StoredKey("openai", None, STORED),)))


class FakeSession:
    """What the keyring asks of a session."""

    def __init__(self) -> None:
        self.withheld: set[str] = set()
        self.secrets: dict[str, str] = {}

    def withhold(self, names: set[str]) -> None:
        self.withheld |= names

    def add_secret(self, name: str, value: str) -> None:
        self.secrets[name] = value


class TestConcealing:
    def test_every_variable_that_holds_a_key_of_a_model_is_withheld_and_no_other(self) -> None:
        session = FakeSession()
        environ = {
            "OPENAI_API_KEY": USUAL,
            "MY_COPY": USUAL,
            "PROXY": f"https://user:{USUAL}@host",
            "GROQ_API_KEY": "other-0123456789",
            "GITHUB_TOKEN": "ghp_0123456789abcdef",
            "PATH": "/bin",
        }

        Keyring(environ).conceal(session, [a_choice()])  # type: ignore[arg-type]

        assert session.withheld & {*environ} == {"OPENAI_API_KEY", "MY_COPY", "PROXY", "GROQ_API_KEY"}
        assert session.secrets == {"OPENAI_API_KEY": USUAL, "GROQ_API_KEY": "other-0123456789"}

    def test_a_stored_key_is_a_secret_too(self, coupler_home: Path) -> None:
        store_credentials(Credentials().with_login("openai:m", None, ("openai", None), STORED))
        session = FakeSession()

        Keyring({}).conceal(session, [a_choice()])  # type: ignore[arg-type]

        assert session.secrets == {"COUPLER_API_KEY": STORED}

    def test_a_word_that_stands_for_no_key_is_no_secret(self) -> None:
        session = FakeSession()
        environ = {"OPENAI_API_KEY": "none", "A": "none at all"}

        Keyring(environ).conceal(session, [a_choice()])  # type: ignore[arg-type]

        assert session.secrets == {}
        assert session.withheld & {*environ} == {"OPENAI_API_KEY"}

    @pytest.mark.parametrize(
        "content",
        [
            f"a {USUAL} b",
            [{"type": "text", "text": f"a {USUAL} b"}],
            [f"{USUAL}", {"type": "image", "data": "x"}],
        ],
    )
    def test_what_a_tool_returns_reaches_the_model_without_the_key(self, content: Any) -> None:
        middleware = KeyConcealment({"OPENAI_API_KEY": USUAL})
        message = ToolMessage(content, tool_call_id="1", artifact={"raw": f"x{USUAL}"})

        async def in_message(_: Any) -> Any:
            return message

        async def in_command(_: Any) -> Any:
            return Command(update={"messages": [message], "more": 1}, goto="there")

        told = asyncio.run(middleware.awrap_tool_call(None, in_message))  # type: ignore[arg-type]
        command = asyncio.run(middleware.awrap_tool_call(None, in_command))  # type: ignore[arg-type]

        assert USUAL not in repr(told)
        assert "OPENAI_API_KEY" in repr(told.content)
        assert USUAL not in repr(command)
        assert (command.update["more"], command.goto) == (1, "there")

    def test_an_error_that_repeats_the_key_stays_the_same_error_without_it(self) -> None:
        class RefusedError(Exception):
            def __init__(self, message: str) -> None:
                super().__init__(message)
                self.message, self.body = message, {"error": {"message": message}}

        raised = RefusedError(f"wrong key {USUAL}")

        async def tool(_: Any) -> Any:
            try:
                raise OSError(f"answered: {USUAL}")
            except OSError as cause:
                raise raised from cause

        middleware = KeyConcealment({"OPENAI_API_KEY": USUAL})
        with pytest.raises(RefusedError) as caught:
            asyncio.run(middleware.awrap_tool_call(None, tool))  # type: ignore[arg-type]

        assert caught.value is raised
        assert "OPENAI_API_KEY" in str(raised)
        assert USUAL not in f"{raised!r} {raised.message} {raised.body} {raised.__cause__!r}"

    def test_what_has_no_key_is_left_as_it_is(self) -> None:
        message = ToolMessage([{"type": "text", "text": "plain"}], tool_call_id="1")

        async def tool(_: Any) -> Any:
            return message

        middleware = KeyConcealment({"OPENAI_API_KEY": USUAL})
        assert asyncio.run(middleware.awrap_tool_call(None, tool)) is message  # type: ignore[arg-type]


class TestCredentials:
    def test_what_was_stored_is_there_again_and_only_its_user_can_read_it(self, coupler_home: Path) -> None:
        was = os.umask(0)
        try:
            path = store_credentials(Credentials().with_login("groq:a", None, ("groq", None), STORED))
        finally:
            os.umask(was)

        found = stored_credentials()

        assert (found.model, found.key_for("groq", None)) == ("groq:a", STORED)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [each.name for each in path.parent.iterdir()] == ["credentials.json"]

    def test_another_login_keeps_the_keys_of_others_and_replaces_its_own(self, coupler_home: Path) -> None:
        first = (
            Credentials()
            .with_login("groq:a", None, ("groq", None), "old")
            .with_login("openai:b", None, ("openai", None), "x")
        )

        second = first.with_login("groq:c", None, ("groq", None), "new")

        assert second.model == "groq:c"
        assert [(each.provider, each.key) for each in second.keys] == [("openai", "x"), ("groq", "new")]

    def test_writing_that_fails_leaves_the_old_file_whole(
        self, coupler_home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = store_credentials(Credentials(model="groq:a"))
        monkeypatch.setattr(json, "dump", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))

        with pytest.raises(OSError, match="full"):
            store_credentials(Credentials(model="groq:b"))

        assert stored_credentials().model == "groq:a"
        assert [each.name for each in path.parent.iterdir()] == ["credentials.json"]

    @pytest.mark.parametrize("content", [b"{", b"[]", b'{"keys": "sk-secret"}', b"\xff\xfe"])
    def test_a_file_that_is_no_such_file_is_told_without_its_content(
        self, coupler_home: Path, content: bytes
    ) -> None:
        coupler_home.mkdir(parents=True)
        (coupler_home / "credentials.json").write_bytes(content)

        with pytest.raises(ModelError, match=r"credentials\.json cannot be used") as caught:
            stored_credentials()

        assert "sk-secret" not in str(caught.value)

    def test_removing_is_told_apart_from_nothing_to_remove(self, coupler_home: Path) -> None:
        assert not remove_credentials()
        store_credentials(Credentials(model="groq:a"))
        assert remove_credentials()
        assert stored_credentials() == Credentials()

    def test_a_file_that_others_can_read_is_warned_of(
        self, coupler_home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store_credentials(Credentials(model="groq:a")).chmod(0o644)

        assert stored_credentials().model == "groq:a"

        assert "others can read it" in caplog.text
