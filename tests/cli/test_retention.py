"""The rules of `[store]`, applied by the commands beside their work, and told to whoever looks."""

import asyncio
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forked
from cli.typing_at import Typist
from coder.waiting import until
from coupler.store.sessions import SessionRecord
from coupler.store.store import Store
from raw_client import COUPLER, PATIENCE, serve

ECHO = """
from coupler import Agent

class Echo(Agent):
    async def prompt(self, turn):
        await turn.say(f"heard {turn.text}")
"""

SLOW = """
import asyncio, sqlite3
from coupler import Agent

class Slow(Agent):
    async def prompt(self, turn):
        is_left = "SELECT 1 FROM sessions WHERE id = 'old'"
        while sqlite3.connect(turn.text).execute(is_left).fetchone():
            await asyncio.sleep(0.01)
        await turn.say("gone")
"""


RULE = '[store]\nkeep_sessions = "30d"\nkeep_runs = ["30d", "1GB"]\n'


@pytest.fixture
def home(coupler_home: Path) -> Path:
    coupler_home.mkdir(parents=True)
    return coupler_home


@pytest.fixture
def store_file(home: Path) -> Path:
    """A store with an old session and a new one."""
    store = Store.open(str(home / "coupler.db"))

    async def keep():
        for id, days in (("old", 31), ("new", 1)):
            at = int((time.time() - days * 86400) * 1000)
            await store.create(SessionRecord(id, "coder", "/", updated_at=at, turns=1, title=f"an {id} one"))

    asyncio.run(keep())
    store.close()
    return home / "coupler.db"


def listed(*words: str) -> set[str]:
    done = forked.run([*COUPLER, "sessions", "list", "--json", *words], capture_output=True, timeout=PATIENCE)
    return {session["id"] for session in json.loads(done.stdout)}


def agent(directory: Path, code: str) -> str:
    (directory / "app.py").write_text(code)
    return shlex.join([*COUPLER, "serve", "--no-store", str(directory / "app.py")])


