"""Prompts with bounds: rounds, deadlines, budgets; and what they are for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from client.stage import PATIENCE, Scripted, is_running, run, until
from coupler import AgentError
from coupler.client.errors import EndTurn
from coupler.client.observation import Observation, PromptSent, TurnFinished
from coupler.client.prompt import Prompt
from coupler.client.quirks import FailsEmpty, Usual
from coupler.client.reply import Budget, Reply
from coupler.events import Event, Stop, Text, ToolCall
from coupler.schema.v1 import ImageContent
from tables import table

Script = Callable[[str], Scripted]

COUNTS = """
    for number, prompt in enumerate(prompts(), 1):
        call = dict(toolCallId=f"c{number}", title="t", status="completed")
        usage = {"totalTokens": 10, "inputTokens": 7, "outputTokens": 3, "cachedReadTokens": 2}
        send(update("tool_call", **call), say(f"{number}: {text_of(prompt)}"), end(prompt, usage=usage))
"""

OBEYS = """
    for prompt in prompts():
        send(say("some"))
        read_until(is_cancel)
        send(say(" more"), end(prompt, "cancelled"))
"""

DEAF = """
    for prompt in prompts():
        send(say("some"))
        while True:
            read()
"""


def test_a_check_sends_the_agent_back_to_work_until_it_is_content(script: Script) -> None:
    agent = script(COUNTS)
    seen: list[Observation] = []

    async def check(reply: Reply) -> str | bool:
        return reply.text.startswith("3") or f"not {reply.text[0]}"

    async def story() -> None:
        async with agent.connect(on_event=seen.append) as remote:
            session = await remote.new()
            reply = await session.prompt("go", until=check)
            assert (reply.text, reply.rounds) == ("3: not 2", 3)
            assert [call.id for call in reply.tool_calls] == ["c1", "c2", "c3"]
            assert (reply.usage.total, reply.usage.input, reply.usage.cached_read) == (30, 21, 6)

    run(story())
    assert len([one for one in seen if isinstance(one, PromptSent)]) == 3
    assert len([one for one in seen if isinstance(one, TurnFinished)]) == 3


def test_events_of_all_rounds_are_read_as_one_stream(script: Script) -> None:
    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            session = await remote.new()
            prompt = session.prompt("go", until=lambda reply: reply.rounds == 2)
            events = [event async for event in prompt if not isinstance(event, ToolCall)]
            assert [type(event) for event in events] == [Text, Text, Stop]

    run(story())


def test_rounds_are_bounded_and_the_error_has_the_last_reply(script: Script) -> None:
    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="not done after 2 rounds") as caught:
                await session.prompt("go", until=lambda reply: False, rounds=2)
            assert caught.value.kind == "limit"
            assert caught.value.reply is not None and caught.value.reply.text.startswith(
                "2: That is not done"
            )
            assert (await session.prompt("again")).text == "3: again"

    run(story())


def test_a_check_that_fails_fails_its_prompt_alone(script: Script) -> None:
    def check(reply: Reply) -> Any:
        raise LookupError("no such thing")

    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            session = await remote.new()
            with pytest.raises(LookupError, match="no such thing"):
                await session.prompt("go", until=check)
            with pytest.raises(TypeError, match="a check returns"):
                await session.prompt("go", until=lambda reply: 7)  # type: ignore[arg-type,return-value]
            assert (await session.prompt("on")).is_complete

    run(story())


def test_a_turn_that_did_not_end_well_is_not_judged(script: Script) -> None:
    async def story() -> None:
        async with script("for prompt in prompts(): send(end(prompt, 'refusal'))").connect() as remote:
            with pytest.raises(AgentError) as caught:
                await (await remote.new()).prompt("go", until=lambda reply: pytest.fail("judged"))
            assert caught.value.kind == "refused"

    run(story())


def test_a_deadline_cancels_and_the_error_has_what_came(script: Script) -> None:
    agent = script(OBEYS)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            started = time.monotonic()
            with pytest.raises(AgentError, match=r"within 0\.2 s") as caught:
                await session.prompt("go", timeout=0.2)
            assert time.monotonic() - started < 1.2
            assert caught.value.kind == "deadline"
            assert caught.value.reply is not None and caught.value.reply.text == "some more"
            assert remote.is_running

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_an_agent_that_ignores_the_deadline_is_ended_after_the_grace(script: Script) -> None:
    agent = script(DEAF)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            started = time.monotonic()
            with pytest.raises(AgentError) as caught:
                await session.prompt("go", timeout=0.2, grace=0.3)
            assert time.monotonic() - started < 1.5
            assert caught.value.kind == "deadline"
            assert caught.value.reply is not None and caught.value.reply.text == "some"
            await until(lambda: not remote.is_running and not is_running(agent.noted("pid")[0]))
            assert await remote.new()

    run(story())


def test_an_iterated_prompt_ends_with_its_deadline_too(script: Script) -> None:
    async def story() -> None:
        async with script(OBEYS).connect() as remote:
            session = await remote.new()
            events: list[Event] = []
            with pytest.raises(AgentError) as caught:
                async for event in session.prompt("go", timeout=0.2):
                    events.append(event)  # noqa: PERF401 - the loop ends in an error
            assert caught.value.kind == "deadline"
            assert events == [Text("some"), Text(" more")]

    run(story())


def test_a_budget_is_shared_and_ends_the_prompt_that_spends_it(script: Script) -> None:
    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            session = await remote.new()
            budget = Budget(tokens=25)
            for _ in range(3):
                await session.prompt("a", budget=budget)
            assert (budget.spent_tokens, budget.spent_turns, budget.is_estimated) == (30, 3, False)
            with pytest.raises(AgentError, match="the budget of 25 tokens is spent") as caught:
                await session.prompt("a", budget=budget)
            assert caught.value.kind == "budget"

    run(story())


def test_a_budget_of_a_session_holds_for_all_its_prompts(script: Script) -> None:
    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            budget = Budget(turns=2)
            session = await remote.new(budget=budget)
            await session.prompt("a")
            await session.prompt("a", budget=Budget(turns=1))
            await session.prompt("a")
            with pytest.raises(AgentError, match="2 turns") as caught:
                await session.prompt("a")
            assert (caught.value.kind, budget.spent_turns) == ("budget", 2)
            with pytest.raises(TypeError, match="budget= is a Budget"):
                await remote.new(budget=5)  # type: ignore[typeddict-item]

    run(story())


def test_a_budget_of_turns_counts_rounds(script: Script) -> None:
    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            with pytest.raises(AgentError, match="2 turns") as caught:
                await (await remote.new()).prompt("a", until=lambda reply: False, budget=Budget(turns=2))
            assert caught.value.kind == "budget"
            assert caught.value.reply is not None and caught.value.reply.rounds == 2

    run(story())


def test_a_stream_that_spends_the_budget_is_cancelled_on_the_way(script: Script) -> None:
    agent = script("""
        import select
        for prompt in prompts():
            while not select.select([0], [], [], 0)[0]:
                send(say("x" * 400))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            budget = Budget(tokens=1000)
            with pytest.raises(AgentError) as caught:
                await (await remote.new()).prompt("go", budget=budget)
            assert caught.value.kind == "budget"
            assert caught.value.reply is not None and len(caught.value.reply.text) >= 3600
            assert budget.is_estimated and budget.spent_tokens >= 1000

    run(story())


