"""What a turn has used: counted by its agent, told with the answer to the prompt."""

from __future__ import annotations

import pytest

from client.stage import run
from coupler import AgentError, BlockingTurn, Turn, connect
from coupler.client.reply import Reply


def ask(agent: object) -> Reply:
    async def story() -> Reply:
        async with connect(agent) as remote:
            return await (await remote.new()).prompt("hello")

    return run(story())


def test_the_answer_says_what_was_counted_last() -> None:
    async def agent(turn: Turn) -> None:
        await turn.count_tokens(1, 1)
        await turn.count_tokens(10, 5, cached_read=100, cached_write=20, thought=3)

    usage = ask(agent).usage

    assert (usage.input, usage.output, usage.cached_read, usage.cached_write) == (10, 5, 100, 20)
    assert (usage.thought, usage.total, usage.is_estimated) == (3, 138, False)


def test_a_plain_function_counts_too() -> None:
    def agent(turn: BlockingTurn) -> None:
        turn.count_tokens(10, 5, total=20)

    assert ask(agent).usage.total == 20


def test_nothing_is_less_than_no_tokens() -> None:
    async def agent(turn: Turn) -> None:
        await turn.count_tokens(-1, 5)

    with pytest.raises(AgentError, match="`input_tokens` is a number of tokens from 0 on, not -1"):
        ask(agent)
