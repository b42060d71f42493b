"""Workflows on the shelf of a session: all that can be used, whatever else lies beside them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coupler.workflow.editor.commands import directory_state, load_commands
from workflow.served_project import write_workflow

GOOD = "steps: [{run: echo}]\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    directory = tmp_path / ".coupler" / "workflows"
    write_workflow(directory, "good", GOOD)
    return directory


def pipe(file: Path) -> None:
    os.mkfifo(file)


def loop(file: Path) -> None:
    file.symlink_to(file.name)


def dangling(file: Path) -> None:
    file.symlink_to("gone")


def outside(file: Path) -> None:
    file.symlink_to("/etc/hostname")


def folder(file: Path) -> None:
    file.mkdir()


def huge(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(3 * 1024 * 1024 * 1024)


def binary(file: Path) -> None:
    file.write_bytes(b"\xff\x00\xfe" * 100)


def unnamable(file: Path) -> None:
    file.write_text(f"name: two words\n{GOOD}")


def bomb(file: Path) -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))
    file.write_text(f"l0: &l0 [x]\n{levels}\n{GOOD}")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (pipe, "odd.yaml is no file"),
        (loop, "odd.yaml"),
        (dangling, "there is no file"),
        (outside, "leads out of the project"),
        (folder, "odd.yaml"),
        (huge, "odd.yaml is too large"),
        (binary, "odd.yaml"),
        (unnamable, "must be made of letters, digits, `_`, `-` and `.`"),
        (bomb, "odd.yaml"),
    ],
)
def test_what_is_no_workflow_is_left_out_and_named_and_hides_no_other(
    directory: Path, make: Callable[[Path], None], sentence: str
) -> None:
    make(directory / "odd.yaml")
    began = time.monotonic()

    shelf = load_commands(str(directory))

    assert [command.name for command in shelf.commands] == ["good"]
    (note,) = shelf.notes
    assert sentence in note
    assert time.monotonic() - began < 5
    assert directory_state(str(directory)) == directory_state(str(directory))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_file_that_may_not_be_read_is_left_out_and_named(directory: Path) -> None:
    write_workflow(directory, "locked", GOOD).chmod(0)

    shelf = load_commands(str(directory))

    assert [command.name for command in shelf.commands] == ["good"]
    assert "locked.yaml cannot be read: permission denied" in shelf.notes[0]


@pytest.mark.parametrize("name", ["größe", "日本語", "a b", "x" * 70])
def test_a_file_whose_name_cannot_be_typed_everywhere_needs_another_name(directory: Path, name: str) -> None:
    write_workflow(directory, name, GOOD)
    write_workflow(directory, f"{name}.named", f"name: v1.2-named\n{GOOD}")

    shelf = load_commands(str(directory))

    assert [command.name for command in shelf.commands] == ["good", "v1.2-named"]
    assert "the file's name makes no name for a workflow: give it a `name`" in shelf.notes[0]


def test_two_files_with_one_name_are_both_left_out_and_named(directory: Path) -> None:
    write_workflow(directory, "other", f"name: good\n{GOOD}")

    shelf = load_commands(str(directory))

    assert shelf.commands == ()
    assert "the name `good` is taken by good.yaml: give one of them another `name`" in shelf.notes[0]


def test_the_projects_own_comes_before_the_users(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUPLER_HOME", str(tmp_path / "home"))
    write_workflow(tmp_path / "home" / "workflows", "good", f"description: the user's\n{GOOD}")
    write_workflow(directory, "good", f"description: the project's\n{GOOD}")

    assert [command.description for command in load_commands(str(directory)).commands] == ["the project's"]


def test_a_description_is_one_line_that_no_editor_trips_over(directory: Path) -> None:
    write_workflow(directory, "good", f'description: "one\\n\\ttwo \\e[31m{"x" * 1000}"\n{GOOD}')

    (command,) = load_commands(str(directory)).commands

    assert command.description.startswith("one two \\u001b[31mxxx")
    assert len(command.description) <= 306
    assert command.description.isprintable()
