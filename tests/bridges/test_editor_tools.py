"""The editor's tools in a served agent, over stdio: files and commands, as the user sees and decides them."""

import asyncio
import time

import pytest

from agent.steps import asks, cancel, end_of, final_call, text_of, tool_updates
from bridges.acting import statuses
from bridges.desk import Desk
from coupler.bridges.langchain.editor.tools import editor_tools
from process.test_child import gone_within
from raw_client import PATIENCE

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}


def one(answers):
    """The status and the content of the one answer."""
    ((status, content),) = answers
    return status, content


class TestReading:
    def test_a_file_is_read_without_asking_and_shown_where_it_is(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one\ntwo\n")
        at = desk()

        assert one(at.does(["read_file", {"path": "a.txt"}])) == ("success", "one\ntwo\n")

        call = final_call(at.updates)
        assert at.asked == []
        assert (call["kind"], call["status"]) == ("read", "completed")
        assert statuses(at.updates, call["toolCallId"]) == ["pending", "in_progress", "completed"]
        assert call["locations"][0]["path"] == str(tmp_path / "a.txt")

    def test_what_the_editor_has_not_saved_is_read(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("old")
        at = desk(**FILES)
        replies = {"fs/read_text_file": {"result": {"content": "unsaved"}}}

        assert one(at.does(["read_file", {"path": "a.txt"}], replies=replies)) == ("success", "unsaved")

    def test_a_long_file_is_read_in_parts_and_says_how_to_go_on(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 3001)))
        at = desk()

        _, first = one(at.does(["read_file", {"path": "a.txt"}]))
        assert first.endswith("2000\n… (lines 1 to 2000 of 3000: go on at offset 2001)")

        _, rest = one(at.does(["read_file", {"path": "a.txt", "offset": 2001}]))
        assert rest.startswith("2001\n")
        assert rest.endswith("3000\n")

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"path": "missing.txt"}, "missing.txt"),
            ({"path": "/etc/passwd"}, "outside of the session's directories"),
            ({"path": "a.txt", "offset": 9}, "the file has only 1 lines"),
            ({"path": "a.txt", "limit": 0}, "numbers from 1 on"),
            ({"path": "bytes"}, "read_bytes"),
        ],
    )
    def test_what_goes_wrong_is_an_error_that_the_model_reads(self, desk, tmp_path, arguments, problem):
        (tmp_path / "a.txt").write_text("one")
        (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
        at = desk()

        status, content = one(at.does(["read_file", arguments]))

        assert status == "error"
        assert problem in content
        assert final_call(at.updates)["status"] == "failed"


class TestWriting:
    def test_a_new_file_is_asked_about_with_its_diff_and_written_by_the_models_own_call(self, desk, tmp_path):
        at = desk()

        status, _ = one(at.does(["write_file", {"path": "new.txt", "content": "hello\n"}]))

        assert (status, (tmp_path / "new.txt").read_text()) == ("success", "hello\n")
        (question,) = at.asked
        asked = question["params"]["toolCall"]
        diff = {"type": "diff", "path": str(tmp_path / "new.txt"), "newText": "hello\n"}
        assert [{**diff, **item} for item in asked["content"]] == asked["content"]
        assert len({update["toolCallId"] for update in tool_updates(at.updates)}) == 1
        assert [item["type"] for item in final_call(at.updates)["content"]] == ["diff"]

    def test_a_no_leaves_everything_as_it_was(self, desk, tmp_path):
        at = desk()

        status, content = one(
            at.does(["write_file", {"path": "new.txt", "content": "x"}], answer="reject_once")
        )

        assert status == "error"
        assert "not permitted by the user" in content
        assert not (tmp_path / "new.txt").exists()

    def test_a_file_that_was_not_read_is_not_replaced_and_nobody_is_asked(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("mine")
        at = desk()

        status, content = one(at.does(["write_file", {"path": "a.txt", "content": "x"}]))

        assert status == "error"
        assert "read it with read_file before you replace it" in content
        assert at.asked == []

    def test_a_file_that_has_changed_since_it_was_read_is_not_replaced(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one")
        at = desk()
        at.does(["read_file", {"path": "a.txt"}])
        (tmp_path / "a.txt").write_text("two")

        status, _ = one(at.does(["write_file", {"path": "a.txt", "content": "x"}]))

        assert (status, (tmp_path / "a.txt").read_text()) == ("error", "two")

    def test_an_edit_replaces_one_place_and_shows_the_change(self, desk, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
        at = desk()

        edit = {"path": "a.txt", "old_text": "one\ntwo", "new_text": "1\n2"}
        assert one(at.does(["edit_file", edit]))[0] == "success"

        assert (tmp_path / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"
        (item,) = final_call(at.updates)["content"]
        assert (item["oldText"], item["newText"]) == ("one\r\ntwo\r\nthree\r\n", "1\r\n2\r\nthree\r\n")

    @pytest.mark.parametrize(
        ("old", "new", "problem"),
        [
            ("zero", "x", "old_text is not in a.txt"),
            ("o", "x", "2 times"),
            ("", "x", "old_text is empty"),
            ("one", "one", "nothing to change"),
        ],
    )
    def test_an_edit_that_means_no_one_place_is_an_error(self, desk, tmp_path, old, new, problem):
        (tmp_path / "a.txt").write_text("one two")
        at = desk()

        status, content = one(at.does(["edit_file", {"path": "a.txt", "old_text": old, "new_text": new}]))

        assert status == "error"
        assert problem in content
        assert at.asked == []

    def test_all_places_are_replaced_if_that_is_meant(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one two")
        edit = {"path": "a.txt", "old_text": "o", "new_text": "0", "replace_all": True}

        assert one(desk().does(["edit_file", edit])) == ("success", "a.txt was changed in 2 places.")
        assert (tmp_path / "a.txt").read_text() == "0ne tw0"

    def test_an_editor_that_writes_files_writes_them(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one")
        at = desk(**FILES)
        replies = {
            "fs/read_text_file": {"result": {"content": "one"}},
            "fs/write_text_file": {"result": {}},
        }

        edit = {"path": "a.txt", "old_text": "one", "new_text": "two"}
        assert one(at.does(["edit_file", edit], replies=replies))[0] == "success"

        written = [frame["params"] for frame in at.asked if frame["method"] == "fs/write_text_file"]
        assert [params["content"] for params in written] == ["two"]
        assert (tmp_path / "a.txt").read_text() == "one"


class TestFinding:
    @pytest.fixture
    def project(self, tmp_path):
        for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.txt", ".git/config", "node_modules/x.py"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"import os  # {name}\n")
        (tmp_path / "outside").symlink_to("/etc")
        return tmp_path

    @pytest.mark.parametrize(
        ("arguments", "found"),
        [
            ({}, ["a.py", "src/b.py", "src/d.txt", "src/deep/c.py"]),
            ({"glob": "*.py"}, ["a.py", "src/b.py", "src/deep/c.py"]),
            ({"glob": "src/**/*.py"}, ["src/b.py", "src/deep/c.py"]),
            ({"directory": "src", "glob": "?.txt"}, ["src/d.txt"]),
            ({"glob": "*.rs"}, ["No file fits."]),
        ],
    )
    def test_files_are_listed_by_name(self, desk, project, arguments, found):
        assert one(desk().does(["list_files", arguments])) == ("success", "\n".join(found))

    def test_lines_are_found_with_their_places(self, desk, project):
        answer = one(desk().does(["search", {"pattern": r"src/\w", "glob": "*.py"}]))
        assert answer == (
            "success",
            "src/b.py:1: import os  # src/b.py\nsrc/deep/c.py:1: import os  # src/deep/c.py",
        )

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"pattern": "("}, "no regular expression"),
            ({"pattern": "x", "directory": "nowhere"}, "there is no nowhere"),
            ({"pattern": "x", "directory": "outside"}, "outside of the session's directories"),
        ],
    )
    def test_what_cannot_be_searched_is_an_error(self, desk, project, arguments, problem):
        status, content = one(desk().does(["search", arguments]))
        assert status == "error"
        assert problem in content

    def test_files_that_may_not_be_read_are_left_out(self, desk, project):
        (project / ".env").write_text("TOKEN=import os\n")
        _, content = one(desk().does(["search", {"pattern": "import os"}]))
        assert "TOKEN" not in content
        assert "1 files were left out" in content

    def test_a_pattern_that_never_ends_can_be_cancelled(self, desk, project):
        (project / "evil.txt").write_text("a" * 60 + "b")
        at = desk()
        request = at.begin(["search", {"pattern": "(a+)+$", "glob": "evil.txt"}])
        at.client.read_until(
            lambda frame: frame.get("params", {}).get("update", {}).get("status") == "in_progress"
        )
        at.client.send(cancel(at.session))
        begun = time.monotonic()

        _, answer = end_of(at.client, request)

        assert answer["result"] == {"stopReason": "cancelled"}
        assert time.monotonic() - begun < 5


class TestCommands:
    def test_a_command_is_asked_about_as_it_is_and_its_output_shown_as_it_comes(self, desk, tmp_path):
        at = desk()

        answer = one(at.does(["run_command", {"command": "echo out; echo err >&2; exit 3"}]))

        assert answer == ("success", "out\nerr\n(exit code 3)")
        (question,) = at.asked
        assert question["params"]["toolCall"]["rawInput"]["command"] == "echo out; echo err >&2; exit 3"
        call = final_call(at.updates)
        assert (call["kind"], call["status"], text_of(call)) == ("execute", "completed", "out\nerr\n")

    def test_a_command_that_takes_too_long_is_ended(self, desk):
        command = {"command": "echo begun; sleep 60", "timeout": 0.5}
        assert one(desk().does(["run_command", command])) == (
            "success",
            "begun\n(it was ended after 0.5 s)",
        )

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"command": "true", "directory": "/"}, "outside of the session's directories"),
            ({"command": "true", "timeout": 0}, "a number of seconds up to 3600"),
        ],
    )
    def test_what_cannot_be_run_is_an_error_and_nobody_is_asked(self, desk, arguments, problem):
        at = desk()
        status, content = one(at.does(["run_command", arguments]))
        assert status == "error"
        assert problem in content
        assert at.asked == []

    def test_a_cancel_ends_the_command(self, desk, tmp_path):
        at = desk()
        request = at.begin(["run_command", {"command": "echo $$ > pid; echo there; exec sleep 60"}])
        *_, question = at.client.read_until(asks("session/request_permission"))
        outcome = {"outcome": "selected", "optionId": "allow_once"}
        at.client.send({"id": question["id"], "result": {"outcome": outcome}})
        at.client.read_until(
            lambda frame: "there" in str(frame.get("params", {}).get("update", {}).get("content"))
        )
        at.client.send(cancel(at.session))

        updates, answer = end_of(at.client, request)

        assert answer["result"] == {"stopReason": "cancelled"}
        assert gone_within(PATIENCE, int((tmp_path / "pid").read_text()))
        assert tool_updates(updates)[-1]["status"] == "failed"


