"""`coupler trust`, as a person and a script use it.

A small program adds two keys that need trust; everything else is the command as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from raw_client import COUPLER, PATIENCE

WITH_MADE_UP_KEYS = [
    sys.executable,
    "-c",
    """
import sys
from typing import Annotated, Any
import msgspec
from coupler.config import config
from coupler.config.shapes import File, Setting, entries

Hooks = Annotated[Any, Setting("Made up.", shape=entries("a list of hooks"), setter="trusted project")]

class Server(msgspec.Struct, frozen=True):
    command: Annotated[Any, Setting("Made up.", shape=File(), setter="trusted project")] = None
    hooks: Hooks = ()

class MadeUp(config.Config, frozen=True, kw_only=True, eq=False):
    server: Server = Server()

config.Config = MadeUp
sys.argv[0] = "coupler"
from coupler.__main__ import main
main()
""",
]
# The last letter of the command is a Cyrillic one, which only looks like an a.
NEEDS_TRUST = """
[permissions]
deny = ["x"]
[server]
command = "./run \\u0430"
hooks = ["a", "b"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "app"
    (project / ".git").mkdir(parents=True)
    return project.resolve()


@pytest.fixture
def file(project: Path) -> Path:
    file = project / "coupler.toml"
    file.write_text(NEEDS_TRUST)
    return file


def run(*arguments: object, command=WITH_MADE_UP_KEYS, **environment: str):
    return forked.run(
        [*command, "trust", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


def listed() -> list[list[str]]:
    ended = run("--list")
    assert ended.returncode == 0
    return [line.split("\t") for line in ended.stdout.splitlines()]


class TestTheCommandAsItIs:
    def test_it_says_truthfully_that_nothing_needs_trust(self, project, coupler_home):
        file = project / "coupler.toml"
        file.write_text("[permissions]\nallow = ['*']\ndeny = ['x']")

        for arguments in ([project], [project, "--yes"]):
            ended = run(*arguments, command=COUPLER)

            first, note = ended.stdout.splitlines()
            assert first == f"{file} sets nothing that needs trust: it was not remembered."
            assert note.startswith(f"Note: `permissions.allow` in {file} line 2 is ignored, because")
            assert (ended.returncode, ended.stderr) == (0, "")
        assert not coupler_home.exists()

    def test_without_a_file_there_is_nothing_to_trust(self, project):
        ended = run(project, command=COUPLER)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == (
            f"There is no coupler.toml in {project} or above it: nothing needs to be trusted.\n"
        )

    def test_the_current_directory_is_meant_unless_another_is_named(self, project):
        (project / "coupler.toml").write_text("")
        (project / "src").mkdir()
        ended = forked.run(
            [*COUPLER, "trust"], cwd=project / "src", capture_output=True, text=True, timeout=PATIENCE
        )
        assert ended.stdout.startswith(f"{project / 'coupler.toml'} sets nothing that needs trust")

    def test_a_broken_file_is_told_of(self, project):
        file = project / "coupler.toml"
        file.write_text("\npermisions = 1")
        ended = run(project, command=COUPLER)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr == (
            f"coupler trust: unknown key `permisions` in {file} line 2; did you mean `permissions`?\n"
        )

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--list", "--forget"], "--list and --forget exclude each other"),
            (
                ["no-such-directory"],
                "no-such-directory is not a directory: name the one that the project is in",
            ),
            (["--all"], "No such option"),
        ],
    )
    def test_wrong_usage_ends_with_a_sentence_and_code_2(self, arguments, sentence):
        ended = run(*arguments, command=COUPLER)
        assert ended.returncode == 2
        assert sentence in ended.stderr

    def test_listing_and_forgetting_make_no_store(self, project, coupler_home):
        ended = run("--list", command=COUPLER)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "No file is trusted.\n")
        ended = run("--forget", project, command=COUPLER)
        assert ended.returncode == 1
        assert "no trusted file belongs to" in ended.stderr
        assert not coupler_home.exists()


