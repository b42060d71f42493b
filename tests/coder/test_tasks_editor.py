"""Coding tasks in an editor with unsaved text and terminals: both are used, and nothing goes past them."""

from __future__ import annotations

from pathlib import Path

from coder.editor import FILES, TERMINALS
from coder.script import use
from coder.served_coder import Coder, tree, write
from coder.waiting import is_gone


def test_unsaved_text_is_read_and_edited_and_what_the_editor_saves_is_in_the_file(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.py": "old = 1\n", "b.py": "import a\n"})
    edits = [{"old_text": "unsaved = 2", "new_text": "unsaved = 3"}]
    editor = coder(
        project,
        [use("read_file", path="a.py"), use("edit_file", path="a.py", edits=edits), "Done."],
        **FILES,
    )
    editor.buffers[project / "a.py"] = "old = 1\nunsaved = 2\n"

    turn = editor.prompt("Make it 3", "allow_once")

    assert "unsaved = 2" in coder.model.last.results[0]
    assert tree(project) == {"a.py": "old = 1\nunsaved = 3\n", "b.py": "import a\n"}
    [diff] = [part for part in turn.use["content"] if part["type"] == "diff"]
    assert (diff["oldText"], diff["newText"]) == ("old = 1\nunsaved = 2\n", "old = 1\nunsaved = 3\n")
    assert editor.buffers == {}


def test_what_the_user_types_after_the_model_has_read_is_not_overwritten(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    path = project / "a.py"

    def user_types(_: object) -> object:
        editor.buffers[path] = "one\nand more\n"
        return use("write_file", path="a.py", content="two\n")

    editor = coder(project, [use("read_file", path="a.py"), user_types, "You are typing."], **FILES)

    turn = editor.prompt("Write two")

    assert [each["status"] for each in turn.uses] == ["completed", "failed"]
    assert (tree(project), editor.buffers) == ({"a.py": "one\n"}, {path: "one\nand more\n"})


def test_a_search_sees_unsaved_text_of_files_that_the_session_has_touched(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.py": "alpha = 1\n", "b.py": "alpha = 2\n"})
    editor = coder(
        project,
        [
            use("read_file", path="a.py"),
            use("search", pattern="alpha|omega"),
            "omega is in a.py, alpha in b.py.",
        ],
        **FILES,
    )
    editor.buffers[project / "a.py"] = "first = 0\nomega = 1\n"

    editor.prompt("Where is omega?")

    found = coder.model.last.result
    assert "a.py:2" in found
    assert "omega = 1" in found
    assert "a.py:1" not in found
    assert "b.py:1" in found


def test_a_command_runs_in_the_editors_terminal_which_its_call_shows(coder: Coder, project: Path) -> None:
    editor = coder(
        project, [use("run_command", command="echo made > made.txt; echo said; exit 3"), "Done."], **TERMINALS
    )

    turn = editor.prompt("Run it", "allow_once")

    assert tree(project) == {"made.txt": "made\n"}
    [terminal] = editor.terminals.values()
    assert terminal.is_released
    assert terminal.asked["cwd"] == str(project)
    shown = [part for update in turn.updates for part in update.get("content", ()) if isinstance(part, dict)]
    assert {"type": "terminal", "terminalId": "terminal-1"} in shown
    assert turn.use["kind"] == "execute"
    assert "echo said" in turn.use["title"]
    assert "said" in coder.model.last.result
    assert "3" in coder.model.last.result


def test_a_cancel_ends_the_command_in_the_editors_terminal(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("run_command", command="echo begun; sleep 600")], **TERMINALS)
    request = editor.begin("Run it")
    before = editor.until(lambda frame: frame.get("method") == "terminal/wait_for_exit", "allow_once")
    editor.serve(before[-1], iter(()))

    editor.cancel()
    turn = editor.finish(request, before=before)

    assert turn.reason == "cancelled"
    [terminal] = editor.terminals.values()
    assert is_gone(terminal.process.pid)
    assert terminal.is_released
