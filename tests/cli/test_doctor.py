"""`coupler doctor`: one page about an installation that is well, and about many that are not."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import psutil
import pytest

import forked
from coupler.cli.doctor import doctor as examination
from coupler.cli.doctor.doctor import DoctorContext
from coupler.store.store import Store
from labs import scripted_model
from raw_client import COUPLER

pytestmark = pytest.mark.slow

PATIENCE = 120.0
DYING = 10.0
"""Seconds that a process has to end which was killed."""
PLAIN = Path(__file__).parent.parent / "agent" / "servers" / "plain.py"
SECTIONS = [
    "installation", "surroundings", "directories", "store", "settings", "project", "workflows", "agents",
    "servers", "model",
]  # fmt: skip
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "COUPLER_MODEL")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return (tmp_path / "project").resolve()


@pytest.fixture
def settings(coupler_home: Path) -> Path:
    coupler_home.mkdir(parents=True)
    return coupler_home / "coupler.toml"


def doctor(*words: str, cwd: Path, env: dict[str, str] | None = None):
    return forked.run(
        [*COUPLER, "doctor", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


def examined(cwd: Path, *words: str, env: dict[str, str] | None = None) -> dict[str, dict]:
    """The sections by their names."""
    done = doctor("--json", *words, cwd=cwd, env=env)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["is_healthy"] else 1)
    assert done.stderr == ""
    assert [section["name"] for section in report["sections"]] == SECTIONS
    return {section["name"]: section for section in report["sections"]}


def found(section: dict, level: str | None = None) -> dict[str, str]:
    """What a section says, by what it is about."""
    chosen = [each for each in section["findings"] if level in (None, each["level"])]
    return {each["about"]: f"{each['sentence']} -> {each['remedy']}" for each in chosen}


def problems(sections: dict[str, dict]) -> dict[str, dict[str, str]]:
    return {name: found(each, "problem") for name, each in sections.items() if found(each, "problem")}


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does so soon: who was killed takes a moment on a busy machine.

    Who has ended, and was not yet buried by a parent, does not count.
    """
    deadline = time.monotonic() + DYING
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


class TestAHealthyInstallation:
    def test_has_no_problem_and_is_not_changed_by_the_look(self, project, coupler_home):
        sections = examined(project)

        assert problems(sections) == {}
        assert sections["installation"]["facts"]["extras"]["workflows"]["is_usable"]
        assert found(sections["project"])["directory"].startswith(f"{project}, a git repository")
        assert "coupler login coder" in found(sections["model"], "note")["model"]
        assert not coupler_home.exists()

    def test_people_get_a_page_that_ends_with_the_verdict(self, project):
        done = doctor("--offline", cwd=project)

        lines = done.stdout.splitlines()
        assert (done.returncode, done.stderr) == (0, "")
        assert lines[0].startswith("Coupler ")
        assert [line for line in lines if line and line[0] != " "][1:-1] == [
            subject.title for subject in examination.SUBJECTS
        ]
        assert any(line.startswith("  note     model") for line in lines)
        assert any(line.strip().startswith("-> run `coupler login coder`") for line in lines)
        assert lines[-1].startswith("No problem was found.")

    @pytest.mark.parametrize("missing", ["git", "rg"])
    def test_a_program_that_is_missing_is_a_note_with_what_to_do(self, project, tmp_path, missing):
        programs = tmp_path / "bin"
        programs.mkdir()
        for name in {"git", "rg"} - {missing}:
            (programs / name).write_text(f"#!/bin/sh\necho {name} version 9.9\n")
            (programs / name).chmod(0o755)
        section = examined(project, "--offline", env={"PATH": f"{programs}"})["surroundings"]
        titles = {"git": "git", "rg": "ripgrep"}
        assert "install" in found(section, "note")[titles[missing]]
        (other,) = {*titles} - {missing}
        assert found(section, "ok")[titles[other]].startswith("9.9, ")