def test_two_sessions_work_in_their_own_folders_at_once(clients, tmp_path):
    client = clients()
    desks = []
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who.txt").write_text(name)
        desks.append(Desk(client, tmp_path / name))
    requests = [at.begin(["run_command", {"command": "cat who.txt"}]) for at in desks]
    questions = {}
    while len(questions) < 2:
        frame = client.read()
        if frame.get("method") == "session/request_permission":
            questions[frame["params"]["sessionId"]] = frame
    outputs = {at.session: "" for at in desks}
    # Both wait at once; the one that was asked last is answered first.
    outcome = {"result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
    client.send(*({"id": questions[at.session]["id"], **outcome} for at in reversed(desks)))
    left = {request["id"] for request in requests}
    while left:
        frame = client.read()
        if frame.get("id") in left and "result" in frame:
            left.discard(frame["id"])
        elif frame.get("method") == "session/update":
            update = frame["params"]["update"]
            if update["sessionUpdate"] == "agent_message_chunk":
                outputs[frame["params"]["sessionId"]] += update["content"]["text"]

    said = [outputs[at.session] for at in desks]
    assert said == [f'[["success", "{name}\\n(exit code 0)"]]' for name in ("left", "right")]


def test_without_being_served_they_say_what_to_do():
    async def story():
        tool = editor_tools()[0]
        return await tool.ainvoke({"name": tool.name, "args": {"path": "a"}, "id": "c1", "type": "tool_call"})

    message = asyncio.run(story())
    assert (message.status, message.content) == (
        "error",
        "this tool works in an editor's session: serve the agent to use it",
    )
