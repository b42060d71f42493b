"""Cancel means cancel: whenever it comes, however often, and whatever the agent's code makes of it."""

import pytest

from agent.steps import begin, cancel, end_of, error_of, leave, says, still_serves
from raw_client import texts

AGENT = """
import asyncio
async def agent(turn):
    await turn.say("started")
    if turn.text == "wait":
        try:
            await asyncio.Event().wait()
        finally:
            await turn.say("cleaned up")
"""
CANCELLED = {"stopReason": "cancelled"}


def cancel_by_request(client, session):
    request = client.request("session/cancel", {"sessionId": session})
    client.send(request)
    # The schema has no answer to it.
    client._methods[request["id"]] = "_session/cancel"
    return client.answer_to(request)


def test_a_cancel_reaches_the_code_and_its_clean_up_may_still_report(share):
    client, session = share(AGENT)
    request = begin(client, session, "wait")

    client.send(cancel(session))

    updates, answer = end_of(client, request)
    assert texts(updates) == "cleaned up"
    assert answer["result"] == CANCELLED
    assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}


def test_a_cancel_with_an_id_is_obeyed_and_answered(share):
    client, session = share(AGENT)
    request = begin(client, session, "wait")

    answer = cancel_by_request(client, session)

    assert answer["result"] == {}
    assert end_of(client, request)[1]["result"] == CANCELLED


def test_a_cancel_with_an_id_for_an_idle_session_is_answered(share):
    client, session = share(AGENT)

    assert cancel_by_request(client, session)["result"] == {}
    assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}


def test_a_cancel_with_an_id_for_an_unknown_session_is_refused(share):
    client, _ = share(AGENT)

    assert error_of(client.call("session/cancel", {"sessionId": "x"})) == (-32002, "unknown_session")


def test_cancels_of_idle_and_unknown_sessions_are_silent_and_do_not_touch_the_next_prompt(share):
    client, session = share(AGENT)

    client.send(cancel(session), cancel(session), cancel("unknown"))

    assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}


def test_a_cancel_between_two_prompts_in_one_write_touches_the_first_alone(share):
    client, session = share(AGENT)
    first = begin(client, session, "wait")
    other = client.prompt_request(client.new_session(), "")

    client.send(cancel(session), other)

    assert client.answer_to(first)["result"] == CANCELLED
    assert client.answer_to(other)["result"] == {"stopReason": "end_turn"}


def test_cancelling_again_and_again_is_like_cancelling_once(share):
    client, session = share(AGENT)
    request = begin(client, session, "wait")

    client.send(*[cancel(session)] * 5)

    updates, answer = end_of(client, request)
    assert texts(updates) == "cleaned up"
    assert answer["result"] == CANCELLED
    still_serves(client)


def test_a_cancel_in_the_same_write_as_its_prompt_finds_it(share):
    client, session = share(AGENT)

    for _ in range(20):
        request = client.prompt_request(session, "wait")
        client.send(request, cancel(session))
        assert client.answer_to(request)["result"] == CANCELLED


def test_a_prompt_that_was_cancelled_before_its_first_step_never_runs(share):
    client, session = share(AGENT)
    request = client.prompt_request(session, "wait")

    client.send(request, cancel(session))

    assert texts(end_of(client, request)[0]) == ""


def test_a_cancel_right_behind_the_answer_leaves_the_next_prompt_alone(share):
    client, session = share(AGENT)

    for _ in range(20):
        assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}
        client.send(cancel(session))


def test_a_session_is_free_again_in_the_same_write_as_the_answer_to_its_cancelled_turn(share):
    client, session = share(AGENT)
    request = begin(client, session, "wait")
    client.send(cancel(session))
    client.answer_to(request)

    assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}


def test_a_cancel_touches_no_other_session(share):
    client, first = share(AGENT)
    second = client.new_session()
    kept, cancelled = begin(client, first, "wait"), begin(client, second, "wait")

    client.send(cancel(second))
    assert client.answer_to(cancelled)["result"] == CANCELLED

    client.send(cancel(first))
    assert client.answer_to(kept)["result"] == CANCELLED


