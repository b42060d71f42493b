"""From a command to a program, and what is said when that fails."""

import asyncio
import os
import pickle
import sys
from pathlib import Path

import pytest

from coupler.runtime.environment import (
    Environment,
    SpawnError,
    SpawnErrorKind,
    find_program,
    find_program_outside,
    split_command,
)
from coupler.runtime.process import Child
from tables import table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX splitting and permissions")


def script(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def spawn_error(command: str | list[str], **options: object) -> SpawnError:
    async def story() -> None:
        Child.spawn(command, **options)  # type: ignore[arg-type]

    with pytest.raises(SpawnError) as caught:
        asyncio.run(story())
    return caught.value


@table(
    ("command", "words"),
    [
        ("opencode acp", ["opencode", "acp"]),
        ("agent 'two words' \"and more\"", ["agent", "two words", "and more"]),
        (["agent", "two words", ""], ["agent", "two words", ""]),
        ((Path("agent"), "x"), ["agent", "x"]),
    ],
)
def test_a_string_is_split_as_a_shell_would_and_a_list_is_kept(command: str, words: list[str]) -> None:
    assert split_command(command) == words


@table("command", ["", "   ", [], [""], "agent 'open", "agent \0", ["agent", "\0"], ["a", 3], [b"a"]])
def test_a_command_that_is_none_is_refused(command: str | list[str]) -> None:
    with pytest.raises(SpawnError) as caught:
        split_command(command)
    assert caught.value.kind == "bad_command"


def test_a_program_is_looked_up_in_the_path_of_the_child(tmp_path: Path) -> None:
    program = script(tmp_path / "agent")
    assert find_program("agent", cwd=Path("/"), environment={"PATH": f"/nowhere:{tmp_path}"}) == program


def test_a_program_with_a_directory_is_looked_up_from_the_childs_directory(tmp_path: Path) -> None:
    program = script(tmp_path / "agent")
    assert find_program("./agent", cwd=tmp_path, environment={}) == program


def test_a_missing_program_is_named_with_the_path_that_was_searched() -> None:
    error = spawn_error(["no-such-agent", "acp"], env={"PATH": "/one:/two"})
    assert error.kind == "missing_program"
    assert "'no-such-agent'" in error.message
    assert "/one:/two" in error.message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("./missing", "missing_program"),
        ("./plain", "not_executable"),
        ("plain", "not_executable"),
        ("./directory", "not_executable"),
        ("./orphan", "not_executable"),
        ("./shapeless", "refused"),
    ],
)
def test_each_way_a_file_is_no_program_has_its_error(tmp_path: Path, name: str, kind: SpawnErrorKind) -> None:
    script(tmp_path / "plain", mode=0o644)
    script(tmp_path / "orphan", "#!/no/such/interpreter\n")
    script(tmp_path / "shapeless", "no first line says what this is\n")
    (tmp_path / "directory").mkdir()
    error = spawn_error([name], cwd=tmp_path, env={"PATH": str(tmp_path)})
    assert error.kind == kind
    assert Path(name).name in error.message


def test_a_missing_working_directory_is_named(tmp_path: Path) -> None:
    error = spawn_error(["/bin/sh"], cwd=tmp_path / "gone")
    assert error.kind == "missing_directory"
    assert str(tmp_path / "gone") in error.message


def test_a_file_is_no_working_directory(tmp_path: Path) -> None:
    error = spawn_error(["/bin/sh"], cwd=script(tmp_path / "file"))
    assert error.kind == "missing_directory"
    assert "not a directory" in error.message


@table("variables", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"A": 1}])
def test_a_variable_that_no_environment_can_hold_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(SpawnError) as caught:
        Environment.inherit(variables).resolve()
    assert caught.value.kind == "bad_environment"


def test_the_error_about_a_variable_does_not_show_its_value() -> None:
    with pytest.raises(SpawnError) as caught:
        Environment.exact({"TOKEN": "hunter2\0"}).resolve()
    assert "TOKEN" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_an_environment_is_taken_as_it_was_when_it_was_made() -> None:
    variables = {"A": "1"}
    environment = Environment.exact(variables)
    variables["A"] = "2"
    assert environment.resolve() == {"A": "1"}


def test_inheriting_follows_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment.inherit()
    monkeypatch.setenv("LATER", "1")
    assert environment.resolve() == dict(os.environ)


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(SpawnError("refused", "no")))
    assert (error.kind, str(error)) == ("refused", "no")


class TestOutside:
    def test_a_program_on_the_path_is_found(self, tmp_path: Path) -> None:
        program = script(tmp_path / "tool")
        assert find_program_outside("tool", (str(tmp_path / "project"), "/"), path=str(tmp_path)) == str(
            program
        )
        assert find_program_outside("tool", (), path="/nowhere") is None

    def test_one_in_a_project_is_not(self, tmp_path: Path) -> None:
        script(tmp_path / "tool")
        assert find_program_outside("tool", ("/nowhere", str(tmp_path)), path=str(tmp_path)) is None

    @pytest.mark.parametrize("way", ["into it", "out of it"])
    def test_nor_one_behind_a_link_that_leads_into_a_project_or_out_of_it(
        self, tmp_path: Path, way: str
    ) -> None:
        project, others = tmp_path / "project", tmp_path / "others"
        project.mkdir()
        others.mkdir()
        real, link = (project, others) if way == "into it" else (others, project)
        script(real / "real")
        (link / "tool").symlink_to(real / "real")
        assert find_program_outside("tool", (str(project),), path=str(link)) is None

    def test_nor_one_that_depends_on_the_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script(tmp_path / "tool")
        monkeypatch.chdir(tmp_path)
        assert find_program_outside("tool", (), path=".") is None