def test_the_cost_of_a_turn_is_what_the_session_has_grown_by(script: Script) -> None:
    agent = script("""
        for number, prompt in enumerate(prompts(), 1):
            cost = {"amount": number * 0.5, "currency": "EUR"}
            send(update("usage_update", used=number * 100, size=1000, cost=cost), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            one, two = [(await session.prompt("go")).usage for _ in range(2)]
            assert (one.cost, two.cost, two.currency) == (0.5, 0.5, "EUR")
            assert (two.context_used, two.context_size) == (200, 1000)
            budget = Budget(cost=0.4)
            with pytest.raises(AgentError, match=r"the budget of 0\.4 is spent"):
                await session.prompt("go", budget=budget)
            assert budget.spent_cost == 0.5

    run(story())


def test_a_deadline_that_has_passed_sends_nothing(script: Script) -> None:
    agent = script(COUNTS)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError) as caught:
                await session.prompt("go", budget=Budget(seconds=0))
            assert caught.value.kind == "deadline"
            assert (await session.prompt("go")).is_complete

    run(story())
    assert len(agent.received_of("session/prompt")) == 1


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_time_that_is_up_sends_nothing(script: Script, timeout: float) -> None:
    agent = script(COUNTS)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="the time was up before it began") as caught:
                await session.prompt("go", timeout=timeout)
            assert caught.value.kind == "deadline"
            with pytest.raises(AgentError, match="the budget of 0 turns is spent"):
                await session.prompt("go", budget=Budget(turns=0))
            assert (await session.prompt("on")).text == "1: on"

    run(story())


def test_bounds_that_are_no_numbers_are_told_where_they_are_given(script: Script) -> None:
    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            session = await remote.new()
            wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
                ({"timeout": "3"}, TypeError, "timeout= is a number of seconds, not '3'"),
                ({"timeout": True}, TypeError, "timeout= is a number of seconds, not True"),
                ({"timeout": float("nan")}, ValueError, "timeout= is a number of seconds, not nan"),
                ({"grace": None}, TypeError, "grace= is a number of seconds"),
                ({"rounds": 0}, ValueError, "rounds= is 1 at least"),
                ({"budget": 5}, TypeError, "budget= is a Budget"),
            ]
            for given, kind, words in wrong:
                with pytest.raises(kind, match=words):
                    session.prompt("go", **given)
            with pytest.raises(TypeError, match="a budget's tokens are a number, not '5'"):
                Budget(tokens="5")  # type: ignore[arg-type]

    run(story())


FAILS = """
    for prompt in prompts():
        how = text_of(prompt)
        send(say("x" * 400))
        if how == "dies":
            os._exit(3)
        if how == "answers an error":
            send(error(prompt, -32603, "no"))
        while how == "is deaf":
            read()
"""


@pytest.mark.parametrize("how", ["dies", "answers an error", "is deaf"])
def test_a_turn_that_fails_is_charged_once(script: Script, how: str) -> None:
    async def story() -> None:
        async with script(FAILS).connect() as remote:
            budget = Budget(tokens=1000)
            session = await remote.new()
            timeout = 0.3 if how == "is deaf" else 20
            with pytest.raises(AgentError) as caught:
                await session.prompt(how, budget=budget, timeout=timeout, grace=0.2)
            assert caught.value.reply is not None
            assert budget.spent_tokens == caught.value.reply.usage.total >= 100
            assert (budget.running_tokens, budget.spent_turns, budget.is_estimated) == (0, 1, True)

    run(story())


def test_a_prompt_that_was_not_sent_costs_nothing(script: Script) -> None:
    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            budget = Budget(turns=1)
            session = await remote.new()
            with pytest.raises(AgentError, match="does not take images"):
                await session.prompt([ImageContent("", "image/png")], budget=budget)
            assert budget.spent_turns == 0

    run(story())


def test_turns_that_share_a_budget_are_added_up_while_they_run(script: Script) -> None:
    agent = script("""
        running = [frame for _, frame in zip(range(2), prompts())]
        for frame in running:
            send(say("x" * 600, frame["params"]["sessionId"]))
        cancelled = read_until(is_cancel)["params"]["sessionId"]
        for frame in running:
            session = frame["params"]["sessionId"]
            send(end(frame, "cancelled" if session == cancelled else "end_turn"))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            budget = Budget(tokens=200)
            sessions = [await remote.new() for _ in range(2)]
            work = [_outcome(session.prompt("go", budget=budget)) for session in sessions]
            first, second = await asyncio.gather(*work)
            assert first == "end_turn"
            assert second == "budget"
            assert budget.spent_tokens >= 300

    run(story())


async def _outcome(prompt: Prompt) -> str:
    try:
        return (await prompt).stop_reason
    except AgentError as error:
        return error.kind


def test_a_check_that_blocks_holds_up_nobody_and_no_deadline(script: Script) -> None:
    released = threading.Event()

    async def story() -> None:
        async with script(COUNTS).connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError) as caught:
                await session.prompt("go", until=lambda reply: released.wait(PATIENCE), timeout=0.3)
            assert caught.value.kind == "deadline"
            assert caught.value.reply is not None and caught.value.reply.text == "1: go"
            assert (await session.prompt("on")).is_complete

    try:
        run(story())
    finally:
        released.set()


