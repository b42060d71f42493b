"""Tokens as agents report them: for a turn or for the session, in the answer or in `_meta`; and estimates."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from client.stage import Scripted, run
from coupler import AgentError, Budget
from coupler.client.reply import Reply

Script = Callable[[str], Scripted]

TURNS = """
    import json
    HELLO["agentInfo"] = {{"name": {name!r}, "version": "1.0"}}
    for prompt, turn in zip(prompts(), json.loads({turns!r})):
        for frame in turn["updates"]:
            send({{"method": "session/update", "params": {{"sessionId": "s1", **frame}}}})
        send(say("ok"), end(prompt, **turn["answer"]))
"""


def replies(
    script: Script, name: str, answers: list[dict[str, Any]], updates: list[dict[str, Any]] | None = None
) -> tuple[list[Reply], Budget]:
    """Prompt an agent of this name once for each answer, on one budget."""
    turns = [{"answer": answer, "updates": updates or []} for answer in answers]
    agent = script(TURNS.format(name=name, turns=json.dumps(turns)))
    budget = Budget(tokens=1_000_000)

    async def story() -> list[Reply]:
        async with agent.connect() as remote:
            session = await remote.new(budget=budget)
            return [await session.prompt("go") for _ in answers]

    return run(story()), budget


def usage(input: int, output: int, **more: int) -> dict[str, Any]:
    return {"usage": {"inputTokens": input, "outputTokens": output, "totalTokens": input + output, **more}}


def chunk(meta: dict[str, Any]) -> dict[str, Any]:
    content = {"type": "text", "text": ""}
    return {"update": {"sessionUpdate": "agent_message_chunk", "content": content, "_meta": meta}}


SUMS = """
    HELLO["agentInfo"] = {"name": NAME, "version": "1.0"}
    HELLO["agentCapabilities"] = {"loadSession": True}
    turns = 0
    while True:
        frame = read()
        if frame.get("method") == "initialize":
            send(result(frame, HELLO))
        elif frame.get("method") == "session/new":
            send(result(frame, {"sessionId": "s1"}))
        elif frame.get("method") == "session/load":
            turns = FORMER
            send(result(frame, {}))
        elif frame.get("method") == "session/prompt":
            turns += 1
            counts = {"inputTokens": 20 * turns, "outputTokens": 5 * turns, "totalTokens": 25 * turns}
            send(say("ok"), end(frame, usage=counts))
