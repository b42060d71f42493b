"""Models that write what no model should: the turn goes on, or ends with words, and so does the next one."""

from __future__ import annotations

from pathlib import Path

from coder.script import use
from coder.served_coder import Coder, tree, write


def test_half_a_character_does_not_spoil_the_conversation(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    editor = coder(
        project,
        [
            ("Half \ud800.", use("read_file", path="\ud800.py"), use("search", pattern="\udc00")),
            use("write_file", path="b.py", content="a \ud83d\ude00 and half \ud83d"),
            "Both halves: \ud83d\ude00",
            "Still here.",
        ],
    )

    first = editor.prompt("Go", "allow_once")
    second = editor.prompt("And now?")

    assert (first.reason, second.reason) == ("end_turn", "end_turn")
    assert tree(project) == {"a.py": "one\n", "b.py": "a 😀 and half \ufffd"}
    assert "Half \ufffd." in coder.model.last.text
    assert "Both halves: 😀" in coder.model.last.text


def test_a_file_whose_name_is_no_text_does_not_spoil_it_either(coder: Coder, project: Path) -> None:
    Path(f"{project}/odd-\udcff.txt").write_text("needle\n")
    editor = coder(
        project,
        [
            (use("find_files", glob="odd*"), use("search", pattern="needle"), use("list_directory")),
            use("run_command", command="ls; cat odd*"),
            "Odd.",
        ],
    )

    turn = editor.prompt("Go", "allow_once")

    assert turn.reason == "end_turn"
    assert "needle" in coder.model.last.result