@pytest.mark.parametrize("verdict", ["", " \n"])
def test_a_check_without_a_word_to_say_is_content(script: Script, verdict: str) -> None:
    agent = script(COUNTS)

    async def story() -> None:
        async with agent.connect() as remote:
            reply = await (await remote.new()).prompt("go", until=lambda reply: verdict)
            assert reply.rounds == 1

    run(story())
    assert len(agent.received_of("session/prompt")) == 1


def test_an_empty_answer_is_a_failure_of_agents_that_hide_failures_so(script: Script) -> None:
    agent = """
        for prompt in prompts():
            print("no key", file=sys.stderr, flush=True)
            send(end(prompt))
    """

    async def story() -> None:
        async with script(agent).connect() as remote:
            assert (await (await remote.new()).prompt("go")).is_empty
        async with script(agent).connect(quirks=FailsEmpty()) as remote:
            with pytest.raises(AgentError, match="no key") as caught:
                await (await remote.new()).prompt("go")
            assert caught.value.kind == "prompt"

    run(story())


def test_content_of_agents_that_send_it_late_is_waited_for(script: Script) -> None:
    class Slow(Usual):
        linger = 0.3

    agent = """
        import time
        for prompt in prompts():
            send(say("a"), end(prompt))
            for letter in "bcd":
                time.sleep(0.1)
                send(say(letter))
    """

    async def story() -> None:
        async with script(agent).connect(quirks=Slow()) as remote:
            assert (await (await remote.new()).prompt("go")).text == "abcd"

    run(story())


def test_a_reason_to_end_the_turn_is_raised_after_everything_was_received(script: Script) -> None:
    async def story() -> None:
        async with script(OBEYS).connect() as remote:
            session = await remote.new()
            seen: list[str] = []
            with pytest.raises(EndTurn) as caught:
                async for event in session.prompt("go"):
                    if isinstance(event, Text):
                        seen.append(event.text)
                    session.end_turn(EndTurn({"answer": 42}))
            assert caught.value.payload == {"answer": 42}
            assert "".join(seen) == "some more"

    run(story())


@table(
    ("stop", "kind"),
    [
        ("refusal", "refused"),
        ("cancelled", "cancelled"),
        ("max_tokens", "limit"),
        ("max_turn_requests", "limit"),
        ("of its own", "prompt"),
    ],
)
def test_a_stop_that_is_no_success_can_be_raised(stop: str, kind: str) -> None:
    with pytest.raises(AgentError) as caught:
        Reply("text", stop).raise_for_stop()
    assert (caught.value.kind, caught.value.reply) == (kind, Reply("text", stop))
    assert Reply("text", "end_turn").raise_for_stop().text == "text"
