"""`coupler permissions`: what was chosen for projects, listed and withdrawn as people and scripts do it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import forked
from coupler.store.choices import ChoiceRecord, remember_choices
from coupler.store.store import Store
from raw_client import COUPLER, PATIENCE

COMMITS, PUSHES = "execute(git commit *)", "execute(git push *)"
MADE_AT = 1_794_800_000_000
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path.resolve() / "app"
    (project / ".git").mkdir(parents=True)
    return project


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "gone"


@pytest.fixture
def store(coupler_home: Path) -> Path:
    coupler_home.mkdir()
    return coupler_home / "coupler.db"


@pytest.fixture
def kept(store: Path, project: Path, other: Path) -> Path:
    """Two choices for a project, and one for another whose directory is gone."""
    remember(store, (str(project), "allow", "execute", "git commit *"))
    remember(store, (str(project), "deny", "execute", "git push *"))
    remember(store, (str(other), "allow", "fetch", "https://example.com/*"))
    return store


def remember(store: Path, *choices: tuple[str, str, str, str]) -> None:
    """Keep choices as an agent does."""
    Store.open(str(store)).close()
    with closing(sqlite3.connect(store)) as connection:
        at = MADE_AT + connection.execute("SELECT count(*) FROM choices").fetchone()[0]
        remember_choices(connection, tuple(ChoiceRecord(*choice, at) for choice in choices))
        connection.commit()


def run(*arguments: object, cwd: Path | None = None, stdin=subprocess.DEVNULL, **environment: str):
    return forked.run(
        [*COUPLER, "permissions", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        stdin=stdin,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


def rows(*arguments: object) -> list[list[str]]:
    ended = run("list", *arguments)
    assert ended.returncode == 0, ended.stderr
    return [line.split("\t") for line in ended.stdout.splitlines()]


def rules() -> list[str]:
    return [row[2] for row in rows()]


class TestList:
    def test_to_a_pipe_it_is_a_line_for_each_choice(self, kept, project, other):
        assert rows() == [
            [str(project), "allow", COMMITS, "2026-11-16T03:33:20.000Z"],
            [str(project), "reject", PUSHES, "2026-11-16T03:33:20.001Z"],
            [str(other), "allow", "fetch(https://example.com/*)", "2026-11-16T03:33:20.002Z"],
        ]

    def test_json_has_the_same(self, kept, project):
        ended = run("list", "--json", "--project", project)

        assert json.loads(ended.stdout) == [
            {
                "project": str(project),
                "answer": "allow",
                "rule": COMMITS,
                "made_at": "2026-11-16T03:33:20.000Z",
            },
            {
                "project": str(project),
                "answer": "reject",
                "rule": PUSHES,
                "made_at": "2026-11-16T03:33:20.001Z",
            },
        ]
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_a_project_is_meant_by_any_directory_in_it_and_by_its_name_when_it_is_gone(
        self, kept, project, other
    ):
        (project / "src").mkdir()
        link = project.parent / "link"
        link.symlink_to(project)

        for directory in (project, project / "src", link, project / "src" / ".."):
            assert [row[2] for row in rows("--project", directory)] == [COMMITS, PUSHES]
        assert [row[2] for row in rows("--project", other)] == ["fetch(https://example.com/*)"]

    def test_a_project_without_any_is_told_of(self, kept, tmp_path):
        ended = run("list", "--project", tmp_path)

        assert (ended.returncode, ended.stdout) == (0, "")
        assert ended.stderr == (
            f"Nothing is remembered for {tmp_path}: leave out --project to see the other projects.\n"
        )

    @pytest.mark.parametrize("is_json", [False, True])
    def test_without_a_store_there_is_nothing_and_none_is_made(self, coupler_home, is_json):
        ended = run("list", *(["--json"] if is_json else []))

        assert ended.returncode == 0
        assert ended.stdout == ("[]\n" if is_json else "")
        assert ended.stderr.startswith("Nothing is remembered")
        assert not coupler_home.exists()

    def test_another_store_is_named(self, kept, coupler_home, tmp_path):
        moved = tmp_path / "else.db"
        remember(moved, ("/x", "allow", "execute", "make test"))

        assert [row[:3] for row in rows("--store", moved)] == [["/x", "allow", "execute(make test)"]]
        (coupler_home / "coupler.toml").write_text(f'[sessions]\nstore = "{moved}"\n')
        assert [row[:3] for row in rows()] == [["/x", "allow", "execute(make test)"]]

    def test_nothing_in_it_can_disturb_the_terminal(self, store):
        evil = "make \x1b]0;owned\x07it\u202e\x1b[2J\nnow\t!"
        remember(store, (f"/tmp/{evil}", "allow", "execute", evil))

        ended = run("list")
        assert [row[:3] for row in rows()] == [["/tmp/make it now !", "allow", "execute(make it now !)"]]
        assert not CONTROL.search(ended.stdout)
        ended = run("list", "--json")
        assert not CONTROL.search(ended.stdout)
        assert json.loads(ended.stdout)[0]["rule"] == f"execute({evil})"

    def test_a_broken_row_is_told_of_and_left_out(self, kept):
        with closing(sqlite3.connect(kept)) as connection:
            values = ("/x", b"\xff", "a", "allow", "soon")
            connection.execute("INSERT INTO choices VALUES (?,?,?,?,?)", values)
            connection.commit()

        ended = run("list")

        assert len(ended.stdout.splitlines()) == 3
        assert (
            ended.stderr == "coupler permissions: a row of the remembered choices is broken, and left out\n"
        )

    @pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
    def test_on_a_terminal_it_is_a_table_sorted_by_project(self, kept, project, other):
        headings, *rows = [re.split("  +", line.strip()) for line in on_terminal("list").splitlines()]

        assert headings == ["ANSWER", "RULE", "PROJECT", "MADE"]
        assert rows[0][:2] == ["allow", "execute(git commit *)"]
        assert rows[0][2].endswith(project.name)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", rows[0][3])
        assert rows[1][:2] == ["reject", PUSHES]
        assert rows[2][2].endswith(other.name)


class TestForget:
    def test_one_is_forgotten_by_its_text(self, kept, project):
        ended = run("forget", COMMITS, "--project", project)

        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1 choice forgotten.\n", "")
        assert rules() == [PUSHES, "fetch(https://example.com/*)"]

    def test_the_current_directory_is_meant_unless_another_is_named(self, kept, project):
        (project / "src").mkdir()

        assert run("forget", PUSHES, cwd=project / "src").returncode == 0

        assert rules() == [COMMITS, "fetch(https://example.com/*)"]

    def test_what_list_shows_is_what_forget_takes(self, store, project):
        for number, (subject, pattern) in enumerate(
            [
                ("tool:lookup", ""),
                ("execute", "make\x1b[2J  'a  b'"),
                ("fetch", "https://[*].x/*"),
                ("edit", "ü/**"),
            ]
        ):
            remember(store, (str(project), "allow", subject, pattern))
            [[_, _, rule, _]] = rows()
            assert run("forget", rule, "--project", project).stdout == "1 choice forgotten.\n", number
            assert rows() == []

    def test_all_of_a_project_are_forgotten_and_no_other(self, kept, project):
        ended = run("forget", "--all", "--project", project, "--yes")

        assert (ended.returncode, ended.stdout) == (0, "2 choices forgotten.\n")
        assert rules() == ["fetch(https://example.com/*)"]

    def test_a_project_that_is_gone_can_be_forgotten(self, kept, other):
        assert run("forget", "--all", "--project", other, "--yes").returncode == 0
        assert rules() == [COMMITS, PUSHES]

    def test_without_a_terminal_all_needs_a_yes(self, kept, project):
        ended = run("forget", "--all", "--project", project)

        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == (
            "coupler permissions: there is no terminal to ask on: add --yes to forget without a question\n"
        )
        assert len(rules()) == 3

    @pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
    @pytest.mark.parametrize(("typed", "left"), [("y\n", 1), ("n\n", 3), ("\n", 3), ("\x04", 3)])
    def test_on_a_terminal_it_asks_about_all(self, kept, project, typed, left):
        shown = on_terminal("forget", "--all", "--project", project, typed=typed)

        assert f"  allow   {COMMITS}" in shown
        assert f"  reject  {PUSHES}" in shown
        assert "Forget 2 choices?" in shown
        assert len(rules()) == left

    @pytest.mark.parametrize("arguments", [[], [COMMITS, "--all"], ["--yes"]])
    def test_it_must_be_said_what_to_forget(self, kept, project, arguments):
        ended = run("forget", *arguments, cwd=project)

        assert ended.returncode == 2
        assert ended.stderr.startswith("coupler permissions: say what to forget: either one RULE")
        assert len(rules()) == 3

    @pytest.mark.parametrize(
        ("rule", "hint"),
        [
            ("execute(git comit *)", f"did you mean `{COMMITS}`?"),
            ("fetch(https://example.com/*)", "name that with --project"),
            ("*", "`coupler permissions list` shows what is"),
            ("execute", "`coupler permissions list` shows what is"),
            ("", "`coupler permissions list` shows what is"),
            ("execute(%)", "`coupler permissions list` shows what is"),
        ],
    )
    def test_what_is_not_remembered_is_refused(self, kept, project, rule, hint):
        ended = run("forget", rule, "--project", project)

        assert (ended.returncode, ended.stdout) == (1, "")
        assert f"`{rule}` is not remembered for {project}" in ended.stderr
        assert hint in ended.stderr
        assert len(rules()) == 3

    @pytest.mark.parametrize("what", [COMMITS, "--all"])
    def test_without_a_store_there_is_nothing_to_forget_and_none_is_made(self, coupler_home, project, what):
        ended = run("forget", what, "--project", project, "--yes")

        assert (ended.returncode, ended.stdout) == (1, "")
        assert "remembered for" in ended.stderr
        assert not coupler_home.exists()


class TestWrongUse:
    @pytest.mark.parametrize("command", [["list"], ["forget", "--all", "--yes"]])
    def test_a_store_that_is_named_must_be_there(self, tmp_path, command):
        ended = run(*command, "--store", tmp_path / "no.db")

        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"coupler permissions: there is no file {tmp_path / 'no.db'}")
        assert not (tmp_path / "no.db").exists()

    @pytest.mark.parametrize("command", [["list"], ["forget", "--all", "--yes"]])
    def test_a_file_that_is_no_store_is_left_alone(self, tmp_path, command):
        file = tmp_path / "notes.txt"
        file.write_text("notes\n" * 1000)

        ended = run(*command, "--store", file)

        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith("coupler permissions: ")
        assert "Traceback" not in ended.stderr
        assert file.read_text() == "notes\n" * 1000

    def test_a_wrong_configuration_is_told_of(self, coupler_home):
        coupler_home.mkdir()
        (coupler_home / "coupler.toml").write_text("\nsesions = 1")

        ended = run("list")

        assert (ended.returncode, ended.stdout) == (1, "")
        assert "line 2; did you mean `sessions`?" in ended.stderr

    @pytest.mark.skipif(sys.platform != "linux", reason="names that are no text are Linux's")
    def test_a_directory_whose_name_is_no_text_is_no_crash(self, kept, tmp_path):
        name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")

        ended = run("list", "--project", name)

        assert (ended.returncode, ended.stdout) == (0, "")
        assert "Traceback" not in ended.stderr


def on_terminal(*arguments: object, typed: str = "") -> str:
    """What a person sees who types this."""
    import pty

    controller, terminal = pty.openpty()
    try:
        process = forked.Popen(
            [*COUPLER, "permissions", *map(str, arguments)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "200"},
            start_new_session=True,
        )
    finally:
        os.close(terminal)
    with process, os.fdopen(controller, "r+b", buffering=0) as stream:
        stream.write(typed.encode())
        shown = b""
        while True:
            try:
                data = stream.read(65536)
            except OSError:
                break  # the other end is closed
            if not data:
                break
            shown += data
    return shown.decode().replace("\r\n", "\n")


def test_a_secret_in_a_rule_that_was_kept_before_it_was_known_is_not_shown_and_can_be_forgotten(
    kept, tmp_path
):
    secret = "Zq7Xk9Vw3Jy5Qz8Wx2Kv"
    remember(kept, (str(tmp_path), "allow", "execute", f"curl -u {secret} *"))

    for words in ((), ("--json",)):
        listed = run("list", "--store", kept, *words, LATE_TOKEN=secret).stdout
        assert "execute(curl -u [secret:LATE_TOKEN] *)" in listed
        assert secret not in listed
    rule = "execute(curl -u [secret:LATE_TOKEN] *)"
    done = run("forget", rule, "--project", tmp_path, "--store", kept, LATE_TOKEN=secret)
    assert done.stdout == "1 choice forgotten.\n"
