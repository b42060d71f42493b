"""Asking the user whether a tool call may go on. Anything but a clear yes is a no."""

import pytest

from agent.steps import asks, cancel, end_of, final_call, text_of
from raw_client import texts

AGENT = """
async def agent(turn):
    async with turn.tool("Delete notes.txt", kind="delete", path="notes.txt", input={"force": True}) as call:
        if await call.permitted():
            await call.output("deleted")
            await turn.say("yes")
        else:
            await turn.say("no")
"""
SELECTED = {"outcome": "selected", "optionId": "allow_once"}


def ask(client, session, text=""):
    request = client.prompt_request(session, text)
    client.send(request)
    *updates, question = client.read_until(asks("session/request_permission"))
    return request, [update["params"]["update"] for update in updates], question


def test_the_question_shows_the_call_that_waits_for_it(share):
    client, session = share(AGENT)

    request, updates, question = ask(client, session)

    (announced,) = updates
    assert announced["status"] == "pending"
    params = question["params"]
    assert params["sessionId"] == session
    assert params["toolCall"] == {
        "toolCallId": announced["toolCallId"],
        "title": "Delete notes.txt",
        "kind": "delete",
        "status": "pending",
        "locations": [{"path": "/notes.txt"}],
        "rawInput": {"force": True},
    }
    assert [(option["optionId"], option["kind"]) for option in params["options"]] == [
        ("allow_once", "allow_once"),
        ("allow_always", "allow_always"),
        ("reject_once", "reject_once"),
        ("reject_always", "reject_always"),
    ]
    assert (
        params["options"][1]["name"]
        == "Always allow deletions directly in the project's directory in this session"
    )
    client.send({"id": question["id"], "result": {"outcome": SELECTED}})
    client.answer_to(request)


def test_a_yes_lets_the_call_run_and_complete(share):
    client, session = share(AGENT)
    request, before, question = ask(client, session)

    client.send({"id": question["id"], "result": {"outcome": SELECTED}})

    updates, answer = end_of(client, request)
    assert [update.get("status") for update in [*before, *updates]] == [
        "pending",
        "in_progress",
        None,
        None,
        "completed",
    ]
    assert texts(updates) == "yes"
    assert answer["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (
            {"result": {"outcome": {"outcome": "selected", "optionId": "reject_once"}}},
            "not permitted by the user",
        ),
        ({"result": {"outcome": {"outcome": "cancelled"}}}, "not permitted by the user"),
        (
            {"result": {"outcome": {"outcome": "selected", "optionId": "allow_everything"}}},
            "not permitted by the user",
        ),
        ({"result": {"outcome": {"outcome": "selected", "optionId": ""}}}, "not permitted by the user"),
        (
            {"error": {"code": -32601, "message": "no dialogs here"}},
            "not permitted: the client could not ask",
        ),
        ({"error": "nonsense"}, "not permitted: "),
        ({"result": {"outcome": {"outcome": "maybe"}}}, "not permitted: "),
        ({"result": {"outcome": "allow_once"}}, "not permitted: "),
        ({"result": {"outcome": {"outcome": "selected"}}}, "not permitted: "),
        ({"result": {}}, "not permitted: "),
        ({"result": None}, "not permitted: "),
        ({"result": True}, "not permitted: "),
        ({"result": [SELECTED]}, "not permitted: "),
    ],
)
def test_anything_else_is_a_no_and_fails_the_call(share, reply, reason):
    client, session = share(AGENT)
    request, before, question = ask(client, session)

    client.send({"id": question["id"], **reply})

    updates, answer = end_of(client, request)
    assert texts(updates) == "no"
    call = final_call([*before, *updates])
    assert call["status"] == "failed"
    assert text_of(call).startswith(reason)
    assert answer["result"] == {"stopReason": "end_turn"}


def test_what_a_client_says_went_wrong_is_shortened(share):
    client, session = share(AGENT)
    request, before, question = ask(client, session)

    client.send({"id": question["id"], "error": {"code": -32603, "message": "wrong " * 100_000}})

    updates, _ = end_of(client, request)
    assert len(text_of(final_call([*before, *updates]))) == 500


@pytest.mark.parametrize(("prompt", "before"), [("permitted", ""), ("asked", "It broke ")])
def test_no_half_of_a_secret_is_left_when_it_is_shortened(start, prompt, before):
    source = """
    async def agent(turn):
        if turn.text == "asked":
            answer = await turn.ask("Which one?", bool)
            await turn.say(answer.reason)
            return
        async with turn.tool("Delete") as call:
            await call.permitted()
    """
    secret = "sup3r-s3cret-t0ken"
    client = start(source, env={"DEPLOY_TOKEN": secret})
    client.initialize()
    request, _, question = ask(client, client.new_session(), prompt)

    client.send({"id": question["id"], "error": {"code": -32603, "message": before + f"{secret}, " * 50}})

    _, answer = end_of(client, request)
    assert answer["result"] == {"stopReason": "end_turn"}
    assert b"sup3r" not in b"".join(client.lines)


