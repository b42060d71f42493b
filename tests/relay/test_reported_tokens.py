"""Tokens and late text of an agent behind a relay, as a client of Coupler gets them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from client.stage import Scripted, run
from coupler import connect
from coupler.client.reply import Reply
from raw_client import COUPLER

Script = Callable[[str], Scripted]

SUMS = """
    HELLO["agentInfo"] = {{"name": {name!r}, "version": "1.0"}}
    for turn, prompt in enumerate(prompts(), 1):
        counts = {{"inputTokens": 20 * turn, "outputTokens": 5 * turn, "totalTokens": 25 * turn}}
        send(say("ok"), end(prompt, usage=counts))
"""

SPEAKS_LATE = """
    for turn, prompt in enumerate(prompts(), 1):
        send(say(f"answer {turn}"), end(prompt), say(f"late {turn}"))
"""


def replies(command: list[str]) -> list[Reply]:
    async def story() -> list[Reply]:
        async with connect(command) as agent:
            session = await agent.new()
            return [await session.prompt("go") for _ in range(3)]

    return run(story())


@pytest.mark.parametrize(("name", "is_estimated"), [("mistral-vibe", False), ("nobody-knows", True)])
@pytest.mark.parametrize("relays", [0, 1, 2])
def test_each_turn_of_an_agent_that_sums_is_charged_once_however_many_relays_there_are(
    script: Script, name: str, is_estimated: bool, relays: int
) -> None:
    agent = script(SUMS.format(name=name))
    relay = [*COUPLER, "serve", "--"]

    usages = [reply.usage for reply in replies([*relay * relays, *agent.command])]

    assert [usage.total for usage in usages] == [25, 25, 25]
    assert usages[-1].is_estimated == is_estimated


@pytest.mark.parametrize("program", [COUPLER, [str(Path(sys.executable).with_name("coupler"))]])
def test_text_that_comes_after_an_answer_is_no_part_of_the_next_one_behind_a_relay(
    script: Script, program: list[str]
) -> None:
    agent = script(SPEAKS_LATE)

    texts = [reply.text for reply in replies([*program, "serve", "--", *agent.command])]

    assert texts == ["answer 1", "answer 2", "answer 3"]
