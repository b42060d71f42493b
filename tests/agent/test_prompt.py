"""Prompts and how their turns end."""

import pytest

from agent.steps import OBEDIENT, begin, cancel, end_of, error_of, leave, says, still_serves
from raw_client import texts


def test_a_served_function_answers_a_prompt(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say(f"You said: {turn.text}")
    """)

    updates, answer = client.prompt(session, "hello")

    assert texts(updates) == "You said: hello"
    assert answer["result"] == {"stopReason": "end_turn"}


def test_the_answer_carries_what_the_agent_tells_besides(share):
    client, session = share(OBEDIENT)
    _, answer = client.prompt(session, 'turn.meta = {"mine": {"values": [1, None, "\\ud800"]}}')
    assert answer["result"] == {"stopReason": "end_turn", "_meta": {"mine": {"values": [1, None, "\ufffd"]}}}

    secret = 'turn.session.add_secret("pin", "48151623"); turn.meta = {"mine": ["is 48151623"]}'
    _, answer = client.prompt(session, secret)
    assert answer["result"]["_meta"] == {"mine": ["is [secret:pin]"]}


def test_what_no_message_can_carry_is_the_agents_error(share):
    client, session = share(OBEDIENT)
    _, answer = client.prompt(session, 'turn.meta = {"mine": object()}')
    assert "error" in answer
    still_serves(client)


def test_an_empty_prompt_is_a_prompt(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say(f"{turn.text!r} {turn.blocks!r}")
    """)

    request = client.request("session/prompt", {"sessionId": session, "prompt": []})
    client.send(request)

    assert texts(end_of(client, request)[0]) == "'' ()"


def test_all_content_comes_before_the_answer(converse):
    client, session = converse("""
        async def agent(turn):
            for i in range(1000):
                await turn.say(f"{i} ")
    """)

    updates, answer = client.prompt(session)

    assert texts(updates).split() == [str(i) for i in range(1000)]
    assert answer["result"] == {"stopReason": "end_turn"}


def test_prompts_on_different_sessions_overlap(converse):
    client, first = converse("""
        import asyncio
        both = asyncio.Barrier(2)
        async def agent(turn):
            async with both:
                await turn.say("together")
    """)
    second = client.new_session()
    requests = [client.prompt_request(first, ""), client.prompt_request(second, "")]

    client.send(*requests)

    assert [client.answer_to(request)["result"]["stopReason"] for request in requests] == ["end_turn"] * 2