class TestSettings:
    def test_every_value_is_told_with_the_file_and_line_that_set_it(self, project, settings):
        settings.write_text('[permissions]\ndeny = ["read(**/.env)"]\n[coder]\nmode = "read-only"\n')
        own = project / "coupler.toml"
        own.write_text('[permissions]\ndeny = ["execute(rm *)"]\n')

        told = examined(project)["settings"]["facts"]["settings"]

        assert {(each["key"], each["value"], each["origin"]) for each in told} == {
            ("permissions.deny", "read(**/.env)", f"{settings} line 2"),
            ("permissions.deny", "execute(rm *)", f"{own} line 2"),
            ("coder.mode", "read-only", f"{settings} line 4"),
        }

    def test_a_variable_is_told_with_the_file_that_it_wins_over(self, project, settings):
        settings.write_text('[coder]\nmodel = "openai:old"\n')
        sections = examined(project, "--offline", env={"COUPLER_MODEL": "openai:new"})
        sentence = found(sections["settings"])["coder.model"]
        assert sentence.startswith(f"openai:new (the variable COUPLER_MODEL, over {settings} line 2)")

    def test_a_misspelled_variable_is_noticed(self, project):
        section = examined(project, "--offline", env={"COUPLER_MODLE": "openai:new"})["settings"]
        assert "did you mean COUPLER_MODEL?" in found(section, "note")["variable"]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[coder]\nmodeel = 'x'\n", "did you mean `model`?"),
            ("[coder\n", "line 1"),
            ("[permissions]\nallow = ['execute(']\n", "execute("),
        ],
    )
    def test_what_is_wrong_in_a_file_is_a_problem_and_the_rest_is_still_examined(
        self, project, settings, text, words
    ):
        settings.write_text(text)
        wrong = problems(examined(project, "--offline"))
        assert [*wrong] == ["settings"]
        assert words in str(wrong["settings"])

    def test_what_a_wrong_file_may_set_is_not_said_to_be_missing(self, project):
        (project / "coupler.toml").write_text("[mcp.time]\ncommand = 'time'\n[coder\n")
        sections = examined(project, "--offline")
        assert "cannot be told which servers" in found(sections["servers"], "note")["servers"]
        assert "cannot be told whether it sets one" in found(sections["model"], "note")["model"]

    def test_a_project_that_is_not_trusted_is_told_and_none_of_its_servers_started(self, project, tmp_path):
        marker = tmp_path / "started"
        args = json.dumps([str(PLAIN), "fine", str(marker)])
        (project / "coupler.toml").write_text(f"[mcp.theirs]\ncommand = '{sys.executable}'\nargs = {args}\n")

        sections = examined(project)

        assert problems(sections) == {}
        assert "`mcp`" in found(sections["project"], "note")["trust"]
        assert "`coupler trust`" in found(sections["project"], "note")["trust"]
        assert found(sections["servers"]).keys() == {"not trusted"}
        assert "theirs" in found(sections["servers"], "note")["not trusted"]
        assert not marker.exists()

        forked.run([*COUPLER, "trust", "--yes"], cwd=project, capture_output=True, check=True)
        sections = examined(project)

        assert found(sections["project"])["trust"].startswith(f"{project}/coupler.toml is trusted")
        assert sections["servers"]["facts"]["servers"]["theirs"]["tools"] == ["echo"]
        assert marker.exists()


