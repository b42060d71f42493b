"""`ask`: one question, in a program with an event loop or without one."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from client.stage import Scripted
from coupler import AgentError, Budget, Policy, Turn, ask, connect
from coupler.client.remote import SessionOptions
from coupler.client.session import RemoteSession
from coupler.client_api import AskOptions

SLOW = """
for prompt in prompts():
    send(say("so far"))
    note("is", "slow")
    read_until(is_cancel)
    send(end(prompt, "cancelled"))
"""


@pytest.fixture
def scripted(tmp_path):
    made = []

    def make(body):
        made.append(Scripted(tmp_path, len(made), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


ECHO = "for prompt in prompts():\n    send(say(text_of(prompt)), end(prompt))"


async def shout(turn: Turn) -> None:
    await turn.say(turn.text.upper())


def test_the_answer_is_its_text(scripted):
    assert ask(scripted(ECHO).command, "hello") == "hello"


def test_it_works_inside_a_running_loop(scripted):
    async def work():
        return ask(scripted(ECHO).command, "hello")

    assert asyncio.run(work()) == "hello"


def test_it_works_in_a_thread_and_with_an_agent_of_this_process():
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask(shout, "hello")))
    thread.start()
    thread.join()
    assert answers == ["HELLO"]


def test_an_error_inside_a_running_loop_comes_out(scripted):
    async def work():
        return ask(["/nowhere/agent"], "hello")

    with pytest.raises(AgentError, match="/nowhere/agent"):
        asyncio.run(work())


@pytest.mark.parametrize(
    ("reason", "kind"), [("refusal", "refused"), ("max_tokens", "limit"), ("cancelled", "cancelled")]
)
def test_what_is_no_answer_is_an_error_with_what_came(scripted, reason, kind):
    agent = scripted(f"for prompt in prompts():\n    send(say('part'), end(prompt, {reason!r}))")
    with pytest.raises(AgentError) as caught:
        ask(agent.command, "hello")
    assert (caught.value.kind, caught.value.reply.text) == (kind, "part")


def test_options_of_connecting_opening_and_prompting_reach_their_places(scripted, tmp_path):
    agent = scripted("""
    for prompt in prompts():
        send(permission(1, title="Delete", kind="delete"))
        chosen = answer_to(1)["result"]["outcome"].get("optionId")
        send(say(os.environ["GREETING"] + " " + str(chosen)), end(prompt))
    """)
    answer = ask(
        agent.command,
        "hello",
        env={"GREETING": "hi"},
        files="none",
        cwd=tmp_path,
        permissions=Policy.allow_all(),
        until=lambda reply: "yes" in reply.text,
        timeout=30,
    )
    assert answer == "hi yes"
    assert agent.received_of("session/new")[0]["params"]["cwd"] == str(tmp_path)
    told = agent.received_of("initialize")[0]["params"]["clientCapabilities"]
    assert not told.get("fs", {}).get("readTextFile")


def test_a_temporary_directory_is_gone_afterwards(scripted):
    agent = scripted("""
    send(result(read(), HELLO))
    opened = read()
    send(result(opened, {"sessionId": "s1"}))
    send(say(opened["params"]["cwd"]), end(read()))
    read()
    """)
    place = ask(agent.command, "where?", cwd="temporary")
    assert Path(place).is_absolute()
    assert not Path(place).exists()


@dataclass
class Count:
    n: int


def test_a_typed_answer_is_a_value(scripted):
    agent = scripted("""for prompt in prompts():\n    send(say('```json\\n{"n": 4}\\n```'), end(prompt))""")
    assert ask(agent.command, "how many?", output=Count) == Count(4)


def test_an_unknown_option_is_an_error_that_lists_them():
    with pytest.raises(TypeError, match=r"ask\(\) takes no timeuot; .*timeout"):
        ask("agent", "hello", timeuot=3)


def test_it_takes_all_that_connect_new_and_prompt_take_and_nothing_else():
    taken = {
        name
        for function in (connect, RemoteSession.prompt)
        for name in inspect.signature(function).parameters
        if name not in ("self", "agent", "content", "output")
    }
    assert AskOptions.__annotations__.keys() == taken | SessionOptions.__annotations__.keys()
    with pytest.raises(TypeError, match="takes no reason"):
        ask("agent", "hello", reason="none")


def test_it_records_asks_the_user_and_limits_lines(scripted, tmp_path):
    record = tmp_path / "talk.ndjson"

    async def asks(turn: Turn) -> None:
        answer = await turn.ask("How many?", Count)
        await turn.say(f"{answer.value.n}")

    answer = ask(
        asks, "go", record=record, on_form=lambda form: {"n": 3}, frame_limit=100_000, grace=1.0, rounds=1
    )
    assert answer == "3"
    assert "How many?" in record.read_text()


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [
        ({"budget": Budget(tokens=0)}, "budget"),
        ({"budget": Budget(turns=0)}, "budget"),
        ({"budget": Budget(seconds=0)}, "deadline"),
        ({"timeout": 0}, "deadline"),
        ({"timeout": -1}, "deadline"),
    ],
)
def test_bounds_that_leave_nothing_start_nothing(scripted, bounds, kind):
    agent = scripted(ECHO)
    with pytest.raises(AgentError) as caught:
        ask(agent.command, "hello", **bounds)
    assert caught.value.kind == kind
    assert agent.noted("pid") == []


@pytest.mark.parametrize("timeout", ["3", float("nan")])
def test_a_timeout_that_is_no_time_starts_nothing(scripted, timeout):
    agent = scripted(ECHO)
    with pytest.raises((TypeError, ValueError), match="timeout= is a number of seconds"):
        ask(agent.command, "hello", timeout=timeout)
    assert agent.noted("pid") == []


NEVER_SPEAKS = "import time\nsys.stderr.write('waits for a key\\n')\nread()\nread()"
NEVER_OPENS = "send(result(read(), HELLO))\nread()\nread()"


@pytest.mark.parametrize("body", [NEVER_SPEAKS, NEVER_OPENS])
@pytest.mark.parametrize("bounds", [{"timeout": 0.5}, {"budget": 0.5}])
def test_the_time_is_that_of_the_start_too(scripted, body, bounds):
    agent = scripted(body)
    given = {"budget": Budget(seconds=0.5)} if "budget" in bounds else bounds
    began = time.monotonic()
    with pytest.raises(AgentError, match=r"the agent was not done within 0\.5 s") as caught:
        ask(agent.command, "hello", **given)
    assert caught.value.kind == "deadline"
    assert time.monotonic() - began < 5
    assert ("waits for a key" in caught.value.stderr) is (body == NEVER_SPEAKS)


@pytest.mark.parametrize("is_in_loop", [False, True])
def test_ctrl_c_cancels_the_turn_and_ends_the_agent(scripted, is_in_loop):
    agent = scripted(SLOW)
    call = f"ask({agent.command!r}, 'go')"
    catch = "except KeyboardInterrupt:\n    print('interrupted')"
    body = f"async def work():\n    {call}\nasyncio.run(work())" if is_in_loop else call
    program = f"import asyncio\nfrom coupler import ask\ntry:\n{_indented(body)}\n{catch}\n"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        agent.wait_for("is")
        process.send_signal(signal.SIGINT)
        try:
            said, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (said, process.returncode) == (b"interrupted\n", 0)
    assert len(agent.received_of("session/cancel")) == 1


def _indented(code):
    return "\n".join(f"    {line}" for line in code.splitlines())