class TestTrusting:
    def test_without_a_terminal_it_needs_to_be_told(self, project, file):
        ended = run(project)

        assert (ended.returncode, ended.stdout) == (2, "")
        assert "there is no terminal to ask on: add --yes to trust it without a question" in ended.stderr
        assert listed() == []

    def test_what_is_trusted_is_shown_and_remembered(self, project, file):
        ended = run(project, "--yes")

        assert ended.stderr.splitlines() == [
            f"{file} sets what is used only in trusted projects:",
            '  line 5: server.command = "./run \\u0430"',
            '  line 6: server.hooks = ["a", "b"]',
        ]
        assert ended.stdout == (
            f"{file} is trusted, as it was shown. `coupler trust --forget` withdraws it.\n"
        )
        ((path, moment, state),) = listed()
        assert (path, state) == (str(file), "unchanged")
        assert moment.startswith("20")
        assert run(project).stdout == f"{file} is trusted already, as it is now.\n"

    def test_a_changed_file_has_to_be_trusted_again(self, project, file):
        run(project, "--yes")
        file.write_text(NEEDS_TRUST + "# changed")

        assert [row[2] for row in listed()] == ["changed"]
        assert run(project).returncode == 2
        run(project, "--yes")
        assert sorted(row[2] for row in listed()) == ["changed", "unchanged"]

    def test_what_is_forgotten_is_trusted_no_longer(self, project, file):
        run(project, "--yes")
        (project / "src").mkdir()

        ended = run("--forget", project / "src")

        assert (ended.returncode, ended.stdout) == (0, f"{file} is no longer trusted.\n")
        assert listed() == []
        assert run(project).returncode == 2

    def test_a_file_that_is_gone_can_be_forgotten(self, project, file):
        run(project, "--yes")
        file.unlink()

        assert [row[2] for row in listed()] == ["missing"]
        assert run("--forget", project).returncode == 0
        assert listed() == []

    @pytest.mark.skipif(sys.platform == "win32", reason="needs links")
    def test_a_linked_file_is_remembered_by_where_it_really_is(self, project, file):
        file.rename(project / "real.toml")
        file.symlink_to("real.toml")

        run(project, "--yes")

        assert [row[0] for row in listed()] == [str(project / "real.toml")]
        assert run("--forget", project).returncode == 0

    def test_trust_is_kept_in_the_store_that_the_user_has_set(self, project, file, coupler_home, tmp_path):
        coupler_home.mkdir()
        store = tmp_path / "elsewhere" / "own.db"
        (coupler_home / "coupler.toml").write_text(f"[sessions]\nstore = '{store}'")

        run(project, "--yes")

        assert store.exists()
        assert not (coupler_home / "coupler.db").exists()
        assert [row[0] for row in listed()] == [str(file)]

    def test_a_store_that_cannot_be_used_is_told_of(self, project, file, tmp_path):
        broken = tmp_path / "broken.db"
        broken.write_text("no database" * 100)
        ended = run(project, "--yes", COUPLER_STORE=str(broken))
        assert ended.returncode == 1
        assert "is not a Coupler database, or damaged" in ended.stderr

    def test_a_user_without_a_home_is_told_what_to_set(self, project, file):
        program = "import os; os.path.expanduser = lambda path: path\n" + WITH_MADE_UP_KEYS[2]
        environ = {
            "COUPLER_HOME": "",
            "XDG_DATA_HOME": "",
            "XDG_CONFIG_HOME": "",
            "HOME": "",
            "LOCALAPPDATA": "",
        }
        ended = run(project, "--yes", command=[sys.executable, "-c", program], **environ)
        assert ended.returncode == 1
        assert "set COUPLER_HOME" in ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
class TestOnATerminal:
    @pytest.mark.parametrize("answer", ["y", "n", ""])
    def test_a_person_is_asked_after_seeing_what_it_is_about(self, project, file, answer):
        shown, code = on_terminal(project, answer=f"{answer}\n")

        assert '  line 5: server.command = "./run \\u0430"' in shown
        assert "Trust this file as it is now? [y/N]: " in shown
        assert (code, len(listed())) == ((0, 1) if answer == "y" else (1, 0))

    def test_the_list_is_for_reading(self, project, file):
        run(project, "--yes")
        shown, code = on_terminal("--list")
        assert code == 0
        assert shown.startswith(("TRUSTED ", "\x1b[1mTRUSTED"))
        assert "  unchanged  " in shown
        assert str(file) in "".join(shown.split())  # a long path is wrapped


def on_terminal(*arguments: object, answer: str = "") -> tuple[str, int]:
    """What a person sees, and the exit code."""
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*WITH_MADE_UP_KEYS, "trust", *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:
        pass  # how Linux tells that the other side has left
    finally:
        os.close(ours)
    return seen.decode(), process.wait(PATIENCE)