class TestServers:
    def test_they_are_examined_at_the_same_time_and_each_with_its_own_verdict(
        self, project, settings, tmp_path
    ):
        pids = tmp_path / "pids"
        hangs = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
        dies = "import os, sys; sys.exit('my token is ' + os.environ['GITHUB_TOKEN'])"
        settings.write_text(
            "".join(
                f"[mcp.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(words)}\n{more}"
                for name, words, more in (
                    ("fine", [str(PLAIN), "fine"], ""),
                    ("hangs", ["-c", hangs], ""),
                    ("dies", ["-c", dies], 'env = {GITHUB_TOKEN = "ghp-s3cret-0001"}\n'),
                )
            )
            + '[mcp.web]\nurl = "http://127.0.0.1:9/mcp?token=q-s3cret-0002"\n'
            + 'headers = {Authorization = "Bearer b-s3cret-0003"}\n'
        )

        sections = examined(project, "--timeout", "8")

        section = sections["servers"]
        assert section["facts"]["servers"]["fine"]["tools"] == ["echo"]
        assert found(section, "ok")["fine"].startswith("1 tool, after ")
        assert {*found(section, "problem")} == {"hangs", "dies", "web"}
        assert "did not answer within" in found(section)["hangs"]
        assert "my token is [secret:GITHUB_TOKEN]" in found(section)["dies"]
        assert "[mcp.web]" in found(section)["web"]
        assert "s3cret" not in str(sections)
        assert is_gone(int(pids.read_text()))

    def test_offline_none_is_started(self, project, settings, tmp_path):
        marker = tmp_path / "started"
        args = json.dumps([str(PLAIN), "fine", str(marker)])
        settings.write_text(f"[mcp.mine]\ncommand = '{sys.executable}'\nargs = {args}\n")
        assert "because of --offline" in found(examined(project, "--offline")["servers"])["servers"]
        assert not marker.exists()

    @pytest.mark.parametrize(
        ("number", "code", "words"),
        [(signal.SIGINT, 130, b"coupler doctor: interrupted\n"), (signal.SIGTERM, 143, b"")],
    )
    def test_a_signal_ends_it_and_the_servers(self, project, settings, tmp_path, number, code, words):
        pids = tmp_path / "pids"
        os.mkfifo(pids)
        hangs = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
        settings.write_text(
            f"[mcp.hangs]\ncommand = '{sys.executable}'\nargs = {json.dumps(['-c', hangs])}\n"
        )
        process = forked.Popen(
            [*COUPLER, "doctor", "--timeout", "600"],
            cwd=project,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        server = int(pids.read_text())
        process.send_signal(number)
        _, stderr = process.communicate(timeout=PATIENCE)
        assert (process.returncode, stderr) == (code, words)
        assert is_gone(server)


class TestTheModel:
    def test_one_that_answers_is_told_with_who_says_so_and_where_its_key_is_from(self, project, settings):
        server = scripted_model.serve()
        address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        settings.write_text(f'[coder]\nmodel = "openai:scripted"\nbase_url = "{address}"\n')

        sections = examined(project, env={"COUPLER_API_KEY": "sk-s3cret-0004"})
        server.shutdown()
        server.server_close()

        told = found(sections["model"], "ok")
        assert told["model"].startswith(f"openai:scripted at {address}, as {settings} line 2 says")
        assert told["key"].startswith("that of COUPLER_API_KEY")
        assert told["answer"].startswith("it answers, after ")
        assert "s3cret" not in str(sections)

    def test_one_that_cannot_be_reached_is_a_problem(self, project):
        env = {"COUPLER_MODEL": "openai:x", "COUPLER_BASE_URL": "http://127.0.0.1:9/v1"}
        section = examined(project, env=env)["model"]
        assert "see whether http://127.0.0.1:9/v1 can be reached" in found(section, "problem")["answer"]

    def test_without_a_key_it_says_which_variable_would_hold_one(self, project):
        section = examined(project, env={"COUPLER_MODEL": "anthropic:claude-x"})["model"]
        assert "ANTHROPIC_API_KEY" in found(section, "problem")["key"]

    def test_a_stored_key_that_others_can_read_is_a_problem_and_is_not_shown(self, project, coupler_home):
        coupler_home.mkdir(parents=True)
        stored = {"provider": "openai", "base_url": None, "key": "sk-s3cret-0005"}
        file = coupler_home / "credentials.json"
        file.write_text(json.dumps({"model": "openai:x", "base_url": None, "keys": [stored]}))
        file.chmod(0o644)
        sections = examined(project, "--offline")
        assert f"chmod 600 {file}" in found(sections["model"], "problem")["keys"]
        assert "that of `coupler login coder`" in found(sections["model"])["key"]
        assert "s3cret" not in str(sections)

    def test_a_profile_that_names_a_server_which_is_not_set_is_a_problem(self, project, settings):
        settings.write_text('[agents.reviewer]\nagent = "coder"\nmcp = ["github"]\n')
        section = examined(project, "--offline")["model"]
        assert "[agents.reviewer]" in found(section, "problem")["profile"]


@pytest.fixture
def store(coupler_home: Path) -> Path:
    Store.open(str(coupler_home / "coupler.db")).close()
    return coupler_home / "coupler.db"


class TestTheStore:
    def test_a_sound_one_is_told_with_its_contents_and_left_as_it_is(self, project, store):
        before = (store.stat().st_mtime_ns, sorted(store.parent.iterdir()))
        section = examined(project)["store"]
        assert found(section)["integrity"].startswith("the file is sound")
        assert (section["facts"]["sessions"], section["facts"]["runs"]) == (0, 0)
        assert (store.stat().st_mtime_ns, sorted(store.parent.iterdir())) == before

    def test_one_that_another_program_has_open_is_examined_too(self, project, store):
        kept = Store.open(str(store))
        try:
            assert found(examined(project)["store"])["integrity"].startswith("the file is sound")
        finally:
            kept.close()

    def test_a_damaged_one_is_a_problem_with_a_way_to_rescue_it(self, project, store):
        with sqlite3.connect(store) as connection:
            connection.execute("CREATE TABLE filling (text TEXT)")
            connection.executemany("INSERT INTO filling VALUES (?)", [["x" * 3000]] * 50)
        connection.close()
        content = bytearray(store.read_bytes())
        content[-150_000:-20_000] = b"\xff" * 130_000
        store.write_bytes(content)
        assert ".recover" in found(examined(project)["store"], "problem")["integrity"]

    def test_what_is_no_database_is_a_problem(self, project, store):
        store.write_text("no database " * 500)
        assert "is not a database" in found(examined(project)["store"], "problem")["integrity"]

    def test_a_newer_one_and_another_programs_are_problems(self, project, store):
        with sqlite3.connect(store) as connection:
            connection.execute("PRAGMA user_version = 999")
        connection.close()
        assert "newer Coupler" in found(examined(project)["store"], "problem")["contents"]
        store.unlink()
        with sqlite3.connect(store) as connection:
            connection.execute("CREATE TABLE other (x)")
        connection.close()
        assert "another program" in found(examined(project)["store"], "problem")["contents"]

    def test_one_that_others_can_read_is_a_problem(self, project, store):
        store.chmod(0o644)
        assert f"chmod 600 {store}" in found(examined(project)["store"], "problem")["permissions"]
        assert store.stat().st_mode & 0o777 == 0o644

    def test_a_large_one_is_a_note_with_the_commands_that_help(self, project, store, monkeypatch):
        from coupler.cli.doctor import services

        assert "free" in found(examined(project)["store"], "ok")["space"]
        monkeypatch.setattr(services, "LARGE_STORE", 1000)
        monkeypatch.setattr(
            examination, "SUBJECTS", [each for each in examination.SUBJECTS if each.name == "store"]
        )
        (section,) = examination.examine(DoctorContext(PATIENCE, is_offline=True), PATIENCE)
        (note,) = (each for each in section.findings if each.level == "note")
        assert "`coupler sessions delete --older-than 90d`" in note.remedy
        assert "`coupler runs delete --older-than 90d`" in note.remedy
        assert "keep_sessions" in note.remedy

    def test_free_space_that_could_be_given_back_is_a_note(self, project, store):
        with sqlite3.connect(store) as connection:
            connection.execute("CREATE TABLE filling (content BLOB)")
            connection.execute("INSERT INTO filling VALUES (zeroblob(17000000))")
            connection.execute("DROP TABLE filling")
        connection.close()
        section = examined(project)["store"]
        assert "used, 17.0 MB free -> it is used for later sessions" in found(section, "note")["space"]
        assert section["facts"]["free_bytes"] > 17_000_000


class TestWorkflowsAndAgents:
    def test_an_invalid_workflow_is_a_problem_with_its_line(self, project):
        directory = project / ".coupler" / "workflows"
        directory.mkdir(parents=True)
        (directory / "good.yaml").write_text("steps:\n  - {id: a, run: echo}\n")
        (directory / "bad.yaml").write_text("steps:\n  - {id: a, rnu: echo}\n")
        section = examined(project)["workflows"]
        assert ".coupler/workflows/bad.yaml:2:" in found(section, "problem")["invalid"]
        assert found(section, "ok")["valid"].startswith("good")
        assert "`coupler trust`" in found(section, "note")["trust"]

    def test_a_configured_agent_whose_program_is_missing_is_a_problem(self, project, settings):
        settings.write_text('[agents.mine]\ncommand = "no-such-program --acp"\n')
        section = examined(project)["agents"]
        assert f"{settings} line 1" in found(section, "problem")["mine"]
        assert "coder" in section["facts"]["installed"]


class TestEverythingBroken:
    def test_a_home_that_is_a_file_and_one_of_pipes(self, project, tmp_path):
        file = tmp_path / "file"
        file.write_text("")
        wrong = problems(examined(project, env={"COUPLER_HOME": str(file)}))
        assert {"settings", "data", "cache"} == {*wrong["directories"]}
        pipes = tmp_path / "pipes"
        pipes.mkdir()
        for name in ("coupler.toml", "coupler.db", "credentials.json"):
            os.mkfifo(pipes / name)
        wrong = problems(examined(project, env={"COUPLER_HOME": str(pipes)}))
        assert {*wrong} == {"store", "settings", "model"}

    def test_a_directory_that_was_deleted(self, tmp_path):
        directory = tmp_path / "gone"
        directory.mkdir()
        script = f"cd {directory} && rmdir {directory} && exec {sys.executable} -m coupler doctor --json"
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE)
        report = json.loads(done.stdout)
        assert (done.returncode, report["directory"]) == (1, None)
        project = next(each for each in report["sections"] if each["name"] == "project")
        assert "go to another one" in found(project, "problem")["directory"]

    def test_a_program_that_hangs_is_ended_with_all_that_it_started(self, project, tmp_path):
        pid = tmp_path / "pid"
        (tmp_path / "git").write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pid}\nwait\n")
        (tmp_path / "git").chmod(0o755)
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        section = examined(project, "--offline", "--timeout", "3", env=env)["surroundings"]
        assert found(section)["git"].startswith(str(tmp_path / "git"))
        assert is_gone(int(pid.read_text()))

    def test_an_examiner_that_hangs_or_fails_keeps_nobody_from_the_rest(self, monkeypatch):
        released = threading.Event()

        def hang(section, circumstances):
            section.ok("first", "this was seen")
            released.wait()

        def fail(section, circumstances):
            raise ZeroDivisionError("by zero")

        for name, examine in (("hanging", hang), ("failing", fail)):
            module = types.ModuleType(name)
            setattr(module, f"examine_{name}", examine)
            monkeypatch.setitem(sys.modules, f"coupler.cli.doctor.{name}", module)
        subjects = [examination.Subject(name, name, name) for name in ("hanging", "failing")]
        monkeypatch.setattr(examination, "SUBJECTS", subjects)

        hung, failed = examination.examine(DoctorContext(0.2, is_offline=True), 0.2)
        released.set()

        assert [each.about for each in hung.findings] == ["first", "time"]
        assert "ZeroDivisionError: by zero" in failed.findings[0].sentence
        assert not hung.is_healthy

    def test_wrong_usage_ends_with_code_2(self, project):
        done = doctor("--timeout", "0", cwd=project)
        assert (done.returncode, done.stdout) == (2, "")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk at hand")
    def test_a_page_that_cannot_be_written_ends_with_a_sentence(self, project):
        with Path("/dev/full").open("w") as full:
            done = forked.run(
                [*COUPLER, "doctor", "--offline"],
                cwd=project,
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=PATIENCE,
            )
        assert done.returncode == 1
        assert b"the output cannot be written: no space left" in done.stderr