@pytest.mark.parametrize(
    "ending",
    [
        "return 'end_turn'",
        "return 'nonsense'",
        "raise ValueError('in the clean-up')",
        "raise SystemExit(1)",
        "raise",
    ],
)
def test_a_cancelled_turn_ends_as_cancelled_however_its_code_ends(converse, ending):
    client, session = converse(f"""
        import asyncio
        async def agent(turn):
            await turn.say("started")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                {ending}
    """)
    request = begin(client, session)

    client.send(cancel(session))

    assert end_of(client, request)[1]["result"] == CANCELLED


def test_code_that_ignores_the_cancel_is_left_behind_and_its_turn_is_dead(converse):
    client, session = converse("""
        import asyncio
        import coupler.agent.turn
        coupler.agent.turn.CANCEL_GRACE = 0.1
        outcome = asyncio.Future()

        async def agent(turn):
            if turn.text == "how did it end?":
                await turn.say(await outcome)
                return
            await turn.tool("Stuck").__aenter__()
            await turn.say("started")
            try:
                while True:
                    try:
                        await asyncio.sleep(0.001)
                        await turn.say("going on")
                    except asyncio.CancelledError:
                        turn.check_alive()
            except BaseException as error:
                outcome.set_result(type(error).__name__)
                raise
    """)
    request = begin(client, session)

    client.send(cancel(session))

    updates, answer = end_of(client, request)
    assert updates[-1]["status"] == "failed"
    assert updates[-1]["_meta"] == {"coupler": {"outcome": "cancelled"}}
    assert answer["result"] == CANCELLED
    assert texts(client.prompt(session, "how did it end?")[0]) == "CancelledError"
    leave(client)
    assert b"left behind" in client.stderr


def test_cancelling_again_does_not_put_off_the_end(converse):
    client, session = converse("""
        import asyncio
        import coupler.agent.turn
        coupler.agent.turn.CANCEL_GRACE = 0.3
        async def agent(turn):
            await turn.say("started")
            while True:
                try:
                    await asyncio.sleep(0.01)
                    await turn.say("tick")
                except asyncio.CancelledError:
                    turn.check_alive()
    """)
    request = begin(client, session)
    client.send(cancel(session))

    answer = None
    while answer is None:
        frame = client.read()
        if frame.get("id") == request["id"]:
            answer = frame
        else:
            client.send(cancel(session))

    assert answer["result"] == CANCELLED


class TestCancelRequest:
    def test_it_cancels_a_prompt(self, share):
        client, session = share(AGENT)
        request = begin(client, session, "wait")

        client.send({"method": "$/cancel_request", "params": {"requestId": request["id"]}})

        updates, answer = end_of(client, request)
        assert texts(updates) == "cleaned up"
        assert answer["result"] == CANCELLED

    def test_it_cancels_a_session_that_is_still_being_made(self, start, tmp_path):
        source = """
            import os
            if os.path.exists("gate"):
                open("gate").read()
            async def agent(turn): ...
        """
        client = start(source, cwd=tmp_path)
        client.initialize()
        client.close_stdin()
        client.wait()
        import os

        os.mkfifo(tmp_path / "gate")
        client = start(source, cwd=tmp_path)
        client.initialize()
        new = client.request("session/new", {"cwd": "/", "mcpServers": []})
        client.send(new, {"method": "$/cancel_request", "params": {"requestId": new["id"]}})
        (tmp_path / "gate").write_text("go")

        assert error_of(client.answer_to(new)) == (-32800, "cancelled")
        assert client.new_session()

    def test_it_is_ignored_when_nothing_runs(self, share):
        client, session = share(AGENT)
        _, answer = client.prompt(session)

        client.send({"method": "$/cancel_request", "params": {"requestId": answer["id"]}})

        assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}


def test_a_cancel_waits_for_no_reader_of_the_flood_before_it(converse):
    """The client does not read while the agent floods it; the cancel still gets through."""
    client, session = converse("""
        async def agent(turn):
            await turn.say("started")
            if turn.text == "flood":
                while True:
                    await turn.say("x" * 1000)
    """)
    request = begin(client, session, "flood")

    client.send(cancel(session))

    assert end_of(client, request)[1]["result"] == CANCELLED
    client.send(prompt := client.prompt_request(session, ""))
    client.read_until(says("started"))
    assert client.answer_to(prompt)["result"] == {"stopReason": "end_turn"}
