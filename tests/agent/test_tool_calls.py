"""Tool calls as a client sees them."""

import json

import pytest

from agent.steps import (
    OBEDIENT,
    asks,
    begin,
    cancel,
    end_of,
    error_of,
    final_call,
    text_of,
    tool_updates,
    update_of,
)
from raw_client import texts


def life_of(updates):
    return [(update["sessionUpdate"], update.get("status")) for update in tool_updates(updates)]


def test_a_call_is_announced_runs_and_is_completed_when_its_block_ends(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            async with turn.tool("Read app.py", kind="read", name="read", input={"path": "app.py"}) as call:
                await asyncio.sleep(0)
                await call.result({"lines": 3})
    """)

    updates, _ = client.prompt(session)

    assert life_of(updates) == [
        ("tool_call", "pending"),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", None),
        ("tool_call_update", "completed"),
    ]
    call = final_call(updates)
    assert (call["title"], call["kind"], call["rawInput"], call["rawOutput"]) == (
        "Read app.py",
        "read",
        {"path": "app.py"},
        {"lines": 3},
    )


def test_a_call_that_reports_at_once_runs_at_once(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Work") as call:
                await call.output("done")
    """)

    assert life_of(client.prompt(session)[0]) == [
        ("tool_call", "pending"),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed"),
    ]


def test_an_empty_block_is_a_completed_call(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Nothing"):
                pass
    """)

    assert life_of(client.prompt(session)[0]) == [("tool_call", "pending"), ("tool_call_update", "completed")]


def test_an_exception_fails_the_call_with_its_text_below_what_was_shown(converse):
    client, session = converse("""
        async def agent(turn):
            try:
                async with turn.tool("Work") as call:
                    await call.output("halfway")
                    raise OSError("disk full")
            except OSError:
                await turn.say("went on")
    """)

    updates, answer = client.prompt(session)

    call = final_call(updates)
    assert call["status"] == "failed"
    assert text_of(call) == "halfway\nOSError: disk full"
    assert "_meta" not in call
    assert texts(updates) == "went on"
    assert answer["result"] == {"stopReason": "end_turn"}


def test_an_exception_through_nested_calls_fails_them_from_the_inside_out(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Outer", id="outer"):
                async with turn.tool("Inner", id="inner"):
                    raise ValueError("deep")
    """)

    updates, answer = client.prompt(session)

    ends = [update["toolCallId"] for update in tool_updates(updates) if update.get("status") == "failed"]
    assert ends == ["inner", "outer"]
    assert error_of(answer) == (-32603, "agent_failed")


def test_a_cancelled_call_is_failed_and_says_that_it_was_cancelled(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            async with turn.tool("Work"):
                await turn.say("started")
                await asyncio.Event().wait()
    """)
    request = begin(client, session)

    client.send(cancel(session))

    updates, answer = end_of(client, request)
    assert updates[-1]["status"] == "failed"
    assert updates[-1]["_meta"] == {"coupler": {"outcome": "cancelled"}}
    assert answer["result"] == {"stopReason": "cancelled"}


LEFT_OPEN = """
    import asyncio
    calls = []
    async def agent(turn):
        for title in ("one", "two"):
            call = turn.tool(title, id=turn.text + title)
            calls.append(await call.__aenter__())
        await call.output("shown")
        await turn.say("started")
        match turn.text:
            case "error": raise ValueError("boom")
            case "wait": await asyncio.Event().wait()
"""


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("success", "completed", "shown"),
        ("error", "failed", "shown\nValueError: boom"),
        ("wait", "failed", "shown\ncancelled"),
    ],
)
def test_calls_that_were_left_open_are_settled_before_the_answer(converse, text, status, reason):
    client, session = converse(LEFT_OPEN)
    request = begin(client, session, text)

    if text == "wait":
        client.send(cancel(session))

    updates, _ = end_of(client, request)
    assert [(update["toolCallId"], update["status"]) for update in updates[-2:]] == [
        (text + "one", status),
        (text + "two", status),
    ]
    assert text_of(updates[-1]) == (reason if status == "failed" else "")


def test_calls_that_were_left_open_are_settled_when_the_client_leaves(converse):
    client, session = converse(LEFT_OPEN)
    request = begin(client, session, "wait")

    client.close_stdin()

    frames = client.rest()
    assert [frame["params"]["update"]["status"] for frame in frames[-3:-1]] == ["failed", "failed"]
    assert frames[-1] == {"jsonrpc": "2.0", "id": request["id"], "result": {"stopReason": "cancelled"}}
    assert client.wait() == 0


def test_a_call_of_an_earlier_turn_is_over(converse):
    client, session = converse("""
        calls = []
        async def agent(turn):
            if not calls:
                calls.append(await turn.tool("Old").__aenter__())
            else:
                try:
                    await calls[0].output("more")
                except Exception as error:
                    await turn.say(type(error).__name__)
                await calls[0].__aexit__(None, None, None)
    """)
    client.prompt(session)

    updates, answer = client.prompt(session)

    assert [update["sessionUpdate"] for update in updates] == ["agent_message_chunk"]
    assert texts(updates) == "TurnEndedError"
    assert answer["result"] == {"stopReason": "end_turn"}


def test_an_id_is_used_once_in_a_session_and_again_in_another(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Work", id="toolu_1"):
                pass
    """)
    client.prompt(session)

    updates, answer = client.prompt(session)
    elsewhere, _ = client.prompt(client.new_session())

    assert tool_updates(updates) == []
    assert "'toolu_1' was announced before" in answer["error"]["message"]
    assert final_call(elsewhere)["toolCallId"] == "toolu_1"