HIDING = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("yaml", "jinja2", "mcp", "langchain", "langchain_core", "langgraph"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
sys.argv = ["coupler", "doctor", "--json"]
from coupler.__main__ import main
main()
"""


def test_without_optional_packages_what_needs_them_is_a_problem_with_the_command(project, settings):
    settings.write_text('[mcp.mine]\ncommand = "mine"\n[coder]\nmodel = "openai:x"\n')
    (project / ".coupler" / "workflows").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", HIDING],
        cwd=project,
        env={**os.environ, "COUPLER_API_KEY": "sk-s3cret-0006"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    sections = {each["name"]: each for each in json.loads(done.stdout)["sections"]}
    wrong = problems(sections)
    assert {*wrong} == {"workflows", "servers", "model"}
    for name, extra in (("workflows", "workflows"), ("servers", "mcp"), ("model", "coder")):
        assert f"[{extra}]" in wrong[name]["packages"]
        assert "install" in wrong[name]["packages"]


def test_packages_are_told_apart_by_what_is_missing_and_what_is_too_old(monkeypatch):
    from coupler.cli.doctor import installation

    wanted = [
        "click>=8",
        "alpha>=2.1; extra == 'one'",
        "beta<3,>=1.5; extra == 'one'",
        "coupler[one]; extra == 'all'",
        "gamma; extra == 'all'",
    ]
    there = {"alpha": "2.0.9", "beta": "2.5.1rc1"}
    monkeypatch.setattr(installation.metadata, "requires", lambda name: wanted)
    monkeypatch.setattr(installation, "_package_version", there.get)

    both, one = installation.extras()

    assert (one.name, one.missing, [*one.installed]) == ("one", (), ["alpha", "beta"])
    assert one.unusable == ("alpha 2.0.9 is installed, and >=2.1 is needed",)
    assert (both.missing, both.is_usable) == (("gamma",), False)


NOTING = """
import sys, threading
class Noting:
    def find_spec(self, name, path=None, target=None):
        thread = threading.current_thread().name
        if name.startswith("coupler.") and "_examine" in thread:
            print(thread, name, file=sys.stderr)
sys.meta_path.insert(0, Noting())
sys.argv = ["coupler", "doctor", "--offline"]
from coupler.__main__ import main
main()
"""


def test_no_two_threads_import_modules_that_import_each_other(project, settings):
    """They would wait for each other, until Python breaks one of the imports off."""
    settings.write_text(
        '[mcp.mine]\ncommand = "mine"\n[coder]\nmodel = "openai:x"\n[agents.other]\nagent = "claude"\n'
    )
    (project / ".coupler" / "workflows").mkdir(parents=True)
    (project / ".coupler" / "workflows" / "flow.yaml").write_text("steps: [{run: echo}]")
    Store.open().close()
    done = subprocess.run(
        [sys.executable, "-c", NOTING], cwd=project, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stderr == ""
    assert done.stdout


def test_an_interrupt_ends_a_program_that_hangs(project, tmp_path):
    pid = tmp_path / "pid"
    os.mkfifo(pid)
    (tmp_path / "git").write_text(f"#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $! > {pid}\nwait\n")
    (tmp_path / "git").chmod(0o755)
    process = forked.Popen(
        [*COUPLER, "doctor", "--offline", "--timeout", "600"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    hanging = int(pid.read_text())
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)

    assert (process.returncode, stderr) == (130, b"coupler doctor: interrupted\n")
    assert time.monotonic() - began < DYING
    assert is_gone(hanging)


def test_a_program_that_takes_too_long_ends_with_all_that_it_has_started(project, tmp_path):
    pid = tmp_path / "stray"
    stray = f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600"
    (tmp_path / "git").write_text(f"#!/bin/sh\ntrap '' TERM\nsetsid sh -c '{stray}' &\nwait\n")
    (tmp_path / "git").chmod(0o755)
    done = forked.run(
        [*COUPLER, "doctor", "--offline", "--timeout", "3"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )

    assert done.returncode in (0, 1)
    assert is_gone(int(pid.read_text()))


def test_without_servers_and_a_model_no_heavy_package_is_imported(project):
    program = "import sys; sys.argv = ['coupler', 'doctor', '--offline']\n"
    program += "import os; os._exit = lambda code: (print([name for name in sys.modules if name in"
    program += " ('langchain', 'langchain_core', 'mcp', 'pydantic')], file=sys.stderr), exit())\n"
    program += "from coupler.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_the_manual_tells_of_every_section():
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    told = re.findall(r"^\| ([A-Z][^|]+) \|", page, re.MULTILINE)
    assert told == [subject.title for subject in examination.SUBJECTS]
