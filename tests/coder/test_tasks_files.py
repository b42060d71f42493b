"""Coding tasks on files, end to end: each leaves exactly the files that it should."""

from __future__ import annotations

from pathlib import Path

from coder.script import use
from coder.served_coder import Coder, clerk, tree, write

APP = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"


def diffs(call: dict) -> list[dict]:
    return [part for part in call["content"] if part["type"] == "diff"]


def test_a_bug_is_found_read_and_mended_and_each_call_says_what_it_is_about(
    coder: Coder, project: Path
) -> None:
    write(project, {"src/app.py": APP, "README.md": "An app.\n"})
    mended = APP.replace("a - b", "a + b")
    editor = coder(
        project,
        [
            ("I look for it.", use("search", pattern="def add")),
            use("read_file", path="src/app.py"),
            use("edit_file", path="src/app.py", edits=[{"old_text": "a - b", "new_text": "a + b"}]),
            "It subtracted; now it adds.",
        ],
    )

    turn = editor.prompt("add(1, 2) gives -1: mend it", "allow_once")

    assert tree(project) == {"src/app.py": mended, "README.md": "An app.\n"}
    assert (turn.reason, turn.last_message) == ("end_turn", "It subtracted; now it adds.")
    assert turn.messages[0] == "I look for it."
    searched, read, edited = turn.uses
    assert [each["kind"] for each in turn.uses] == ["search", "read", "edit"]
    assert {each["status"] for each in turn.uses} == {"completed"}
    file = str(project / "src/app.py")
    assert "def add" in searched["title"]
    assert "app.py" in read["title"]
    assert "app.py" in edited["title"]
    assert read["locations"][0]["path"] == edited["locations"][0]["path"] == file
    [diff] = diffs(edited)
    assert (diff["path"], diff["oldText"], diff["newText"]) == (file, APP, mended)
    [question] = editor.asked
    assert diffs(question["toolCall"]) == [diff]
    assert question["toolCall"]["toolCallId"] == edited["toolCallId"]
    searched_result, read_result, edited_result = coder.model.last.results
    assert "src/app.py:1" in searched_result.replace("./", "")
    assert "return a - b" in read_result
    assert "src/app.py" in edited_result
    assert coder.model.asked[0].prompts == ["add(1, 2) gives -1: mend it"]


