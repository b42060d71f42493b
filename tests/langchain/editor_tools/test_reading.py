"""The tool that reads files in a served agent, over stdio: what the model gets, and what the user sees."""

import os

import pytest

from agent.steps import final_call, text_of
from labs.langchain.acting import statuses
from labs.langchain.buffers import FILES, Buffers
from labs.langchain.desk import one


def numbered(*lines, first=1):
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def test_a_file_is_read_without_asking_and_shown_where_it_is(desk, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    at = desk()

    assert one(at.does(["read_file", {"path": "a.txt"}])) == ("success", numbered("one", "two"))

    call = final_call(at.updates)
    assert at.asked == []
    assert (call["kind"], call["status"], call["title"]) == ("read", "completed", "Read a.txt")
    assert statuses(at.updates, call["toolCallId"]) == ["pending", "in_progress", "completed"]
    assert call["locations"] == [{"path": str(tmp_path / "a.txt")}]
    assert call["rawOutput"] == {"path": "a.txt", "first": 1, "last": 2, "lines": 2}


def test_a_part_is_named_in_the_title_and_as_a_place(desk, tmp_path):
    (tmp_path / "a.txt").write_text("1\n2\n3\n4\n5\n")
    at = desk()

    answer = one(at.does(["read_file", {"path": str(tmp_path / "a.txt"), "offset": 2, "limit": 2}]))

    assert answer == (
        "success",
        numbered("2", "3", first=2) + "\n… (lines 2 to 3 of 5: go on at offset 4)",
    )
    call = final_call(at.updates)
    assert call["title"] == "Read a.txt:2-3"
    assert call["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 2}]


def test_what_the_editor_has_not_saved_is_read(desk, tmp_path):
    (tmp_path / "a.txt").write_text("old")
    at = desk(**FILES)

    answer = one(at.does(["read_file", {"path": "a.txt"}], replies=Buffers(tmp_path, a_txt="unsaved")))

    assert answer == ("success", numbered("unsaved"))


def test_a_file_that_only_the_editor_has_is_read(desk, tmp_path):
    at = desk(**FILES)
    answer = one(at.does(["read_file", {"path": "new.txt"}], replies=Buffers(tmp_path, new_txt="draft")))
    assert answer == ("success", numbered("draft"))


def test_a_long_file_is_read_in_parts_and_says_how_to_go_on(desk, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 3001)))
    at = desk()

    _, first = one(at.does(["read_file", {"path": "a.txt"}]))
    assert first.endswith("  2000\t2000\n… (lines 1 to 2000 of 3000: go on at offset 2001)")

    _, rest = one(at.does(["read_file", {"path": "a.txt", "offset": 2001}]))
    assert rest.startswith("  2001\t2001\n")
    assert rest.endswith("  3000\t3000")


def test_many_long_lines_are_read_in_parts_too(desk, tmp_path):
    (tmp_path / "a.txt").write_text(("x" * 999 + "\n") * 100)
    _, content = one(desk().does(["read_file", {"path": "a.txt"}]))
    assert len(content) < 61_000
    assert content.endswith("(lines 1 to 59 of 100: go on at offset 60)")


def test_a_file_of_ten_gigabytes_is_read_in_parts(desk, tmp_path):
    with (tmp_path / "huge.log").open("wb") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(1, 4001)))
        file.truncate(10_000_000_000)
    at = desk()

    answer = one(at.does(["read_file", {"path": "huge.log", "offset": 3000, "limit": 2}]))

    assert answer == (
        "success",
        numbered("line 3000", "line 3001", first=3000)
        + "\n… (lines 3000 to 3001, and there are more: go on at offset 3002)",
    )


def test_a_line_that_does_not_end_is_cut(desk, tmp_path):
    (tmp_path / "a.min.js").write_text("first\n" + "x" * 5000 + "\nlast\n")
    (tmp_path / "huge.js").write_text("first\n" + "y" * 12_000_000 + "\nlast\n")
    at = desk()

    small, huge = at.does(["read_file", {"path": "a.min.js"}], ["read_file", {"path": "huge.js"}])

    assert small[1].split("\n")[1] == f"     2\t{'x' * 2000}… (the line goes on: it has 5000 characters)"
    assert huge[1].split("\n")[1] == f"     2\t{'y' * 2000}… (the line goes on: it has 12000001 bytes)"
    assert small[1].endswith("     3\tlast")
    assert huge[1].endswith("     3\tlast")


