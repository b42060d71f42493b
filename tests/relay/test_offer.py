"""What the agent behind is offered, where the catalogue says something about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from client.stage import Scripted
from raw_client import RawClient, texts

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]

ECHO = """
    for prompt in prompts():
        send(say(text_of(prompt)), end(prompt))
"""


@pytest.mark.parametrize(
    ("setting", "offered"),
    [
        ("", {"readTextFile": True, "writeTextFile": True}),
        ('files = "none"', {"readTextFile": False, "writeTextFile": False}),
        ('files = "read"', {"readTextFile": True, "writeTextFile": False}),
    ],
)
def test_an_agent_is_served_by_its_name_and_offered_what_is_set_for_it(
    script: Script, relay: Serve, coupler_home: Path, setting: str, offered: dict[str, bool]
) -> None:
    agent = script(ECHO)
    coupler_home.mkdir(exist_ok=True)
    (coupler_home / "coupler.toml").write_text(f"[agents.mine]\ncommand = {agent.command!r}\n{setting}\n")
    with relay(["mine"]) as editor:
        editor.initialize()
        assert texts(editor.prompt(editor.new_session(), "hello")[0]) == "hello"
    [hello] = agent.received_of("initialize")
    assert hello["params"]["clientCapabilities"]["fs"] == offered