def test_a_cancel_ends_the_wait_and_takes_the_question_back(share):
    client, session = share(AGENT)
    request, _, question = ask(client, session)

    client.send(cancel(session))

    taken_back, *_ = client.read_until(lambda frame: frame.get("method") == "$/cancel_request")
    assert taken_back["params"] == {"requestId": question["id"]}
    updates, answer = end_of(client, request)
    assert updates[-1]["_meta"] == {"coupler": {"outcome": "cancelled"}}
    assert answer["result"] == {"stopReason": "cancelled"}


def test_a_late_answer_to_a_question_that_was_taken_back_changes_nothing(share):
    client, session = share(AGENT)
    request, _, question = ask(client, session)
    client.send(cancel(session))
    end_of(client, request)

    client.send({"id": question["id"], "result": {"outcome": SELECTED}})

    request, _, question = ask(client, session)
    client.send({"id": question["id"], "result": {"outcome": SELECTED}})
    assert client.answer_to(request)["result"] == {"stopReason": "end_turn"}


def test_a_client_that_leaves_while_it_is_asked_cancels_the_turn(converse):
    client, session = converse(AGENT)
    ask(client, session)

    client.close_stdin()

    assert client.wait() == 0
    update, answer = client.rest()
    assert update["params"]["update"]["_meta"] == {"coupler": {"outcome": "cancelled"}}
    assert answer["result"] == {"stopReason": "cancelled"}


def test_a_yes_after_a_no_is_a_yes(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Try") as call:
                await call.permitted()
                await call.permitted()
    """)
    request, before, question = ask(client, session)
    client.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    *_, again = client.read_until(asks("session/request_permission"))

    client.send({"id": again["id"], "result": {"outcome": SELECTED}})

    updates, _ = end_of(client, request)
    assert final_call([*before, *updates])["status"] == "completed"


def test_a_question_that_is_open_when_its_turn_fails_is_taken_back(converse):
    client, session = converse("""
        import asyncio
        asking = asyncio.Event()
        async def ask(turn):
            async with turn.tool("Delete") as call:
                asking.set()
                await call.permitted()
        async def fail():
            await asking.wait()
            await asyncio.sleep(0)
            raise ValueError("elsewhere")
        async def agent(turn):
            await asyncio.gather(ask(turn), fail())
    """)

    request, _, question = ask(client, session)

    updates, answer = end_of(client, request)
    assert updates[-1]["status"] == "failed"
    assert "elsewhere" in answer["error"]["message"]
    assert client.read() == {
        "jsonrpc": "2.0",
        "method": "$/cancel_request",
        "params": {"requestId": question["id"]},
    }


def test_questions_of_concurrent_calls_are_told_apart(converse):
    client, session = converse("""
        import asyncio
        async def work(turn, i):
            async with turn.tool(f"Work {i}", id=f"{i}") as call:
                await call.permitted()
        async def agent(turn):
            await asyncio.gather(*(work(turn, i) for i in range(4)))
    """)
    request = client.prompt_request(session, "")
    client.send(request)
    questions = [client.read_until(asks("session/request_permission"))[-1] for _ in range(4)]

    for question in reversed(questions):
        even = int(question["params"]["toolCall"]["toolCallId"]) % 2 == 0
        option = "allow_once" if even else "reject_once"
        client.send(
            {"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": option}}}
        )

    updates, _ = end_of(client, request)
    ends = {update["toolCallId"]: update["status"] for update in updates if "status" in update}
    assert ends == {"0": "completed", "1": "failed", "2": "completed", "3": "failed"}


def test_an_open_question_stops_neither_another_session_nor_the_turns_other_words(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            if turn.text == "other":
                await turn.say("other")
                return
            async with turn.tool("Ask") as call:
                asking = asyncio.create_task(call.permitted())
                await turn.say("meanwhile")
                await asking
    """)
    request, before, _ = ask(client, session)
    assert texts([update for update in before if "content" in update]) == "meanwhile"

    updates, _ = client.prompt(client.new_session(), "other")

    assert texts(updates) == "other"
    client.send(cancel(session))
    assert client.answer_to(request)["result"] == {"stopReason": "cancelled"}