def test_line_ends_and_the_mark_are_not_shown_and_only_line_feeds_count(desk, tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\x0c\u2028still two\r\n".encode())
    assert one(desk().does(["read_file", {"path": "a.txt"}])) == (
        "success",
        numbered("one", "two\x0c\u2028still two"),
    )


def test_an_empty_file_is_said_to_be_empty(desk, tmp_path):
    (tmp_path / "a.txt").touch()
    assert one(desk().does(["read_file", {"path": "a.txt"}])) == ("success", "(The file is empty.)")


@pytest.mark.parametrize(
    ("content", "shown"), [("naïve".encode("latin-1"), "na�ve"), ("naïve".encode("utf-16"), "naïve")]
)
def test_text_that_is_not_utf_8_is_shown_and_said_to_be_not_editable(desk, tmp_path, content, shown):
    (tmp_path / "a.txt").write_bytes(content)
    at = desk()

    read, edit = (
        one(at.does([tool, {"path": "a.txt", **more}]))
        for tool, more in (
            ("read_file", {}),
            ("edit_file", {"edits": [{"old_text": "na", "new_text": "x"}]}),
        )
    )

    assert read[0] == "success"
    assert read[1].startswith(numbered(shown))
    assert "cannot be edited" in read[1]
    assert edit[0] == "error"
    assert "is not UTF-8 text" in edit[1]
    assert "was not read" not in edit[1]
    assert (tmp_path / "a.txt").read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"path": "missing.txt"}, "missing.txt': find_files finds files by name"),
        ({"path": "sub/APP.py"}, "did you mean sub/app.py?"),
        ({"path": "sbu/app.py"}, "did you mean sub?"),
        ({"path": "/proc/self/environ"}, "means something else to every program"),
        ({"path": "out/self/environ"}, "means something else to every program"),
        ({"path": "a.txt", "offset": 9}, "the file has only 1 lines"),
        ({"path": "large.txt", "offset": 9}, "the file has only 2 lines"),
        ({"path": "a.txt", "limit": 0}, "numbers from 1 on"),
        ({"path": "sub"}, "is a directory: list_directory shows what is in it"),
        ({"path": "bytes"}, "is a binary file of 3 bytes, and no text: run a command"),
        ({"path": "a.bmp"}, "is an image of 3 bytes, and no text: convert it to PNG"),
        ({"path": "a.png"}, "is an image of more than 5 MiB: make a smaller one of it"),
        ({"path": "a.pdf"}, "pdftotext"),
        ({"path": "a.zip"}, "unzip -l"),
        ({"path": "pipe"}, "is a device, a pipe or a socket"),
    ],
)
def test_what_goes_wrong_is_an_error_that_the_model_reads(desk, tmp_path, arguments, problem):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "large.txt").write_text("x" * 11_000_000 + "\nend")
    (tmp_path / "bytes").write_bytes(b"\xff\x80\x00")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(6_000_000))
    (tmp_path / "a.bmp").write_bytes(b"BM\0")
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 text")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04\0")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "app.py").touch()
    (tmp_path / "out").symlink_to("/proc")
    os.mkfifo(tmp_path / "pipe")
    at = desk()

    status, content = one(at.does(["read_file", arguments]))

    assert status == "error"
    assert problem in content
    assert final_call(at.updates)["status"] == "failed"
    assert at.asked == []


def test_a_sensitive_file_is_asked_about(desk, tmp_path):
    (tmp_path / ".env").write_text("TOKEN=1")
    at = desk()
    status, content = one(at.does(["read_file", {"path": ".env"}], answer="reject_once"))
    assert (status, len(at.asked)) == ("error", 1)
    assert "TOKEN" not in content


def test_a_file_elsewhere_is_asked_about_by_where_it_really_is(desk, tmp_path):
    (tmp_path / "out").symlink_to("/etc")
    at = desk()
    for path in ("/etc/passwd", "out/passwd"):
        status, content = one(at.does(["read_file", {"path": path}], answer="reject_once"))
        assert (status, len(at.asked)) == ("error", 1)
        assert "root" not in content
        assert at.asked[0]["params"]["toolCall"]["title"] == "Read /etc/passwd"


class TestListing:
    def test_a_directory_is_listed_with_its_hidden_files_and_sizes(self, desk, tmp_path):
        (tmp_path / "src").mkdir()
        (tmp_path / ".github").mkdir()
        (tmp_path / "b.txt").write_text("12345")
        (tmp_path / "a.bin").write_bytes(b"0" * 1500)
        (tmp_path / "link").symlink_to("b.txt")
        at = desk()

        answer = one(at.does(["list_directory", {}]))

        assert answer == (
            "success",
            ".github/\nsrc/\na.bin (1.5 kB)\nb.txt (5 bytes)\nlink -> b.txt",
        )
        call = final_call(at.updates)
        assert (call["kind"], call["title"], text_of(call)) == ("read", "List .", answer[1])
        assert call["rawOutput"] == {"path": ".", "entries": 5}

    def test_files_that_only_the_editor_has_are_listed(self, desk, tmp_path):
        at = desk(**FILES)
        buffers = Buffers(tmp_path, new_txt="draft")
        at.does(["read_file", {"path": "new.txt"}], replies=buffers)
        assert one(at.does(["list_directory", {}], replies=buffers))[1] == "new.txt (not saved)"

    @pytest.mark.parametrize(
        ("path", "problem"),
        [
            ("a.txt", "is a file: read it with read_file"),
            ("scr", "there is no directory"),
            ("scr", "did you mean src?"),
            ("/proc/self", "means something else to every program"),
        ],
    )
    def test_what_cannot_be_listed_is_an_error(self, desk, tmp_path, path, problem):
        (tmp_path / "src").mkdir()
        (tmp_path / "a.txt").touch()
        status, content = one(desk().does(["list_directory", {"path": path}]))
        assert status == "error"
        assert problem in content

    def test_an_empty_directory_is_said_to_be_empty(self, desk):
        assert one(desk().does(["list_directory", {}])) == ("success", "(The directory is empty.)")


@pytest.mark.parametrize(
    "answer", [{"result": {"content": ""}}, {"error": {"code": -32603, "message": "Internal error"}}]
)
def test_a_file_that_is_missing_is_so_whatever_the_editor_answers(desk, tmp_path, answer):
    at = desk(fs={"readTextFile": True, "writeTextFile": True})
    replies = {"fs/read_text_file": answer, "fs/write_text_file": {"result": {}}}
    ((status, told),) = at.does(["read_file", {"path": "missing.txt"}], replies=replies)
    assert status == "error"
    assert "missing.txt': find_files finds files by name" in told

    ((status, told),) = at.does(["write_file", {"path": "new.txt", "content": "a\n"}], replies=replies)
    assert (status, told) == ("success", "new.txt was created: 1 lines.")
