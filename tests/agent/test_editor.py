"""What an agent asks of the client: typed, gated by what was offered, and never for ever."""

import pytest

from agent.steps import asks, begin, cancel, end_of, error_of, still_serves
from raw_client import texts

# Reads a file through the client and says what came of it.
AGENT = """
from coupler.schema import methods
from coupler.schema.v1 import ReadTextFileRequest, WriteTextFileRequest
from coupler.wire.messages import RpcError
from msgspec.structs import replace

def shorten(*kinds):
    for kind in kinds:
        methods._BY_PARAMS[kind] = replace(methods._BY_PARAMS[kind], deadline=0.2)

async def agent(turn):
    if turn.text == "impatient":
        shorten(ReadTextFileRequest)
    question = ReadTextFileRequest(turn.session.id, "/notes")
    if turn.text == "write":
        question = WriteTextFileRequest(turn.session.id, "/notes", "text")
    if turn.text == "careless":
        await turn.session.outlet.ask(question)
    try:
        answer = await turn.session.outlet.ask(question)
    except RpcError as error:
        await turn.say(f"{error.code} {error.reason} {error.message}")
    else:
        await turn.say(f"{answer!r}")
"""
READS = {"fs": {"readTextFile": True}}


def ask(client, session, text=""):
    request = client.prompt_request(session, text)
    client.send(request)
    *_, question = client.read_until(asks("fs/read_text_file"))
    return request, question


def test_a_deadline_of_ones_own_holds_for_a_dialog_too(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Delete", kind="delete") as call:
                await turn.say(str(await call.permitted(deadline=0.05)))
    """)

    request = client.prompt_request(session, "")
    client.send(request)
    frames, _ = end_of(client, request)

    assert texts(frames) == "False"


def test_an_answer_comes_back_as_its_type(share):
    client, session = share(AGENT, **READS)
    request, question = ask(client, session)
    assert question["params"] == {"sessionId": session, "path": "/notes"}

    client.send({"id": question["id"], "result": {"content": "text"}})

    assert texts(end_of(client, request)[0]).startswith("ReadTextFileResponse(content='text'")


@pytest.mark.parametrize(
    ("offered", "text"),
    [
        ({}, ""),
        ({"fs": {"writeTextFile": True}}, ""),
        (READS, "write"),
        ({"fs": {"readTextFile": "yes"}}, ""),
    ],
)
def test_what_was_not_offered_is_never_asked(converse, offered, text):
    client, session = converse(AGENT, **offered)

    updates, _ = client.prompt(session, text)

    assert texts(updates).startswith("-32603 not_offered the client does not offer fs/")
    assert all(b'"method":"fs/' not in line for line in client.lines)


def test_a_client_that_never_answers_ends_the_wait_after_the_deadline(converse):
    client, session = converse(AGENT, **READS)
    request, question = ask(client, session, "impatient")

    *_, taken_back = client.read_until(lambda frame: frame.get("method") == "$/cancel_request")

    assert taken_back["params"] == {"requestId": question["id"]}
    expected = "-32603 timed_out fs/read_text_file was not answered within 0.2 s"
    assert texts(end_of(client, request)[0]) == expected
    client.send({"id": question["id"], "result": {"content": "too late"}})
    still_serves(client)


@pytest.mark.parametrize(
    "reply",
    [
        {"result": {"content": 5}},
        {"result": {}},
        {"result": None},
        {"result": "text"},
        {"result": ["text"]},
        {"error": {"code": "x"}},
        {"error": None},
        {"error": {"code": -32000, "message": "no", "data": {"reason": "auth_required"}}},
        {"result": {"content": "a"}, "error": {"code": 1, "message": "both"}},
    ],
)
def test_a_garbled_answer_is_an_error_in_the_agents_code_and_the_turn_lives(share, reply):
    client, session = share(AGENT, **READS)
    request, question = ask(client, session)

    client.send({"id": question["id"], **reply})

    updates, answer = end_of(client, request)
    assert texts(updates).startswith("-32") or texts(updates).startswith("1 ")
    assert answer["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32601, "message": "never heard of it"},
        {"code": -32000, "message": "never heard of it", "data": {"reason": "auth_required"}},
        {"code": -32002, "message": "never heard of it"},
    ],
)
def test_a_refusal_that_nobody_caught_does_not_look_like_a_refusal_of_the_prompt(share, error):
    client, session = share(AGENT, **READS)
    request, question = ask(client, session, "careless")

    client.send({"id": question["id"], "error": error})

    answer = client.answer_to(request)
    assert error_of(answer) == (-32603, "agent_failed")
    assert "never heard of it" in answer["error"]["message"]


def test_what_nobody_caught_of_the_unoffered_is_named(share):
    client, session = share(AGENT)

    answer = client.prompt(session, "careless")[1]

    assert answer["error"]["data"] == {"reason": "not_offered", "method": "fs/read_text_file"}


def test_a_cancel_ends_the_wait(share):
    client, session = share(AGENT, **READS)
    request, _ = ask(client, session)

    client.send(cancel(session))

    assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}


def test_an_answer_keeps_its_place_among_the_agents_words(converse):
    """The question is sent after everything the session has said before it."""
    client, session = converse(
        """
        from coupler.schema.v1 import ReadTextFileRequest
        async def agent(turn):
            for i in range(300):
                await turn.say("x" * 500)
            await turn.say("started")
            await turn.session.outlet.ask(ReadTextFileRequest(turn.session.id, "/notes"))
    """,
        **READS,
    )
    request = begin(client, session)

    (question,) = client.read_until(asks("fs/read_text_file"))

    client.send({"id": question["id"], "result": {"content": ""}})
    assert client.answer_to(request)["result"] == {"stopReason": "end_turn"}
