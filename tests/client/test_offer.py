"""What the client offers is what it advertises, and what it serves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from client.asking import Asked, Script, advertised, ask
from coupler import connect
from coupler.client.errors import REASONS
from coupler.client.remote import ClientOffer

METHODS = {
    "fs/read_text_file": ("fs", "readTextFile"),
    "fs/write_text_file": ("fs", "writeTextFile"),
    "terminal/create": ("terminal",),
    "terminal/output": ("terminal",),
    "terminal/wait_for_exit": ("terminal",),
    "terminal/kill": ("terminal",),
    "terminal/release": ("terminal",),
    "elicitation/create": ("elicitation",),
}


def is_advertised(capabilities: dict[str, Any], path: tuple[str, ...]) -> bool:
    value: Any = capabilities
    for name in path:
        value = (value or {}).get(name)
    return bool(value)


@pytest.mark.parametrize(
    ("offered", "served"),
    [
        ({}, {"fs/read_text_file"}),
        ({"files": "none"}, set()),
        ({"files": "read"}, {"fs/read_text_file"}),
        ({"files": "write"}, {"fs/read_text_file", "fs/write_text_file"}),
        ({"files": "none", "terminals": True}, {method for method in METHODS if method.startswith("term")}),
        ({"files": "none", "on_form": print}, {"elicitation/create"}),
        ({"files": "none", "on_url": print}, {"elicitation/create"}),
        ({"files": "write", "terminals": True, "on_form": print, "on_url": print}, set(METHODS)),
    ],
)
def test_a_method_is_served_exactly_if_it_is_advertised(
    script: Script, offered: dict[str, Any], served: set[str]
) -> None:
    found: set[str] = set()

    async def story(asked: Asked) -> None:
        for method in METHODS:
            if (await asked.request(method))["code"] != -32601:
                found.add(method)

    capabilities = advertised(ask(script, story, **offered))
    assert found == served
    assert {method for method, path in METHODS.items() if is_advertised(capabilities, path)} == served


VALUES = [
    None,
    True,
    -1,
    2**70,
    1.5,
    "",
    "s1",
    "/",
    "\0",
    "x" * 5000,
    [],
    ["a"],
    [None],
    {},
    {"a": {}},
    "form",
    "url",
]
KEYS = [
    *("sessionId", "path", "content", "line", "limit", "command", "args", "env", "cwd", "outputByteLimit"),
    *("terminalId", "mode", "message", "requestedSchema", "url", "elicitationId", "requestId", "toolCallId"),
]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_an_agent_asks_is_answered_once_and_the_session_lives_on(
    script: Script, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    frames: list[dict[str, Any]] = []
    for number in range(1000, 1300):
        params: Any = {key: chance.choice(VALUES) for key in KEYS if chance.random() < 0.5}
        # Most are to get past the session, and none is to run anything but `true`.
        params |= {"sessionId": "s1"} if chance.random() < 0.8 else {}
        params |= {"command": "true"} if isinstance(params.get("command"), str) else {}
        params = chance.choice([params] * 20 + VALUES)
        frames.append({"id": number, "method": chance.choice([*METHODS]), "params": params})
    (tmp_path / "a").write_text("still there")

    async def story(asked: Asked) -> None:
        answers = await asked.send(repr(frames))
        assert [answer["id"] for answer in answers] == [*range(1000, 1300)]
        reasons = {answer["error"]["data"]["reason"] for answer in answers if "error" in answer}
        assert reasons <= {"invalid_params", *(reason.name for reason in REASONS)}
        answer = await asked.request("fs/read_text_file", path=str(tmp_path / "a"))
        assert answer == {"content": "still there"}

    offer: dict[str, Any] = {"files": "write", "terminals": True, "on_form": lambda form: None}
    ask(script, story, session={"cwd": tmp_path}, on_url=lambda page: None, **offer)


def test_what_is_no_choice_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="files= is one of none, read, write, not 'all'"):
        connect("agent", files="all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_form= is a function"):
        ClientOffer(on_form="ask")  # type: ignore[arg-type]


def test_each_reason_for_a_refusal_is_in_the_manual() -> None:
    manual = (Path(__file__).parent.parent.parent / "docs" / "clients.md").read_text()
    rows = [f"| `{reason.name}` | {reason.code} | {reason.meaning} |" for reason in REASONS]
    assert [row for row in rows if row not in manual] == []
