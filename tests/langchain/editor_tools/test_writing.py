"""The tools that change files in a served agent, over stdio: what is shown, asked, written and refused."""

import pytest

from agent.steps import final_call, tool_updates
from labs.langchain.buffers import FILES, Buffers
from labs.langchain.desk import edit, one, read


class TestWriting:
    def test_a_new_file_is_asked_about_with_its_diff_and_written_by_the_models_own_call(self, desk, tmp_path):
        at = desk()

        answer = one(at.does(["write_file", {"path": "src/new.txt", "content": "hello\nyou"}]))

        assert answer == ("success", "src/new.txt was created: 2 lines.")
        assert (tmp_path / "src" / "new.txt").read_text() == "hello\nyou"
        (question,) = at.asked
        asked = question["params"]["toolCall"]
        diff = {"type": "diff", "path": str(tmp_path / "src" / "new.txt"), "newText": "hello\nyou"}
        assert [{**diff, **item} for item in asked["content"]] == asked["content"]
        assert len({update["toolCallId"] for update in tool_updates(at.updates)}) == 1
        call = final_call(at.updates)
        assert [item["type"] for item in call["content"]] == ["diff"]
        assert (call["title"], call["kind"]) == ("Write src/new.txt", "edit")
        assert call["rawOutput"] == {"path": "src/new.txt", "changed": True, "lines": 2}

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
        at.does(read("a.txt"))
        (tmp_path / "a.txt").write_text("two")

        status, content = one(at.does(["write_file", {"path": "a.txt", "content": "x"}]))

        assert (status, (tmp_path / "a.txt").read_text()) == ("error", "two")
        assert "has changed since you read it: read it again with read_file" in content
        assert at.asked == []

    def test_line_ends_mark_and_mode_of_a_replaced_file_are_kept(self, desk, tmp_path):
        (tmp_path / "a.sh").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
        (tmp_path / "a.sh").chmod(0o751)
        at = desk()
        at.does(read("a.sh"))

        assert one(at.does(["write_file", {"path": "a.sh", "content": "1\n2\n"}]))[0] == "success"

        assert (tmp_path / "a.sh").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n"
        assert (tmp_path / "a.sh").stat().st_mode & 0o777 == 0o751

    def test_what_a_file_has_already_is_not_asked_about(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one")
        at = desk()
        at.does(read("a.txt"))
        answer = one(at.does(["write_file", {"path": "a.txt", "content": "one"}]))
        assert (answer, at.asked) == (("success", "a.txt has this text already."), [])

    @pytest.mark.parametrize(
        ("path", "problem"),
        [("sub", "is a directory"), ("../x", "outside of the session's"), ("a.txt/b", "a.txt/b")],
    )
    def test_where_nothing_can_be_written_is_an_error(self, desk, tmp_path, path, problem):
        (tmp_path / "sub").mkdir()
        (tmp_path / "a.txt").touch()
        status, content = one(desk().does(["write_file", {"path": path, "content": "x"}]))
        assert status == "error"
        assert problem in content


class TestEditing:
    def test_an_edit_replaces_one_place_and_shows_the_change_before_it_is_asked_about(self, desk, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"zero\r\none\r\ntwo\r\nthree\r\n")
        at = desk()
        at.does(read("a.txt"))

        answer = one(at.does(edit("a.txt", ("one\ntwo", "1\n2"))))

        assert answer == ("success", "a.txt was changed in 1 place (line 2).")
        assert (tmp_path / "a.txt").read_bytes() == b"zero\r\n1\r\n2\r\nthree\r\n"
        (question,) = at.asked
        (asked,) = question["params"]["toolCall"]["content"]
        call = final_call(at.updates)
        (shown,) = call["content"]
        for item in (asked, shown):
            assert (item["oldText"], item["newText"]) == (
                "zero\r\none\r\ntwo\r\nthree\r\n",
                "zero\r\n1\r\n2\r\nthree\r\n",
            )
        assert (call["title"], call["kind"]) == ("Edit a.txt", "edit")
        assert call["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 2}]
        assert call["rawOutput"] == {"path": "a.txt", "replaced": 1, "lines": [2]}

    def test_all_edits_of_a_call_are_made_in_order_and_asked_about_once(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("a\nb\nc\n")
        at = desk()
        at.does(read("a.txt"))

        answer = one(at.does(edit("a.txt", ("c", "three"), ("a", "one\nand a half"), ("three", "3"))))

        assert answer == ("success", "a.txt was changed in 3 places (lines 1, 4).")
        assert (tmp_path / "a.txt").read_text() == "one\nand a half\nb\n3\n"
        assert len(at.asked) == 1

    def test_one_edit_that_does_not_fit_undoes_all(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("a\nb\n")
        at = desk()
        at.does(read("a.txt"))

        status, content = one(at.does(edit("a.txt", ("a", "1"), ("a", "2"))))

        assert status == "error"
        assert "edit 2 of 2, after the edits before it: old_text is not in a.txt" in content
        assert "Nothing was changed" in content
        assert ((tmp_path / "a.txt").read_text(), at.asked) == ("a\nb\n", [])

    def test_all_places_are_replaced_if_that_is_meant(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one two")
        at = desk()
        at.does(read("a.txt"))
        edits = [{"old_text": "o", "new_text": "0", "replace_all": True}]

        answer = one(at.does(["edit_file", {"path": "a.txt", "edits": edits}]))

        assert answer == ("success", "a.txt was changed in 2 places (line 1).")
        assert (tmp_path / "a.txt").read_text() == "0ne tw0"

    @pytest.mark.parametrize(
        "edits", ['[{"old_text": "one", "new_text": "1"}]', {"old_text": "one", "new_text": "1"}]
    )
    def test_edits_are_understood_as_some_models_write_them(self, desk, tmp_path, edits):
        (tmp_path / "a.txt").write_text("one")
        at = desk()
        at.does(read("a.txt"))
        assert one(at.does(["edit_file", {"path": "a.txt", "edits": edits}]))[0] == "success"
        assert (tmp_path / "a.txt").read_text() == "1"

    @pytest.mark.parametrize(
        ("path", "edits", "problem"),
        [
            ("a.txt", [("zero", "x")], "old_text is not in a.txt"),
            ("a.txt", [("o", "x")], "2 times (lines 1, 1): give more lines"),
            ("a.txt", [("", "x")], "old_text is empty"),
            ("a.txt", [("one", "one")], "nothing to change"),
            ("a.txt", [], "name at least one"),
            ("b.txt", [("one", "x")], "did you mean a.txt?"),
            ("sub", [("one", "x")], "is a directory"),
        ],
    )
    def test_an_edit_that_means_no_one_place_is_an_error(self, desk, tmp_path, path, edits, problem):
        (tmp_path / "a.txt").write_text("one two")
        (tmp_path / "sub").mkdir()
        at = desk()
        at.does(read("a.txt"))

        status, content = one(at.does(edit(path, *edits)))

        assert status == "error"
        assert problem in content
        assert at.asked == []
        assert final_call(at.updates)["status"] == "failed"

    def test_a_file_that_was_never_read_is_not_edited(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one")
        at = desk()
        status, content = one(at.does(edit("a.txt", ("one", "two"))))
        assert (status, at.asked) == ("error", [])
        assert "was not read in this session: read it with read_file before you edit it" in content

    def test_a_file_that_changes_between_reading_and_editing_is_left_alone(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one\n")
        at = desk()
        at.does(read("a.txt"))
        (tmp_path / "a.txt").write_text("one\nof the user's\n")

        status, content = one(at.does(edit("a.txt", ("one", "two"))))

        assert (status, at.asked) == ("error", [])
        assert "has changed since you read it" in content
        assert (tmp_path / "a.txt").read_text() == "one\nof the user's\n"

        assert [answer[0] for answer in at.does(read("a.txt"))] == ["success"]
        assert one(at.does(edit("a.txt", ("one", "two"))))[0] == "success"
        assert (tmp_path / "a.txt").read_text() == "two\nof the user's\n"

    def test_one_edit_after_the_other_needs_no_reading_in_between(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("a b")
        at = desk()
        at.does(read("a.txt"))
        assert one(at.does(edit("a.txt", ("a", "1"))))[0] == "success"
        assert one(at.does(edit("a.txt", ("b", "2"))))[0] == "success"
        assert (tmp_path / "a.txt").read_text() == "1 2"

    def test_edits_side_by_side_do_not_undo_each_other(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("a b c")
        at = desk()
        at.does(read("a.txt"))

        answers = at.does(*(edit("a.txt", (old, old.upper())) for old in "abc"))

        assert [status for status, _ in answers] == ["success"] * 3
        assert (tmp_path / "a.txt").read_text() == "A B C"
        assert len(at.asked) == 3

    def test_a_link_stays_a_link_and_its_file_is_changed(self, desk, tmp_path):
        (tmp_path / "real.txt").write_text("one")
        (tmp_path / "link.txt").symlink_to("real.txt")
        at = desk()
        at.does(read("link.txt"))
        assert one(at.does(edit("link.txt", ("one", "two"))))[0] == "success"
        assert (tmp_path / "link.txt").is_symlink()
        assert (tmp_path / "real.txt").read_text() == "two"

    def test_a_change_of_a_long_file_is_shown_in_part(self, desk, tmp_path):
        lines = [f"line {number} {'x' * 80}\n" for number in range(20_000)]
        (tmp_path / "a.txt").write_text("".join(lines))
        at = desk()
        at.does(read("a.txt"))

        assert one(at.does(edit("a.txt", ("line 10000 ", "LINE 10000 "))))[0] == "success"

        (shown,) = (item for item in final_call(at.updates)["content"] if item["type"] == "diff")
        assert shown["oldText"] == "".join(lines[9997:10004])
        assert shown["newText"] == shown["oldText"].replace("line 10000", "LINE 10000")


class TestUnsavedBuffers:
    def test_an_editor_that_writes_files_writes_them(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one")
        buffers = Buffers(tmp_path)
        at = desk(**FILES)
        at.does(read("a.txt"), replies=buffers)

        assert one(at.does(edit("a.txt", ("one", "two")), replies=buffers))[0] == "success"

        assert buffers.texts == {str(tmp_path / "a.txt"): "two"}
        assert (tmp_path / "a.txt").read_text() == "one"

    def test_what_is_not_saved_is_edited_and_kept(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("one\n")
        buffers = Buffers(tmp_path, a_txt="one\nunsaved\n")
        at = desk(**FILES)
        at.does(read("a.txt"), replies=buffers)

        assert one(at.does(edit("a.txt", ("one", "two")), replies=buffers))[0] == "success"

        assert buffers.texts == {str(tmp_path / "a.txt"): "two\nunsaved\n"}
        (shown,) = final_call(at.updates)["content"]
        assert (shown["oldText"], shown["newText"]) == ("one\nunsaved\n", "two\nunsaved\n")

    def test_what_the_user_types_between_reading_and_editing_is_not_lost(self, desk, tmp_path):
        buffers = Buffers(tmp_path, a_txt="one\n")
        at = desk(**FILES)
        at.does(read("a.txt"), replies=buffers)
        buffers.type("a.txt", "one\ntyped meanwhile\n")

        status, content = one(at.does(edit("a.txt", ("one", "two")), replies=buffers))

        assert status == "error"
        assert "has changed since you read it" in content
        assert buffers.texts == {str(tmp_path / "a.txt"): "one\ntyped meanwhile\n"}

    def test_what_the_user_types_while_being_asked_is_not_lost(self, desk, tmp_path):
        buffers = Buffers(tmp_path, a_txt="one\n")
        at = desk(**FILES)
        at.does(read("a.txt"), replies=buffers)

        def type_and_allow():
            buffers.type("a.txt", "one\ntyped meanwhile\n")
            return "allow_once"

        status, content = one(at.does(edit("a.txt", ("one", "two")), replies=buffers, answer=type_and_allow))

        assert status == "error"
        assert "has changed since you read it" in content
        assert buffers.texts == {str(tmp_path / "a.txt"): "one\ntyped meanwhile\n"}

    def test_an_editor_that_only_reads_has_its_unsaved_text_left_alone(self, desk, tmp_path):
        (tmp_path / "a.txt").write_text("saved")
        buffers = Buffers(tmp_path, a_txt="unsaved")
        at = desk(fs={"readTextFile": True})
        at.does(read("a.txt"), replies=buffers)

        status, content = one(at.does(edit("a.txt", ("unsaved", "x")), replies=buffers))

        assert status == "error"
        assert "not saved" in content
        assert (tmp_path / "a.txt").read_text() == "saved"
