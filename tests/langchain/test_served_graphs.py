"""Graphs of LangChain served over stdio: what a client sees of one turn."""

import pytest

from agent.steps import end_of, text_of
from labs.langchain.acting import ACTOR, Stage, by_id, statuses
from raw_client import texts


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    stage = Stage(ACTOR, tmp_path_factory.mktemp("home"))
    yield stage
    stage.close()


@pytest.fixture
def play(stage):
    """Has the graph play a script in a new session; gives the updates and the answer."""

    def play(script, *earlier):
        client, session = stage.session()
        for before in earlier:
            client.prompt(session, before)
        return client.prompt(session, script)

    return play


def of_kind(updates, kind):
    return [update for update in updates if update["sessionUpdate"] == kind]


def test_a_graph_introduces_itself_by_its_name_and_takes_all_kinds_of_blocks(stage):
    assert stage.hello["agentInfo"]["name"] == "actor"
    assert stage.hello["agentCapabilities"]["promptCapabilities"] == {
        "image": True,
        "audio": True,
        "embeddedContext": True,
    }


def test_text_and_thoughts_come_in_pieces_under_the_id_of_their_message(play):
    updates, answer = play("[[think('Hm.'), 'One ', '', 'two']]")

    said = of_kind(updates, "agent_message_chunk")
    assert [update["content"]["text"] for update in said] == ["One ", "two"]
    thought = of_kind(updates, "agent_thought_chunk")
    assert [update["content"]["text"] for update in thought] == ["Hm."]
    assert len({update["messageId"] for update in said + thought}) == 1
    assert said[0]["messageId"].startswith("lc_run-")
    assert answer["result"]["stopReason"] == "end_turn"


def test_each_answer_of_the_model_is_a_message_of_its_own(play):
    updates, _ = play("[['First. ', call('add', 'c', a=1, b=2)], ['Second.']]")

    first, second = of_kind(updates, "agent_message_chunk")
    assert first["messageId"] != second["messageId"]


def test_a_tool_call_has_one_id_from_its_first_token_to_its_end(play):
    updates, _ = play("[[call('add', 'call_one', a=1, b=22)], ['It is done.']]")

    calls = by_id(updates)
    assert [*calls] == ["call_one"]
    assert statuses(updates, "call_one") == ["pending", "in_progress", "completed"]
    assert calls["call_one"]["name"] == "add"
    assert calls["call_one"]["rawInput"] == {"a": 1, "b": 22}
    assert text_of(calls["call_one"]) == "23"


def test_the_title_grows_while_the_model_writes_the_arguments(play):
    updates, _ = play("[[call('broken', 'c', path='notes.txt', pieces=4)], ['Well.']]")

    titles = [update["title"] for update in updates if "title" in update and "toolCallId" in update]
    assert titles[0] == "Broken"
    assert titles[-1] == "Broken: notes.txt"


def test_calls_side_by_side_do_not_take_each_others_place(play):
    script = "[[call('add', 'x', a=1, b=1), call('add', 'y', index=1, a=2, b=2)], ['Both.']]"
    updates, _ = play(script)

    calls = by_id(updates)
    assert {id: text_of(call) for id, call in calls.items()} == {"x": "2", "y": "4"}
    assert {call["status"] for call in calls.values()} == {"completed"}


def test_an_id_that_an_earlier_turn_has_used_up_gets_another_one(play):
    script = "[[call('add', 'again', a=1, b=1)], ['Done.']]"
    updates, answer = play(script, script)

    [id] = by_id(updates)
    assert id.startswith("again_")
    assert answer["result"]["stopReason"] == "end_turn"


def test_an_id_that_an_earlier_message_has_used_up_gets_another_one_too(play):
    updates, _ = play("[[call('add', 'same', a=1, b=1)], [call('add', 'same', a=2, b=2)], ['Done.']]")

    first, second = by_id(updates).values()
    assert (text_of(first), text_of(second)) == ("2", "4")
    assert (first["status"], second["status"]) == ("completed", "completed")