class TestServing:
    def test_an_agent_deletes_what_is_too_old_and_logs_it(self, store_file, home, tmp_path):
        (home / "coupler.toml").write_text(RULE)
        (tmp_path / "app.py").write_text(ECHO)
        with serve(tmp_path / "app.py", "--log-level", "info") as client:
            client.initialize()
            session = client.new_session(str(tmp_path))
            until(lambda: listed() == {"new"})
            client.prompt(session, "you")
            until(lambda: b"sessions: 1, runs: 0, bytes: 0" in client.stderr)
            assert listed() == {"new", session}

    @pytest.mark.parametrize("words", [[], ["--store", "{file}"]], ids=["no rule", "another file"])
    def test_nothing_is_deleted_without_a_rule_nor_in_other_files(self, store_file, home, tmp_path, words):
        if words:
            (home / "coupler.toml").write_text(RULE)
            store_file = store_file.rename(tmp_path / "other.db")
        (tmp_path / "app.py").write_text(ECHO)
        # Tidied up at once: nothing can come later that is not waited for.
        (tmp_path / "sitecustomize.py").write_text(
            "import coupler.agent.archive\ncoupler.agent.archive.TIDY_UP_AFTER = 0.0\n"
        )
        given = [word.format(file=store_file) for word in words]
        with serve(tmp_path / "app.py", *given, env={"PYTHONPATH": str(tmp_path)}) as client:
            client.initialize()
            client.prompt(client.new_session(str(tmp_path)), "you")
            client.close_stdin()
            client.wait()
        assert {"old", "new"} <= listed("--store", str(store_file))

    def test_a_project_cannot_delete_the_users_sessions(self, store_file, home, tmp_path):
        (tmp_path / "project" / ".git").mkdir(parents=True)
        (tmp_path / "project" / "coupler.toml").write_text(RULE)

        done = forked.run(
            [*COUPLER, "exec", agent(tmp_path, ECHO), "hello"],
            cwd=tmp_path / "project",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        notes = forked.run(
            [*COUPLER, "doctor", "--offline", "--json"],
            cwd=tmp_path / "project",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

        assert done.stdout == "heard hello\n"
        assert listed() == {"old", "new"}
        assert "only your own coupler.toml can set it" in notes.stdout


class TestAtATerminal:
    def test_exec_tells_what_was_deleted_once(self, store_file, home, tmp_path):
        (home / "coupler.toml").write_text(RULE)

        with Typist(*COUPLER, "exec", agent(tmp_path, SLOW), str(store_file)) as typist:
            assert typist.ends() == 0
        with Typist(*COUPLER, "exec", agent(tmp_path, ECHO), "you") as again:
            assert again.ends() == 0

        assert "gone\n" in typist.shown
        told = "coupler exec: 1 session (0 bytes) deleted, as store.keep_sessions in your coupler.toml says\n"
        assert told in typist.shown
        assert "deleted" not in again.shown
        assert listed() == {"new"}

    def test_chat_tells_it_when_it_is_left(self, store_file, home, tmp_path):
        (home / "coupler.toml").write_text(RULE)

        with Typist(*COUPLER, "chat", "--plain", agent(tmp_path, SLOW)) as typist:
            typist.types(f"{store_file}\n")
            typist.sees("gone")
            typist.types("\x04")
            assert typist.ends() == 0

        assert "coupler chat: 1 session (0 bytes) deleted" in typist.shown

    def test_run_tells_it_too_and_keeps_what_waits(self, store_file, home, tmp_path):
        (home / "coupler.toml").write_text(RULE)
        (tmp_path / "wait.yaml").write_text(
            "name: wait\nsteps:\n  - id: wait\n    run: "
            + json.dumps(
                f"{shlex.quote(sys.executable)} -c "
                + shlex.quote(
                    "import sqlite3, time\n"
                    f"while sqlite3.connect({str(store_file)!r}).execute("
                    "\"SELECT 1 FROM sessions WHERE id = 'old'\").fetchone(): time.sleep(0.01)"
                )
            )
            + "\n"
        )

        with Typist(*COUPLER, "run", str(tmp_path / "wait.yaml"), cwd=tmp_path) as typist:
            assert typist.ends() == 0

        assert "coupler run: 1 session (0 bytes) deleted" in typist.shown

    def test_what_an_agent_deleted_in_an_editor_is_told_by_the_next_command(self, store_file, home, tmp_path):
        (home / "coupler.toml").write_text(RULE)
        (tmp_path / "app.py").write_text(ECHO)
        with serve(tmp_path / "app.py") as client:
            client.initialize()
            client.new_session(str(tmp_path))
            until(lambda: listed() == {"new"})

        with Typist(*COUPLER, "exec", agent(tmp_path, ECHO), "you") as typist:
            assert typist.ends() == 0

        assert "coupler exec: 1 session (0 bytes) deleted" in typist.shown


def test_without_a_terminal_nothing_is_told_in_between(store_file, home, tmp_path):
    (home / "coupler.toml").write_text(RULE)

    done = forked.run(
        [*COUPLER, "exec", agent(tmp_path, SLOW), str(store_file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "gone\n", "")


def test_doctor_tells_the_rules_and_what_they_did(store_file, home, tmp_path):
    def section() -> dict:
        words = [*COUPLER, "doctor", "--offline", "--json"]
        report = json.loads(forked.run(words, capture_output=True, cwd=tmp_path, timeout=PATIENCE).stdout)
        return next(each for each in report["sections"] if each["name"] == "store")

    def said(about: str) -> str:
        return next(each["sentence"] for each in section()["findings"] if each["about"] == about)

    assert said("kept") == "everything until you delete it"
    (home / "coupler.toml").write_text(RULE)
    assert said("kept") == "sessions up to 30d; runs up to 30d and 1GB"
    forked.run([*COUPLER, "exec", agent(tmp_path, SLOW), str(store_file)], timeout=PATIENCE, check=True)
    assert said("kept").endswith("; last deleted: 1 session (0 bytes), just now")
    assert section()["facts"]["deleted"]["sessions"] == 1
    assert section()["facts"]["keep"] == {"sessions": "30d", "runs": "30d and 1GB"}