def test_concurrent_calls_each_have_their_life(converse):
    client, session = converse("""
        import asyncio
        async def work(turn, i):
            async with turn.tool(f"Work {i}", id=f"{i}") as call:
                await call.output(f"{i}")
                await asyncio.sleep(0)
                if i % 2:
                    raise ValueError(i)
        async def agent(turn):
            await asyncio.gather(*(work(turn, i) for i in range(10)), return_exceptions=True)
    """)

    updates, _ = client.prompt(session)

    ends = {update["toolCallId"]: update["status"] for update in tool_updates(updates) if "status" in update}
    assert ends == {f"{i}": "failed" if i % 2 else "completed" for i in range(10)}


def test_one_call_cannot_be_entered_twice(converse):
    client, session = converse("""
        async def agent(turn):
            call = turn.tool("Work")
            async with call:
                pass
            async with call:
                pass
    """)

    updates, answer = client.prompt(session)

    assert "was announced before" in answer["error"]["message"]
    assert final_call(updates)["status"] == "completed"


@pytest.mark.parametrize(
    "method", ["output('x')", "locate('x')", "retitle('x')", "input(1)", "result(1)", "permitted()"]
)
def test_a_call_outside_of_its_block_is_an_error(share, method):
    client, session = share(OBEDIENT)

    updates, answer = client.prompt(session, f"await turn.tool('Work').{method}")

    assert tool_updates(updates) == []
    assert error_of(answer) == (-32603, "agent_failed")


def test_a_diff_has_an_absolute_path_and_both_texts(converse, tmp_path):
    client, _ = converse("""
        async def agent(turn):
            async with turn.tool("Edit", kind="edit") as call:
                await call.diff("src/../app.py", "old", "new")
                await call.diff("/etc/new", None, "fresh")
    """)
    session = client.new_session(str(tmp_path))

    call = final_call(client.prompt(session)[0])

    assert call["content"] == [
        {"type": "diff", "path": f"{tmp_path}/app.py", "newText": "new", "oldText": "old"},
        {"type": "diff", "path": "/etc/new", "newText": "fresh", "oldText": None},
    ]


def test_locations_are_absolute_and_add_up(converse, tmp_path):
    client, _ = converse("""
        async def agent(turn):
            async with turn.tool("Look", path="a.py", line=0) as call:
                await call.locate("./b.py", 7)
                await call.locate("/c.py")
    """)
    session = client.new_session(str(tmp_path))

    updates, _ = client.prompt(session)

    assert updates[0]["locations"] == [{"path": f"{tmp_path}/a.py", "line": 0}]
    assert final_call(updates)["locations"] == [
        {"path": f"{tmp_path}/a.py", "line": 0},
        {"path": f"{tmp_path}/b.py", "line": 7},
        {"path": "/c.py"},
    ]


def test_outputs_add_up_and_the_title_changes(converse):
    client, session = converse("""
        from coupler.schema.v1 import ImageContent
        async def agent(turn):
            async with turn.tool("Work") as call:
                await call.output("one")
                await call.output(ImageContent("AAAA", "image/png"))
                await call.retitle("Worked")
                await call.input({"late": True})
    """)

    call = final_call(client.prompt(session)[0])

    assert [part["content"]["type"] for part in call["content"]] == ["text", "image"]
    assert (call["title"], call["rawInput"]) == ("Worked", {"late": True})


