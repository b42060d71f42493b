"""A cancel at any point of a graph's run: answered at once, and the conversation can be gone on with."""

import time

import pytest

from agent.steps import cancel, end_of
from labs.langchain.acting import HERE, Stage, by_id
from raw_client import texts

HISTORY = "[[repr([(m.type, m.text, [c['id'] for c in getattr(m, 'tool_calls', [])]) for m in messages])]]"
"""A script that says what the model was given."""


@pytest.fixture(scope="module", params=["actor", "actor_inside"])
def stage(request, tmp_path_factory):
    stage = Stage(HERE / "graphs" / f"{request.param}.py", tmp_path_factory.mktemp("home"))
    yield stage
    stage.close()


def is_update(kind, **fields):
    def matches(frame):
        update = frame.get("params", {}).get("update", {})
        return update.get("sessionUpdate") == kind and fields.items() <= update.items()

    return matches


def history_of(client, session):
    updates, answer = client.prompt(session, HISTORY)
    assert answer["result"]["stopReason"] == "end_turn"
    return eval(texts(updates))


def check_usable(history):
    """Every tool call has a result right behind the message that made it, as providers want it."""
    for at, (kind, _, calls) in enumerate(history):
        assert kind != "tool" or history[at - 1][0] in ("ai", "tool")
        assert [entry[0] for entry in history[at + 1 : at + 1 + len(calls)]] == ["tool"] * len(calls)


POINTS = [
    pytest.param("[[wait(30), 'never']]", is_update("session_info_update"), id="before the first token"),
    pytest.param("[['Some ', wait(30)]]", is_update("agent_message_chunk"), id="in the middle of a text"),
    pytest.param(
        "[[*call('add', 'c', a=1, b=2)[:2], wait(30)]]",
        is_update("tool_call"),
        id="while arguments are written",
    ),
    pytest.param(
        "[[call('slow', 'c', seconds=30)]]",
        is_update("tool_call_update", status="in_progress"),
        id="in a coroutine",
    ),
    pytest.param(
        "[[call('block', 'c', seconds=3)]]",
        is_update("tool_call_update", status="in_progress"),
        id="in a plain function",
    ),
    pytest.param(
        "[[call('add', 'a', a=1, b=2), call('slow', 'c', index=1, seconds=30)]]",
        is_update("tool_call_update", status="completed"),
        id="beside a call that is done",
    ),
]


@pytest.mark.parametrize("script, reached", POINTS)
def test_a_cancel_is_answered_at_once_and_the_history_stays_usable(stage, script, reached):
    client, session = stage.session()
    request = client.prompt_request(session, script)
    client.send(request)
    seen = client.read_until(reached)

    began = time.monotonic()
    client.send(cancel(session))
    updates, answer = end_of(client, request)

    assert time.monotonic() - began < 1.5
    assert answer["result"]["stopReason"] == "cancelled"
    shown = [frame["params"]["update"] for frame in seen if "params" in frame] + updates
    assert {call["status"] for call in by_id(shown).values()} <= {"completed", "failed"}
    check_usable(history_of(client, session))


def test_a_result_that_had_come_before_the_cancel_is_not_lost(stage):
    client, session = stage.session()
    script = "[[call('add', 'done', a=1, b=2), call('slow', 'lost', index=1, seconds=30)]]"
    request = client.prompt_request(session, script)
    client.send(request)
    client.read_until(is_update("tool_call_update", toolCallId="done", status="completed"))

    client.send(cancel(session))
    end_of(client, request)

    results = [text for kind, text, _ in history_of(client, session) if kind == "tool"]
    assert results[0] == "3"
    assert "interrupted" in results[1]


def cut_off(client, session, script):
    """Cancel an answer of which something was said."""
    request = client.prompt_request(session, script)
    client.send(request)
    client.read_until(is_update("agent_message_chunk"))
    client.send(cancel(session))
    end_of(client, request)


def test_the_beginning_of_an_answer_that_was_cut_off_is_remembered(stage):
    client, session = stage.session()

    cut_off(client, session, "[['The first of ', 'all ', wait(30)]]")

    assert ("ai", "The first of all ", []) in history_of(client, session)


def test_the_beginning_of_an_answer_that_was_cut_off_is_not_said_again(stage):
    client, session = stage.session()
    cut_off(client, session, "[['The first of all ', wait(30)]]")

    updates, _ = client.prompt(session, "[['And on.']]")

    assert texts(updates) == "And on."


def test_what_a_cancel_left_behind_is_heard_of_no_more(stage):
    client, session = stage.session()
    request = client.prompt_request(session, "[[call('late', 'c', seconds=0.4)]]")
    client.send(request)
    client.read_until(is_update("tool_call_update", status="in_progress"))

    client.send(cancel(session))
    end_of(client, request)
    updates, _ = client.prompt(session, "[[wait(0.8), 'Quiet.']]")

    assert texts(updates) == "Quiet."
    assert by_id(updates) == {}


def test_plain_functions_that_were_left_behind_do_not_keep_others_from_running(stage):
    client, session = stage.session()
    many = ", ".join(f"call('block', 'c{index}', index={index}, seconds=4)" for index in range(40))
    request = client.prompt_request(session, f"[[{many}]]")
    client.send(request)
    client.read_until(is_update("tool_call_update", toolCallId="c39", status="in_progress"))
    client.send(cancel(session))
    end_of(client, request)

    began = time.monotonic()
    updates, _ = client.prompt(session, "[[call('block', 'next', seconds=0)], ['Done.']]")

    assert texts(updates) == "Done."
    assert time.monotonic() - began < 3