def test_a_tool_that_raises_fails_its_call_and_the_model_is_told(play):
    results = "[m.text for m in messages if m.type == 'tool']"
    updates, answer = play(f"[[call('broken', 'c', path='a.txt')], [repr({results})]]")

    call = by_id(updates)["c"]
    assert call["status"] == "failed"
    assert "no such file: a.txt" in text_of(call)
    assert texts(updates) == repr(["Error: ValueError: no such file: a.txt"])
    assert answer["result"]["stopReason"] == "end_turn"


def test_what_a_tool_streams_is_shown_once(play):
    updates, _ = play("[[call('stream', 'c', words=['one ', 'two ', 'three'])], ['Done.']]")

    assert text_of(by_id(updates)["c"]) == "one two three"


@pytest.mark.parametrize("tool, arguments", [("report", "steps=['one', 'two']"), ("areport", "step='one'")])
def test_a_tool_reports_its_progress(play, tool, arguments):
    updates, _ = play(f"[[call('{tool}', 'c', {arguments})], ['Done.']]")

    shown = text_of(by_id(updates)["c"])
    assert shown.startswith("one\n")
    assert shown.endswith("reported")


def test_blocks_that_a_tool_returns_are_shown_as_what_they_are(play):
    updates, _ = play("[[call('picture', 'c')], ['Done.']]")

    content = [part["content"] for part in by_id(updates)["c"]["content"]]
    assert content == [
        {"type": "text", "text": "a dot"},
        {"type": "image", "data": "aaaa", "mimeType": "image/gif"},
    ]


def test_what_a_tool_returns_beside_its_text_is_the_raw_output(play):
    updates, _ = play("[[call('measured', 'c')], ['Done.']]")

    call = by_id(updates)["c"]
    assert (text_of(call), call["rawOutput"]) == ("about three", {"value": 3.1})


def test_a_sub_agent_works_inside_of_its_call(play):
    task = "[['Let me see. ', call('add', 'inner', a=1, b=2)], ['It is three.']]"
    updates, _ = play(f'[[call("delegate", "outer", task="""{task}""")], ["Told."]]')

    calls = by_id(updates)
    assert calls["inner"]["_meta"] == {"coupler": {"parent": "outer"}}
    assert "Let me see. " in text_of(calls["outer"])
    assert text_of(calls["outer"]).count("It is three.") == 1
    assert texts(updates) == "Told."


def test_what_the_models_have_used_is_told_with_the_answer(play):
    last = "used(20, 7, input_token_details={'cache_read': 4})"
    _, answer = play(f"[[call('add', 'c', a=1, b=2), used(10, 5)], ['Done.', {last}]]")

    assert answer["result"]["usage"] == {
        "inputTokens": 30,
        "outputTokens": 12,
        "cachedReadTokens": 4,
        "totalTokens": 42,
    }


@pytest.mark.parametrize(
    "reason, stop",
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("max_tokens", "max_tokens"),
        ("content_filter", "refusal"),
        ("SAFETY", "refusal"),
        ("something new", "end_turn"),
    ],
)
def test_why_the_model_stopped_is_the_stop_reason(play, reason, stop):
    _, answer = play(f"[['So ', finish({reason!r})]]")

    assert answer["result"]["stopReason"] == stop


def test_a_graph_that_goes_round_in_circles_is_stopped(play):
    script = "[[call('add', f'c{len(messages)}', a=1, b=1)]]"
    updates, answer = play(script)

    assert answer["result"]["stopReason"] == "max_turn_requests"
    assert {call["status"] for call in by_id(updates).values()} <= {"completed", "failed"}


def test_a_model_that_does_not_stream_is_heard_all_the_same(play):
    chunk = "AIMessageChunk(content=[{'type': 'text', 'text': 'Whole.'}])"
    updates, _ = play(f"[[{chunk}]]")

    assert texts(updates) == "Whole."