"""


def test_a_session_that_is_opened_again_is_not_charged_with_its_former_sum(script: Script) -> None:
    agent = script(SUMS.replace("NAME", repr("hermes-agent")).replace("FORMER", "2"))

    async def story() -> list[Reply]:
        async with agent.connect() as remote:
            session = await remote.new()
            before = [await session.prompt("go") for _ in range(2)]
            await remote.restart()
            session = await remote.load("s1")
            return [*before, *[await session.prompt("go") for _ in range(2)]]

    turns = run(story())
    assert [(turn.usage.total, turn.usage.is_estimated) for turn in turns] == [(25, False)] * 4


def test_the_first_turn_of_a_session_with_an_unknown_sum_is_an_estimate(script: Script) -> None:
    agent = script(SUMS.replace("NAME", repr("hermes-agent")).replace("FORMER", "1000"))

    async def story() -> list[Reply]:
        async with agent.connect() as remote:
            session = await remote.load("s1")
            return [await session.prompt("go") for _ in range(2)]

    first, second = run(story())
    assert first.usage.is_estimated
    assert first.usage.total < 25
    assert (second.usage.total, second.usage.is_estimated) == (25, False)


def test_what_may_be_a_sum_is_an_estimate(script: Script) -> None:
    told = [usage(20, 5), usage(40, 10), usage(40, 10)]
    for name, estimated in {
        "some-agent": [False, True, False],
        "hermes-agent": [False, False, False],
    }.items():
        turns, budget = replies(script, name, told)
        assert [turn.usage.is_estimated for turn in turns] == estimated, name
        assert budget.is_estimated == any(estimated)


@pytest.mark.parametrize("name", ["@mistralai/mistral-vibe", "hermes-agent", "some-agent"])
def test_a_sum_of_the_session_is_charged_once(script: Script, name: str) -> None:
    told = [usage(20, 5, cachedReadTokens=4), usage(40, 10, cachedReadTokens=8), usage(61, 16)]
    turns, budget = replies(script, name, told)
    assert [(turn.usage.input, turn.usage.output, turn.usage.total) for turn in turns] == [
        (20, 5, 25),
        (20, 5, 25),
        (21, 6, 27),
    ]
    assert turns[1].usage.cached_read == 4
    assert budget.spent_tokens == 77
    assert budget.is_estimated == (name == "some-agent")  # of the others it is known that they sum


def test_an_agent_that_sums_and_begins_anew_is_charged_what_it_says(script: Script) -> None:
    turns, budget = replies(script, "hermes-agent", [usage(200, 50), usage(20, 5), usage(40, 10)])
    assert [turn.usage.total for turn in turns] == [250, 25, 25]
    assert budget.spent_tokens == 300


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("some-agent", [(10, 5), (10, 5), (10, 5)]),
        ("some-agent", [(1000, 50), (1100, 60), (1200, 70)]),
        ("some-agent", [(1000, 50), (5000, 20), (9000, 200)]),
        ("@agentclientprotocol/claude-agent-acp", [(10, 5), (20, 10), (30, 15)]),
    ],
)
def test_what_is_counted_for_each_turn_is_charged_for_each(
    script: Script, name: str, told: list[tuple[int, int]]
) -> None:
    turns, budget = replies(script, name, [usage(*each) for each in told])
    assert [(turn.usage.input, turn.usage.output) for turn in turns] == told
    assert budget.spent_tokens == sum(map(sum, told))


def test_tokens_in_the_meta_of_an_answer_are_those_of_the_turn(script: Script) -> None:
    quota = {"quota": {"token_count": {"input_tokens": 44, "output_tokens": 9}, "model_usage": []}}
    turns, budget = replies(script, "gemini-cli", [{"_meta": quota}] * 2)
    assert [(turn.usage.input, turn.usage.output, turn.usage.total) for turn in turns] == [(44, 9, 53)] * 2
    assert not turns[0].usage.is_estimated and budget.spent_tokens == 106


def test_tokens_in_the_meta_of_empty_pieces_are_those_of_a_request_each(script: Script) -> None:
    counts = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 17, "thoughtTokens": 2}
    pieces = [chunk({"usage": counts, "durationMs": 7}), chunk({"usage": {**counts, "cachedReadTokens": 3}})]
    (turn,), _ = replies(script, "qwen-code", [{}], pieces)
    counted = turn.usage
    assert (counted.input, counted.output, counted.thought, counted.total) == (20, 10, 4, 34)
    assert counted.cached_read == 3 and not counted.is_estimated and turn.text == "ok"


@pytest.mark.parametrize("place", ["update", "notification", "answer"])
def test_tokens_in_a_status_line_are_those_of_the_turn_so_far(script: Script, place: str) -> None:
    def line(text: str) -> dict[str, Any]:
        return {"field_meta": {"openhands.dev/metrics": {"status_line": text}}}

    first, last = line("1,000 in, 5 out"), line("2,204 in, 1,015 out, 2 tools (1.5%)")
    pieces = [chunk(first), chunk(last)]
    if place == "notification":
        for piece in pieces:
            piece["_meta"] = piece["update"].pop("_meta")
    answer = {"_meta": last} if place == "answer" else {}
    (turn,), _ = replies(script, "fast-agent-acp", [answer], [] if place == "answer" else pieces)
    assert (turn.usage.input, turn.usage.output, turn.usage.total) == (2204, 1015, 3219)
    assert not turn.usage.is_estimated


@pytest.mark.parametrize(
    "meta",
    [
        {"quota": {"token_count": {"input_tokens": -1, "output_tokens": 9}}},
        {"quota": {"token_count": "many"}},
        {"usage": {"inputTokens": True, "outputTokens": 1}},
        {"usage": {"outputTokens": 1.5}},
        {"usage": [1]},
        {"usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}},
        {"openhands.dev/metrics": {"status_line": "busy"}},
    ],
    ids=str,
)
def test_what_is_no_count_of_tokens_leaves_an_estimate(script: Script, meta: dict[str, Any]) -> None:
    (turn,), budget = replies(script, "gemini-cli", [{"_meta": meta}], [chunk(meta)])
    assert turn.usage.is_estimated and turn.usage.total == 2
    assert budget.is_estimated


def test_a_budget_error_names_an_estimate_and_what_the_reply_says_was_used(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            call = dict(toolCallId="c", title="t", status="completed")
            content = [{"type": "content", "content": {"type": "text", "text": "x" * 40}}]
            send(update("tool_call", content=content, **call), say("y" * 40))
            read_until(is_cancel)
            send(say("z" * 40), end(prompt, "cancelled"))
    """)
    budget = Budget(tokens=10)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError) as caught:
                await (await remote.new()).prompt("go", budget=budget)
            assert caught.value.reply is not None
            total = caught.value.reply.usage.total
            assert (total, budget.spent_tokens) == (31, 31)
            assert str(caught.value) == "the budget of 10 tokens is spent (31 used, by estimate)"
            with pytest.raises(AgentError, match=r"\(31 used, by estimate\)"):
                await (await remote.new()).prompt("go", budget=budget)

    run(story())


def test_a_budget_error_after_exact_counts_names_no_estimate(script: Script) -> None:
    agent = script(f"for prompt in prompts(): send(end(prompt, **{usage(70, 5)!r}))")
    budget = Budget(tokens=75)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new(budget=budget)
            await session.prompt("go")
            with pytest.raises(AgentError, match=r"75 tokens is spent \(75 used\)$"):
                await session.prompt("go")

    run(story())


@pytest.mark.parametrize(
    ("info", "is_failure"),
    [
        ({"name": "OpenCode", "version": "1.18.33"}, True),
        ({"name": "@agentclientprotocol/claude-agent-acp", "version": "0.40.0"}, True),
        ({"name": "@zed-industries/claude-code-acp", "version": "0.2.0"}, True),
        ({"name": "another", "version": "1"}, False),
    ],
)
def test_quirks_go_by_what_an_agent_says_it_is(
    script: Script, info: dict[str, str], is_failure: bool
) -> None:
    agent = script(f"HELLO['agentInfo'] = {info!r}\nfor prompt in prompts(): send(end(prompt))")

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            if is_failure:
                with pytest.raises(AgentError, match="without an answer"):
                    await session.prompt("go")
            else:
                assert (await session.prompt("go")).is_empty

    run(story())