def test_texts_in_a_row_are_one(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Work") as call:
                for piece in ("one ", "two ", "three"):
                    await call.output(piece)
    """)

    updates, _ = client.prompt(session)

    assert final_call(updates)["content"] == [
        {"type": "content", "content": {"type": "text", "text": "one two three"}}
    ]


FLOOD = """
    async def agent(turn):
        count, size = map(int, turn.text.split())
        async with turn.tool("Work") as call:
            for number in range(count):
                await call.output(f"line {number} ".ljust(size - 1, ".") + "\\n")
                if number == 0:
                    await turn.say("started")
"""


@pytest.mark.parametrize(("count", "size"), [(1000, 280), (2560, 4096), (50_000, 10)])
def test_what_is_sent_of_long_output_is_in_proportion_to_it(converse, count, size):
    client, session = converse(FLOOD)

    updates, _ = client.prompt(session, f"{count} {size}")

    assert sum(map(len, client.lines)) <= 2 * count * size + 512 * 1024
    text = text_of(final_call(updates))
    assert text.startswith("line 0 .")
    assert text.splitlines()[-1].startswith(f"line {count - 1} ")
    assert " left out …\n" in text
    assert len(text.encode()) < 33 * 1024


def test_the_first_line_of_long_output_is_visible_at_once(converse):
    client, session = converse(FLOOD)

    updates, _ = client.prompt(session, "1000 280")

    first = next(index for index, update in enumerate(updates) if text_of(update))
    said = next(index for index, update in enumerate(updates) if "messageId" in update)
    assert first < said
    assert text_of(updates[first]).startswith("line 0 ")


def test_output_is_shown_while_the_call_goes_on(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            async with turn.tool("Work") as call:
                await call.output("one ")
                await call.output("two")
                await asyncio.Event().wait()
    """)
    request = client.prompt_request(session, "")

    client.send(request)

    client.read_until(lambda frame: text_of(update_of(frame)) == "one two")
    client.send(cancel(session))
    updates, _ = end_of(client, request)
    assert text_of(updates[-1]) == "one two\ncancelled"


def test_a_question_shows_what_the_call_shows(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Work") as call:
                await call.output("one ")
                await call.output("two" + "." * 1_000_000)
                await call.permitted()
    """)
    request = client.prompt_request(session, "")
    client.send(request)

    *_, question = client.read_until(asks("session/request_permission"))

    assert text_of(question["params"]["toolCall"]).startswith("one two...")
    assert len(text_of(question["params"]["toolCall"])) < 33 * 1024
    client.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    client.answer_to(request)


def test_a_report_after_the_calls_end_is_dropped(converse):
    client, session = converse("""
        async def agent(turn):
            async with turn.tool("Work") as call:
                pass
            await call.output("too late")
    """)

    updates, answer = client.prompt(session)

    assert life_of(updates)[-1] == ("tool_call_update", "completed")
    assert answer["result"] == {"stopReason": "end_turn"}


def test_strange_inputs_and_outputs_arrive_as_json(converse):
    client, session = converse("""
        import math
        class Rude:
            def __repr__(self):
                raise RuntimeError
        cycle = []
        cycle.append(cycle)
        async def agent(turn):
            async with turn.tool("Work", input={"bytes": b"x", "nan": math.nan, "cycle": cycle}) as call:
                await call.result({"rude": Rude(), "huge": "x" * 10_000_000, 5: object, "deep": [[[]]] * 3})
    """)

    updates, answer = client.prompt(session)

    call = final_call(updates)
    assert call["rawInput"] == {"bytes": "base64:eA==", "nan": "nan", "cycle": ["<cycle>"]}
    assert call["rawOutput"]["rude"] == "<Rude that cannot be shown: RuntimeError>"
    assert len(json.dumps(call["rawOutput"])) < 100_000
    assert answer["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize("given", ["False", "0", "''", "[]"])
def test_an_empty_input_is_an_input(share, given):
    client, session = share(OBEDIENT)

    updates, _ = client.prompt(session, f"async with turn.tool('Work', input={given}): pass")

    assert final_call(updates)["rawInput"] == eval(given)