def test_images_files_and_sources_in_an_answer_are_shown_and_unknown_blocks_break_nothing(play):
    blocks = """[
        {"type": "image", "base64": "aaaa", "mime_type": "image/png"},
        {"type": "image", "url": "https://example.com/cat.jpg"},
        {"type": "audio", "base64": "bbbb", "mime_type": "audio/wav"},
        {"type": "file", "base64": "cccc", "mime_type": "application/pdf", "extras": {"filename": "a.pdf"}},
        {"type": "text", "text": "So they say.", "annotations": [
            {"type": "citation", "url": "https://example.com/source", "title": "Source"}]},
        {"type": "hologram", "value": 1}]"""
    updates, answer = play(f"[[AIMessageChunk(content={blocks})]]")

    shown = [update["content"] for update in of_kind(updates, "agent_message_chunk")]
    assert shown == [
        {"type": "image", "data": "aaaa", "mimeType": "image/png"},
        {
            "type": "resource_link",
            "name": "cat.jpg",
            "uri": "https://example.com/cat.jpg",
            "mimeType": "image/jpeg",
        },
        {"type": "audio", "data": "bbbb", "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {"blob": "cccc", "uri": "attachment:a.pdf", "mimeType": "application/pdf"},
        },
        {"type": "text", "text": "So they say."},
        {
            "type": "resource_link",
            "name": "Source",
            "uri": "https://example.com/source",
            "title": "Source",
        },
    ]
    assert answer["result"]["stopReason"] == "end_turn"


def test_a_tool_that_the_provider_runs_is_a_tool_call_too(play):
    used = """[
        {"type": "server_tool_call", "id": "srv", "name": "web_search", "args": {"query": "cats"}},
        {"type": "server_tool_result", "tool_call_id": "srv", "status": "success", "output": ["a cat"]}]"""
    updates, _ = play(f"[[AIMessageChunk(content={used}, response_metadata={{'output_version': 'v1'}})]]")

    call = by_id(updates)["srv"]
    assert (call["status"], call["rawInput"]) == ("completed", {"query": "cats"})
    assert call["rawOutput"] == ["a cat"]


def test_arguments_that_are_no_json_fail_the_call_and_not_the_turn(play):
    piece = "{'name': 'add', 'args': '{\"a\": oops', 'id': 'c', 'index': 0}"
    updates, answer = play(f"[[AIMessageChunk(content='', tool_call_chunks=[{piece}])], ['Sorry.']]")

    assert by_id(updates)["c"]["status"] == "failed"
    assert answer["result"]["stopReason"] == "end_turn"


def test_images_sounds_and_files_of_a_prompt_reach_the_model(stage):
    client, session = stage.session()
    blocks = [
        {"type": "text", "text": "[[repr(messages[-1].content[1:])]]"},
        {"type": "image", "data": "aaaa", "mimeType": "image/png"},
        {"type": "audio", "data": "bbbb", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.pdf", "blob": "cccc"}},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "words"}},
        {"type": "resource_link", "uri": "file:///b.txt", "name": "b.txt"},
    ]
    request = client.request("session/prompt", {"sessionId": session, "prompt": blocks})
    client.send(request)
    updates, _ = end_of(client, request)

    assert eval(texts(updates)) == [
        {"type": "image", "base64": "aaaa", "mime_type": "image/png"},
        {"type": "audio", "base64": "bbbb", "mime_type": "audio/wav"},
        {
            "type": "file",
            "base64": "cccc",
            "mime_type": "application/pdf",
            "extras": {"filename": "a.pdf"},
        },
        {"type": "text", "text": "[Resource: a.txt](file:///a.txt)\n```\nwords\n```"},
        {"type": "text", "text": "[Resource: b.txt](file:///b.txt)"},
    ]