def test_a_session_takes_the_next_prompt_right_after_the_answer(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say(turn.text)
    """)

    assert [texts(client.prompt(session, f"{i}")[0]) for i in range(20)] == [f"{i}" for i in range(20)]


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("None", "end_turn"),
        ("'end_turn'", "end_turn"),
        ("'max_tokens'", "max_tokens"),
        ("'max_turn_requests'", "max_turn_requests"),
        ("'refusal'", "refusal"),
        ("'cancelled'", "cancelled"),
        ("''", "end_turn"),
    ],
)
def test_the_stop_reason_is_what_the_agent_returns(share, returned, reason):
    client, session = share(OBEDIENT)

    assert client.prompt(session, f"return {returned}")[1]["result"] == {"stopReason": reason}


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("'done'", "'done'"),
        ("True", "True"),
        ("{'a': 1}", "{'a': 1}"),
        ("[]or[1]", "[1]"),
        ("object", "object"),
    ],
)
def test_a_bad_stop_reason_is_an_error_that_lists_the_good_ones(share, returned, shown):
    client, session = share(OBEDIENT)

    answer = client.prompt(session, f"return {returned}")[1]

    assert error_of(answer) == (-32603, "agent_failed")
    assert shown in answer["error"]["message"]
    assert "end_turn, max_tokens, max_turn_requests, refusal, cancelled" in answer["error"]["message"]
    assert client.prompt(session, "pass")[1]["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    "raised",
    [
        "ValueError('the model is gone')",
        "SystemExit('the model is gone')",
        "KeyboardInterrupt('the model is gone')",
        "TimeoutError('the model is gone')",
        "GeneratorExit('the model is gone')",
    ],
)
def test_what_agent_code_raises_ends_its_turn_with_a_message_and_the_session_lives_on(share, raised):
    client, session = share(OBEDIENT)

    updates, answer = client.prompt(session, f"await turn.say('on my way')\nraise {raised}")

    assert texts(updates) == "on my way"
    assert error_of(answer) == (-32603, "agent_failed")
    kind = raised.partition("(")[0]
    assert answer["error"]["message"].startswith(f"{kind}: the model is gone")
    assert client.prompt(session, "pass")[1]["result"] == {"stopReason": "end_turn"}


def test_the_authors_traceback_is_on_stderr(converse):
    client, session = converse("""
        async def agent(turn):
            raise ValueError("the model is gone")
    """)
    client.prompt(session)
    leave(client)

    assert b'app.py", line 3, in agent' in client.stderr
    assert b"ValueError: the model is gone" in client.stderr


def test_an_exception_that_cannot_even_be_shown_is_answered(converse):
    client, session = converse("""
        class Rude(Exception):
            def __str__(self):
                raise RuntimeError
            __repr__ = __str__
        async def agent(turn):
            async with turn.tool("x"):
                raise Rude
    """)

    updates, answer = client.prompt(session)

    assert error_of(answer) == (-32603, "agent_failed")
    assert "Rude" in answer["error"]["message"]
    assert updates[-1]["status"] == "failed"


def test_a_returned_object_that_cannot_be_shown_is_answered(converse):
    client, session = converse("""
        class Rude:
            def __repr__(self):
                raise RuntimeError("no")
        async def agent(turn):
            return Rude()
    """)

    assert error_of(client.prompt(session)[1]) == (-32603, "agent_failed")


@pytest.mark.parametrize(
    "code",
    [
        "await asyncio.gather(leave())",
        "asyncio.ensure_future(leave()); await asyncio.Event().wait()",
        "asyncio.get_running_loop().call_soon(sys.exit, 3); await asyncio.Event().wait()",
    ],
)
def test_a_task_of_the_agent_that_exits_does_not_end_the_process(converse, code):
    client, session = converse(f"""
        import asyncio, sys
        async def leave():
            sys.exit(3)
        async def agent(turn):
            await turn.say("started")
            if turn.text == "exit":
                {code}
    """)
    request = begin(client, session, "exit")

    client.send(cancel(session))
    client.answer_to(request)

    assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}
    leave(client)
    assert b"SystemExit" in client.stderr


def test_an_exit_inside_a_task_group_is_an_error_of_the_turn(converse):
    client, session = converse("""
        import asyncio, sys
        async def leave():
            sys.exit("enough")
        async def agent(turn):
            async with asyncio.TaskGroup() as group:
                group.create_task(leave())
    """)

    answer = client.prompt(session)[1]

    assert answer["error"]["message"] == "SystemExit: enough"


def test_code_that_cancels_itself_is_an_error_and_no_cancelled_turn(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            raise asyncio.CancelledError
    """)

    answer = client.prompt(session)[1]

    assert error_of(answer) == (-32800, "cancelled")
    still_serves(client)


def test_a_missing_extra_says_what_to_install(converse):
    client, session = converse("""
        from coupler.runtime.extras import import_extra as need
        async def agent(turn):
            need("no_such_package", extra="langchain", feature="The LangChain bridge")
    """)

    answer = client.prompt(session)[1]

    expected = 'The LangChain bridge needs more packages: pip install "coupler[langchain]"'
    assert answer["error"]["message"] == expected


def test_a_turn_is_dead_after_its_answer(converse):
    """A task that an agent left running must not write into the next turn."""
    client, session = converse("""
        import asyncio
        tasks, outcomes = [], []
        over = asyncio.Event()

        async def afterwards(turn):
            await over.wait()
            for report in (
                lambda: turn.say("late"), lambda: turn.think("late"), lambda: turn.plan("late"),
                lambda: turn.tool("late").__aenter__(),
            ):
                try:
                    await report()
                except Exception as error:
                    outcomes.append(type(error).__name__)

        async def agent(turn):
            if turn.text == "first":
                tasks.append(asyncio.create_task(afterwards(turn)))
            else:
                over.set()
                await tasks[0]
                await turn.say(" ".join(outcomes))
    """)
    client.prompt(session, "first")

    updates, _ = client.prompt(session, "second")

    assert [update["content"]["text"] for update in updates] == [" ".join(["TurnEndedError"] * 4)]


