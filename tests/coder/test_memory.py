"""The memory of a project: `remember` writes it when it may, each prompt reads it, /memory shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coder.script import Asked, Scripted, use
from coder.served_coder import Coder, tree, write
from coupler.coder.memory import LONGEST_MEMORY, Memory, with_entry, with_replacement, without_entry
from coupler.redaction.sources import has_secret

FILE = ".coupler/memory.md"
TEXT = "# Memory\n\nOurs, mind the order.\n\n- Tests run with `make test`.\n- Names are short.\n\nThe end.\n"


def entries(project: Path) -> list[str]:
    return Memory(FILE, (project / FILE).read_text()).entries


def test_what_is_remembered_is_asked_about_with_its_change_and_known_in_the_next_session(
    coder: Coder, project: Path
) -> None:
    editor = coder(project, [use("remember", entry="Tests run with `make test`."), "Kept.", "Known."])

    turn = editor.prompt("Remember how tests run", "allow_once")
    shown = editor.prompt("/memory").text
    next_one = coder.beside(editor, project)
    next_one.prompt("How do tests run?")

    asked = editor.asked[0]["toolCall"]
    assert asked["kind"] == "edit"
    assert asked["title"] == "Remember: Tests run with `make test`."
    assert asked["content"][0]["type"] == "diff"
    assert asked["content"][0]["path"] == str(project / FILE)
    assert turn.last_message == "Kept."
    assert entries(project) == ["Tests run with `make test`."]
    assert f"`{project / FILE}` (1 entry):" in shown
    assert "> - Tests run with `make test`." in shown
    assert f'<memory file="{FILE}">' in coder.model.last.system
    assert "- Tests run with `make test`." in coder.model.last.system


def test_what_is_refused_is_not_remembered(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("remember", entry="Push to main."), "Then not."])

    editor.prompt("Go", "reject_once")

    assert tree(project) == {}
    assert "it was not done" in coder.model.last.result


@pytest.mark.parametrize("mode", ["accept-edits", "agentic"])
def test_modes_that_edit_without_asking_ask_before_something_is_remembered(
    coder: Coder, project: Path, mode: str
) -> None:
    editor = coder(project, [use("remember", entry="Names are short."), "Kept."])
    editor.set_mode(mode)

    editor.prompt("Remember it", "allow_once")

    assert entries(project) == ["Names are short."]


@pytest.mark.parametrize("mode", ["read-only", "planning"])
def test_modes_that_change_nothing_remember_nothing(coder: Coder, project: Path, mode: str) -> None:
    write(project, {FILE: TEXT})
    editor = coder(project, ["Well."])
    editor.set_mode(mode)

    editor.prompt("Remember it")

    assert "remember" not in coder.model.last.tools
    assert "Names are short." in coder.model.last.system


def test_entries_are_replaced_and_forgotten_and_undo_brings_them_back(coder: Coder, project: Path) -> None:
    write(project, {FILE: TEXT})
    script: list[Scripted] = [
        use("remember", action="replace", old_entry="make test", entry="Tests run with `tox`."),
        use("remember", action="forget", entry="Names are short."),
        use("remember", action="forget", entry="Names are shrot."),
        "Done.",
    ]
    editor = coder(project, script)

    editor.prompt("Correct it", "allow_once", "allow_once")
    after = (project / FILE).read_text()
    editor.prompt("/undo")

    assert after == "# Memory\n\nOurs, mind the order.\n\n- Tests run with `tox`.\n\nThe end.\n"
    assert "there is no entry 'Names are shrot.'" in coder.model.last.result
    assert (project / FILE).read_text() == TEXT


def test_no_secret_is_remembered(coder: Coder, project: Path) -> None:
    def refused(asked: Asked) -> str:
        assert "there is a secret in this" in asked.result
        return "Not kept."

    key = "sk-of-somebody-0123456789abcdef"
    served = coder.served(env={"SECRET_WORD": "open sesame please"})
    editor = served.opened(project)
    for secret in (f"The key is {key}", "The door opens with open sesame please"):
        coder.model.plays(use("remember", entry=secret), refused)
        editor.prompt("Remember the key")
    assert tree(project) == {}


def test_what_looks_like_a_secret_is_told_from_what_does_not() -> None:
    rows = [
        ("The password: hunter2-hunter2", True),
        ("Set API_TOKEN=4f9a8c7d6e5b4a39", True),
        ("postgres://app:s3cr3t-s3cr3t@db/app is the database", True),
        ("AKIAIOSFODNN7EXAMPLE is the key id", True),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", True),
        ("Tests run with `make test PYTEST_ARGS=-x`", False),
        ("The token is in the environment variable GITHUB_TOKEN", False),
        ("See https://docs.example.com/auth?lang=en", False),
        ("Keys: short words, no numbers", False),
        ("sk-learn is not used here", False),
    ]
    assert [(text, has_secret(text)) for text, _ in rows] == rows


def test_a_memory_above_is_read_and_one_that_leads_out_of_the_project_is_not(
    coder: Coder, repository: Path, tmp_path: Path
) -> None:
    write(repository, {FILE: "- Of the root.\n", "sub/a.txt": "a"})
    write(tmp_path, {"outside.md": "- Of somebody else.\n"})
    (repository / "sub" / ".coupler").mkdir()
    (repository / "sub" / FILE).symlink_to(tmp_path / "outside.md")
    editor = coder(repository / "sub", ["Yes."])

    editor.prompt("Hi")

    assert "- Of the root." in coder.model.last.system
    assert "Of somebody else" not in coder.model.last.system
    assert "leads out of the project" in editor.prompt("/memory").text


def test_the_memory_can_be_switched_off(coder: Coder, project: Path) -> None:
    write(project, {FILE: TEXT})
    served = coder.served(config="[coder]\nmemory = false\n")
    editor = served.opened(project)
    coder.model.plays("Hello.")

    editor.prompt("Hi")

    assert "remember" not in coder.model.last.tools
    assert "Names are short." not in coder.model.last.system
    assert "switched off by `memory = false`" in editor.prompt("/memory").text


def test_entries_stay_lines_among_what_people_have_written() -> None:
    assert with_entry(None, "New.").endswith("as you like.\n\n- New.\n")
    assert with_entry("- a\r\n- b\r\n", "c") == "- a\r\n- b\r\n- c\r\n"
    assert with_entry("Text.", "c") == "Text.\n\n- c\n"
    assert with_replacement("- a b\n- c d e f\n", "c d e", "x") == "- a b\n- x\n"
    assert without_entry("- a\n- b", "b") == "- a\n"
    for change, problem in (
        (lambda: with_entry("- a\n", "a"), "remembered already"),
        (lambda: with_entry("x" * LONGEST_MEMORY, "a"), "forget something first"),
        (lambda: without_entry("- same one\n- same two\n", "same"), "2 entries"),
        (lambda: without_entry(None, "a"), "no entry"),
    ):
        with pytest.raises(ValueError, match=problem):
            change()