def test_several_edits_of_one_call_are_made_together_and_asked_about_once(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.py": "one = 1\ntwo = 2\nfoo(one)\nfoo(two)\n"})
    edits = [
        {"old_text": "one = 1", "new_text": "one = 10"},
        {"old_text": "foo(", "new_text": "bar(", "replace_all": True},
        {"old_text": "bar(two)", "new_text": "bar(two, one)"},
    ]
    editor = coder(
        project, [use("read_file", path="a.py"), use("edit_file", path="a.py", edits=edits), "Done."]
    )

    turn = editor.prompt("Rename foo", "allow_once")

    assert tree(project) == {"a.py": "one = 10\ntwo = 2\nbar(one)\nbar(two, one)\n"}
    assert len(editor.asked) == 1
    [diff] = diffs(turn.use)
    assert diff["newText"] == "one = 10\ntwo = 2\nbar(one)\nbar(two, one)\n"


def test_if_one_of_several_edits_does_not_fit_none_is_made_and_nobody_is_asked(
    coder: Coder, project: Path
) -> None:
    text = "one = 1\ntwo = 2\n"
    write(project, {"a.py": text})
    edits = [{"old_text": "one = 1", "new_text": "x"}, {"old_text": "three", "new_text": "y"}]
    editor = coder(
        project,
        [use("read_file", path="a.py"), use("edit_file", path="a.py", edits=edits), "It is not there."],
    )

    turn = editor.prompt("Change it")

    assert tree(project) == {"a.py": text}
    assert (turn.use["status"], editor.asked) == ("failed", [])
    assert "a.py" in coder.model.last.result
    assert turn.reason == "end_turn"


def test_an_edit_that_misses_by_a_look_alike_is_not_made_but_told_with_the_exact_text(
    coder: Coder, project: Path
) -> None:
    text = "one\nsay(\u2018it\u2019s\u2019)\n"
    write(project, {"a.py": text})
    edits = [{"old_text": "say('it's')", "new_text": "done"}]
    editor = coder(
        project, [use("read_file", path="a.py"), use("edit_file", path="a.py", edits=edits), "I see."]
    )

    turn = editor.prompt("Change it")

    assert (tree(project), turn.use["status"], editor.asked) == ({"a.py": text}, "failed", [])
    told = coder.model.last.result
    assert "line 2 has \u2018" in told
    assert '"say(\u2018it\u2019s\u2019)"' in told


def test_null_for_what_may_be_left_out_is_no_argument(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    edits = [{"old_text": "one", "new_text": "two", "replace_all": None}]
    editor = coder(
        project,
        [
            use("read_file", path="a.py", offset=None, limit=None),
            use("edit_file", path="a.py", edits=edits),
            use("run_command", command="cat a.py", directory=None, timeout=None, background=None),
            use("self", self=None, config=None),
            "Done.",
        ],
        clerk(),
    )

    turn = editor.prompt("Change it", "allow_once", "allow_once", "allow_once")

    assert [each["status"] for each in turn.uses] == ["completed"] * 4
    assert tree(project) == {"a.py": "two\n"}
    assert coder.model.last.result == '{"config": null}'


def test_a_no_leaves_the_file_alone_is_told_to_the_model_and_the_turn_goes_on(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.py": "one\n"})
    edits = [{"old_text": "one", "new_text": "two"}]
    editor = coder(
        project,
        [use("read_file", path="a.py"), use("edit_file", path="a.py", edits=edits), "Then I leave it."],
    )

    turn = editor.prompt("Change it", "reject_once")

    assert tree(project) == {"a.py": "one\n"}
    assert (turn.use["status"], turn.reason, turn.last_message) == ("failed", "end_turn", "Then I leave it.")
    assert "not permitted" in coder.model.last.result


def test_a_file_that_has_changed_since_it_was_read_is_not_overwritten_until_it_is_read_again(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.py": "one\ntwo\n"})

    def somebody_saves(_: object) -> object:
        (project / "a.py").write_text("zero\none\ntwo\n")
        return use("write_file", path="a.py", content="one\n2\n")

    editor = coder(
        project,
        [
            use("read_file", path="a.py"),
            somebody_saves,
            use("read_file", path="a.py"),
            use("write_file", path="a.py", content="zero\none\n2\n"),
            "Done.",
        ],
    )

    turn = editor.prompt("Write 2 for two", "allow_once")

    assert tree(project) == {"a.py": "zero\none\n2\n"}
    assert [each["status"] for each in turn.uses] == ["completed", "failed", "completed", "completed"]
    assert "read" in coder.model.last.results[1]


def test_a_file_that_changes_while_the_user_decides_keeps_what_was_saved(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    edits = [{"old_text": "one", "new_text": "two"}]
    editor = coder(
        project,
        [use("read_file", path="a.py"), use("edit_file", path="a.py", edits=edits), "It has changed."],
    )
    editor.on_ask = lambda _: write(project, {"a.py": "mine\n"})

    turn = editor.prompt("Change it", "allow_once")

    assert tree(project) == {"a.py": "mine\n"}
    assert turn.use["status"] == "failed"
    assert "changed" in coder.model.last.result


def test_a_new_file_is_made_with_the_directories_that_it_needs(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("write_file", path="src/deep/new.py", content="x = 1\n"), "Done."])

    turn = editor.prompt("Make it", "allow_once")

    assert tree(project) == {"src/deep/new.py": "x = 1\n"}
    [diff] = diffs(turn.use)
    assert diff.get("oldText") is None
    assert diff["newText"] == "x = 1\n"
    assert turn.use["kind"] == "edit"


def test_windows_newlines_a_mark_and_a_missing_last_newline_stay_as_they_are(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.txt": b"\xef\xbb\xbfone\r\ntwo\r\nthree"})
    edits = [{"old_text": "one\ntwo", "new_text": "1\n2"}]
    editor = coder(
        project, [use("read_file", path="a.txt"), use("edit_file", path="a.txt", edits=edits), "Done."]
    )

    editor.prompt("Digits, please", "allow_once")

    assert (project / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree"


def test_a_huge_file_is_read_where_it_matters_and_never_whole(coder: Coder, project: Path) -> None:
    lines = [f"line {number}\n" for number in range(1, 400_001)]
    write(project, {"big.log": "".join(lines)})
    editor = coder(
        project,
        [
            use("read_file", path="big.log"),
            use("read_file", path="big.log", offset=399_999, limit=5),
            "I have seen both ends.",
        ],
    )

    turn = editor.prompt("What is in it?")

    first, last = coder.model.last.results
    assert "line 1\n" in first
    assert "line 399999" not in first
    assert "2001" in first
    assert len(first) < 110_000
    assert "line 399999\n" in last
    assert "line 400000" in last
    assert "399999" in turn.uses[1]["title"]
    assert turn.uses[1]["locations"][0]["line"] == 399_999
    assert turn.reason == "end_turn"


def test_a_binary_file_is_an_error_that_says_what_it_is_and_stays_whole(coder: Coder, project: Path) -> None:
    content = b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe" * 100
    write(project, {"logo.bin": content})
    edits = [{"old_text": "PNG", "new_text": "GIF"}]
    editor = coder(
        project,
        [
            use("read_file", path="logo.bin"),
            use("edit_file", path="logo.bin", edits=edits),
            use("search", pattern="PNG"),
            "It is no text.",
        ],
    )

    turn = editor.prompt("What is in it?")

    assert (project / "logo.bin").read_bytes() == content
    assert [each["status"] for each in turn.uses] == ["failed", "failed", "completed"]
    read, edited, _ = coder.model.last.results
    assert "\x89" not in read
    assert "logo.bin" in read
    assert "logo.bin" in edited
    assert editor.asked == []


def test_a_missing_file_is_an_error_with_which_the_model_finds_the_right_one(
    coder: Coder, project: Path
) -> None:
    write(project, {"settings.py": "x = 1\n"})
    editor = coder(
        project, [use("read_file", path="setings.py"), use("read_file", path="settings.py"), "There it is."]
    )

    turn = editor.prompt("Look at the settings")

    assert [each["status"] for each in turn.uses] == ["failed", "completed"]
    assert "settings.py" in coder.model.last.results[0]


def test_nothing_outside_of_the_sessions_directories_is_read_without_a_yes_or_written(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    write(tmp_path, {"secret.txt": "do not read\n"})
    editor = coder(
        project,
        [
            use("read_file", path="../secret.txt"),
            use("read_file", path=str(tmp_path / "secret.txt")),
            use("write_file", path="../made.txt", content="x"),
            use("search", pattern="do not", directory=".."),
            "I cannot.",
        ],
    )

    turn = editor.prompt("Read the secret", "reject_once", "reject_once", "reject_once")

    assert {each["status"] for each in turn.uses} == {"failed"}
    assert "do not read" not in coder.model.last.text
    assert "outside" in coder.model.last.results[2]
    assert {path.name for path in tmp_path.iterdir()} == {"project", "secret.txt"}


def test_a_link_that_leads_out_is_outside(coder: Coder, project: Path, tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere/notes.txt": "private words\n"})
    (project / "docs").symlink_to(tmp_path / "elsewhere")
    editor = coder(
        project,
        [
            use("read_file", path="docs/notes.txt"),
            use("write_file", path="docs/new.txt", content="x"),
            use("search", pattern="private"),
            "It leads out.",
        ],
    )

    turn = editor.prompt("Read the docs", "reject_once")

    assert [each["status"] for each in turn.uses] == ["failed", "failed", "completed"]
    assert "private words" not in coder.model.last.text
    assert tree(tmp_path / "elsewhere") == {"notes.txt": "private words\n"}
    assert str(tmp_path / "elsewhere" / "notes.txt") in str(editor.asked), "the question has the real path"


def test_files_are_listed_found_and_searched_without_those_that_git_ignores(
    coder: Coder, project: Path
) -> None:
    write(
        project,
        {
            ".gitignore": "build/\n",
            "src/a.py": "Needle = 1\n",
            "src/b.txt": "a needle\n",
            "build/c.py": "needle\n",
            "node_modules/d.py": "needle\n",
        },
    )
    (project / ".git").mkdir()
    editor = coder(
        project,
        [
            (
                use("list_directory", path="."),
                use("find_files", glob="**/*.py"),
                use("search", pattern="needle", ignore_case=True, glob="*.py"),
            ),
            "One file.",
        ],
    )

    turn = editor.prompt("Where is the needle?")

    listed, found, searched = coder.model.last.results
    assert "src" in listed
    assert found.split() == ["src/a.py"]
    assert "src/a.py:1" in searched
    assert "build/c.py" not in searched
    assert "b.txt" not in searched
    assert {each["status"] for each in turn.uses} == {"completed"}
