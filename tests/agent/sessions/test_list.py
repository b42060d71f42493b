"""`session/list`: newest first, page by page, by directory."""

from datetime import datetime

import pytest

from agent.sessions.steps import REMEMBERS, listed
from agent.steps import error_of


def test_sessions_are_listed_with_directory_title_and_time_the_latest_first(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    older, newer = client.new_session(str(tmp_path)), client.new_session(str(tmp_path))
    client.prompt(newer, "The newer one\nand more")
    client.prompt(older, "x" * 200)

    first, second, *_ = listed(client)

    assert (first["sessionId"], second["sessionId"]) == (older, newer)
    assert first["title"] == "x" * 79 + "…"
    assert second["title"] == "The newer one"
    assert second["cwd"] == str(tmp_path)
    assert datetime.fromisoformat(first["updatedAt"]) >= datetime.fromisoformat(second["updatedAt"])


def test_only_the_sessions_of_a_directory_are_listed_if_one_is_named(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    in_a = client.new_session(str(tmp_path / "a"))
    client.new_session(str(tmp_path / "b"))

    assert [each["sessionId"] for each in listed(client, cwd=f"{tmp_path}/a/")] == [in_a]
    assert listed(client, cwd=str(tmp_path / "nowhere")) == []


def test_all_pages_together_have_every_session_once(converse, tmp_path):
    client, first = converse(REMEMBERS)
    made = {first} | {client.new_session(str(tmp_path)) for _ in range(120)}

    page = client.call("session/list", {})["result"]
    everything = [each["sessionId"] for each in listed(client)]

    assert 0 < len(page["sessions"]) < 121
    assert len(everything) == 121
    assert {*everything} == made


@pytest.mark.parametrize("cursor", ["x", "AAAA", "🙂", "A" * 10_000])
def test_a_cursor_that_nobody_gave_out_is_refused(share, cursor):
    client, _ = share(REMEMBERS)

    assert error_of(client.call("session/list", {"cursor": cursor})) == (-32602, "invalid_params")


def test_a_cursor_of_another_directory_is_refused(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    for _ in range(60):
        client.new_session(str(tmp_path))
    cursor = client.call("session/list", {})["result"]["nextCursor"]

    answer = client.call("session/list", {"cursor": cursor, "cwd": str(tmp_path)})

    assert error_of(answer) == (-32602, "invalid_params")


def test_a_relative_directory_is_refused(share):
    client, _ = share(REMEMBERS)

    assert error_of(client.call("session/list", {"cwd": "here"})) == (-32602, "invalid_params")


def test_another_agent_s_sessions_are_not_listed_and_not_loaded(start_target, app, tmp_path):
    ours = start_target(app(REMEMBERS, "ours.py"))
    ours.initialize()
    session = ours.new_session(str(tmp_path))
    ours.prompt(session, "secret")
    ours.close_stdin()
    ours.wait()
    theirs = start_target(app(REMEMBERS, "theirs.py"))
    theirs.initialize()

    assert listed(theirs) == []
    answer = theirs.call("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
    assert error_of(answer) == (-32002, "unknown_session")
    assert theirs.call("session/delete", {"sessionId": session})["result"] == {}

    again = start_target(app(REMEMBERS, "ours.py"))
    again.initialize()
    assert [each["sessionId"] for each in listed(again)] == [session]


def test_sessions_that_were_never_prompted_are_not_listed_after_a_restart(start, tmp_path):
    first = start(REMEMBERS)
    first.initialize()
    empty = first.new_session(str(tmp_path))
    assert [each["sessionId"] for each in listed(first)] == [empty]
    first.close_stdin()
    first.wait()
    second = start(REMEMBERS)
    second.initialize()

    assert listed(second) == []
    answer = second.call("session/load", {"sessionId": empty, "cwd": str(tmp_path), "mcpServers": []})
    assert "result" in answer