def test_background_tasks_that_chatter_on_never_write_behind_the_answer(converse):
    client, session = converse("""
        import asyncio
        tasks = []
        async def chatter(turn):
            while True:
                await turn.say("blah")
                await asyncio.sleep(0)
        async def agent(turn):
            tasks.append(asyncio.create_task(chatter(turn)))
            await asyncio.sleep(0.01)
    """)

    _, answer = client.prompt(session)

    assert answer["result"] == {"stopReason": "end_turn"}
    still_serves(client)
    assert client._held == []


def test_two_sessions_of_an_agent_class_have_an_agent_each(converse):
    source = """
        from coupler import Agent
        class Counter(Agent):
            count = 0
            async def prompt(self, turn):
                self.count += 1
                await turn.say(f"{self.count}")
    """
    client, first = converse(source)
    second = client.new_session()

    said = [texts(client.prompt(session)[0]) for session in (first, first, second)]

    assert said == ["1", "2", "1"]


def test_two_sessions_of_an_instance_share_it(converse):
    client, first = converse("""
        from coupler import Agent
        class Counter(Agent):
            count = 0
            async def prompt(self, turn):
                self.count += 1
                await turn.say(f"{self.count}")
        agent = Counter()
    """)
    second = client.new_session()

    said = [texts(client.prompt(session)[0]) for session in (first, second)]

    assert said == ["1", "2"]


def test_an_agent_without_a_prompt_method_says_so(converse):
    client, session = converse("""
        from coupler import Agent
        class Lazy(Agent): ...
    """)

    answer = client.prompt(session)[1]

    assert answer["error"]["message"] == "NotImplementedError: Lazy has no `prompt` method"


def test_a_prompt_names_its_unaccepted_block(converse):
    client, session = converse("async def agent(turn): ...")
    blocks = [{"type": "text", "text": "look"}, {"type": "audio", "data": "", "mimeType": "audio/wav"}]

    answer = client.call("session/prompt", {"sessionId": session, "prompt": blocks})

    expected = "prompt[1]: this agent takes no audio blocks, only resource, resource_link, text"
    assert answer["error"]["message"] == expected


def test_accepted_images_and_sounds_reach_the_agent_as_blocks(converse):
    client, session = converse("""
        from coupler import Agent
        class Artist(Agent):
            accepts = ["image", "audio", "resource"]
            async def prompt(self, turn):
                await turn.say(f"{turn.text!r} " + " ".join(type(block).__name__ for block in turn.blocks))
    """)
    blob = {"uri": "file:///a", "blob": "AAAA"}
    blocks = [
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": blob},
    ]
    request = client.request("session/prompt", {"sessionId": session, "prompt": blocks})

    client.send(request)

    assert texts(end_of(client, request)[0]) == "'' ImageContent AudioContent EmbeddedResource"


def test_a_prompt_that_is_refused_leaves_the_session_idle(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say("here")
    """)
    client.call(
        "session/prompt", {"sessionId": session, "prompt": [{"type": "image", "data": "", "mimeType": "x"}]}
    )

    request = client.prompt_request(session, "")
    client.send(request)

    client.read_until(says("here"))
    assert client.answer_to(request)["result"] == {"stopReason": "end_turn"}


def test_a_coroutine_behind_a_plain_wrapper_is_awaited(converse):
    client, session = converse("""
        import functools

        def logged(function):
            @functools.wraps(function)
            def wrapper(turn):
                return function(turn)
            return wrapper

        @logged
        async def agent(turn):
            await turn.say("awaited")
            return "refusal"
    """)

    updates, answer = client.prompt(session)

    assert texts(updates) == "awaited"
    assert answer["result"] == {"stopReason": "refusal"}


@pytest.mark.parametrize("keyword", ["async def", "def"])
def test_a_generator_is_refused_with_what_can_be_served(start, keyword):
    client = start(f"{keyword} agent(turn):\n    yield 'text'\n")
    client.initialize()

    answer = client.call("session/new", {"cwd": "/", "mcpServers": []})

    assert "serve takes a function with one parameter named `turn`" in answer["error"]["message"]
