"""A store that an earlier version made: its sessions load and go on, its runs resume, its answers hold.

`earlier/coupler.db` was written by version 0.1 in `earlier/project`. No later version may fail to read it.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import forked
from agent.sessions.steps import conversation, reopen
from agent.steps import leave
from coupler.providers.catalogue import ENTRIES, provider
from raw_client import COUPLER, RawClient

EARLIER = Path(__file__).parent / "earlier"
PROJECT = "/earlier/project"
"""Where the store says that its project is."""

IDS = json.loads((EARLIER / "ids.json").read_text())
NATIVE = "coupler.providers.claude:Claude"


@pytest.fixture
def project(tmp_path: Path, coupler_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project and its store, as if both had always been here."""
    project = tmp_path / "project"
    shutil.copytree(EARLIER / "project", project)
    coupler_home.mkdir(parents=True, exist_ok=True)
    for name in ("coupler.db", "coupler.db.langgraph"):
        shutil.copy(EARLIER / name, coupler_home / name)
        relocate(coupler_home / name, str(project))
    monkeypatch.setenv("PATH", f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return project


@pytest.fixture
def serve(project: Path) -> Iterator[Callable[..., RawClient]]:
    clients = []

    def start(*words: str) -> RawClient:
        client = RawClient(*COUPLER, "serve", *words, cwd=project)
        clients.append(client)
        client.initialize()
        return client

    yield start
    for client in clients:
        with client:
            leave(client)


@pytest.mark.parametrize(
    ("target", "id", "said", "goes_on"),
    [
        (["app.py:Notes"], "plain", ["1: first", "2: second"], "3: next"),
        (["graph.py:graph"], "graph", ["one", "one|two"], "one|two|next"),
        (["native.py:agent"], "native", ["continued new"], "continued 11111111-2222-3333-4444-555555555555"),
        (["--", "acp-stub"], "relay", ["heard 1 in stub-session"], "heard 1 in stub-session"),
    ],
    ids=["plain", "graph", "native", "relay"],
)
def test_a_session_is_loaded_and_goes_on(
    serve: Any, project: Path, target: list[str], id: str, said: list[str], goes_on: str
) -> None:
    client = serve(*target)

    updates, answer = reopen(client, "session/load", IDS[id], project)

    assert "result" in answer
    assert [text for role, text in conversation(updates) if role == "agent"] == said
    shown, _ = client.prompt(IDS[id], "next")
    assert [text for role, text in conversation(shown) if role == "agent"] == [goes_on]


def threads_of_earlier_file(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "coupler.db.langgraph")) as database:
        return [row[0] for row in database.execute("SELECT DISTINCT thread_id FROM checkpoints")]


def test_the_thread_of_a_graph_moves_into_the_store_and_its_file_goes_when_it_is_empty(
    serve: Any, project: Path, coupler_home: Path
) -> None:
    add_thread(coupler_home, IDS["graph"], IDS["plain"])

    reopen(serve("graph.py:graph"), "session/load", IDS["graph"], project)

    assert threads_of_earlier_file(coupler_home) == [IDS["plain"]]
    with closing(sqlite3.connect(coupler_home / "coupler.db")) as database:
        assert database.execute("SELECT id FROM threads").fetchall() == [(IDS["graph"],)]


def test_a_deleted_session_leaves_nothing_in_the_file_of_its_thread(
    project: Path, coupler_home: Path
) -> None:
    add_thread(coupler_home, IDS["graph"], IDS["plain"])

    coupler(project, "sessions", "delete", IDS["graph"], "--yes")
    assert threads_of_earlier_file(coupler_home) == [IDS["plain"]]

    coupler(project, "sessions", "delete", IDS["plain"], "--yes")
    assert not (coupler_home / "coupler.db.langgraph").exists()


def add_thread(home: Path, like: str, id: str) -> None:
    with closing(sqlite3.connect(home / "coupler.db.langgraph")) as database, database:
        for table in ("checkpoints", "writes"):
            rows = database.execute(f"SELECT * FROM {table} WHERE thread_id = ?", [like]).fetchall()
            for row in rows:
                marks = ",".join("?" * len(row))
                database.execute(f"INSERT INTO {table} VALUES ({marks})", [id, *row[1:]])


def test_everything_in_a_session_is_replayed(serve: Any, project: Path) -> None:
    updates, answer = reopen(serve("app.py:Notes"), "session/load", IDS["plain"], project)

    kinds = [update["sessionUpdate"] for update in updates]
    assert kinds.count("plan") >= 1
    assert kinds.count("agent_thought_chunk") == 2
    calls = [update for update in updates if update["sessionUpdate"].startswith("tool_call")]
    contents = [item for call in calls for item in call.get("content", [])]
    assert [item["newText"] for item in contents if item["type"] == "diff"][-1] == "note 2: second\n"
    assert answer["result"]["modes"]["currentModeId"] == "write"


def test_sessions_are_listed_for_their_agent_and_a_deleted_one_is_not(serve: Any, project: Path) -> None:
    listed = serve("app.py:Notes").call("session/list", {"cwd": str(project)})["result"]["sessions"]

    assert [(session["sessionId"], session["title"]) for session in listed] == [(IDS["plain"], "first")]


def test_a_parked_run_is_resumed_in_its_session(serve: Any, project: Path) -> None:
    client = serve("release.yaml")
    reopen(client, "session/load", IDS["served_workflow"], project)

    _, answer = client.prompt(IDS["served_workflow"], "3")

    assert answer["result"]["_meta"]["coupler"]["outputs"] == {"version": "3 to moon"}
    assert (project / "release.log").read_text() == "version 3\n"


def test_a_parked_run_is_resumed_on_the_command_line(project: Path) -> None:
    runs = json.loads(coupler(project, "runs", "list", "--json"))
    assert [run["status"] for run in runs] == ["success", "parked", "parked"]
    assert "begin" in coupler(project, "runs", "show", runs[0]["id"])
    # That version did not note how a run was begun, so its files have to be trusted now.
    coupler(project, "trust", "release.yaml", "--yes")

    assert coupler(project, "resume", runs[1]["id"], "--quiet", "--answer", "version=5") == "5 to mars\n"
    assert (project / "release.log").read_text() == "version 5\n"


def test_sessions_are_shown_and_exported(project: Path) -> None:
    assert "2: second" in coupler(project, "sessions", "show", IDS["plain"])
    exported = json.loads(coupler(project, "sessions", "export", IDS["plain"], "--format", "json"))
    assert "note 1: first" in json.dumps(exported)


def test_choices_and_trust_hold(project: Path) -> None:
    assert "edit" in coupler(project, "permissions", "list")
    assert "is trusted" in coupler(project, "trust", ".")


def test_the_identities_of_providers_do_not_change() -> None:
    """Sessions are found by them: a class that moves would lose those of all its users."""
    kinds = [provider(name) for name in ENTRIES]
    assert {f"{kind.__module__}:{kind.__qualname__}" for kind in kinds} == {
        "coupler.providers.claude:Claude",
        "coupler.providers.codex:Codex",
        "coupler.providers.copilot:Copilot",
        "coupler.providers.gemini:Gemini",
        "coupler.providers.openai:OpenAI",
        "coupler.providers.opencode:OpenCode",
    }


def coupler(project: Path, *words: str) -> str:
    done = forked.run(
        [*COUPLER, *words], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def relocate(file: Path, project: str) -> None:
    """Say in everything that a database holds that its project is elsewhere."""
    with closing(sqlite3.connect(file)) as database, database:
        names = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
        for (table,) in names.fetchall():
            columns = database.execute(f"PRAGMA table_info({table})").fetchall()
            key = [position for position, column in enumerate(columns) if column[5]]
            change = ", ".join(f"{column[1]} = ?" for column in columns)
            place = " AND ".join(f"{columns[position][1]} IS ?" for position in key)
            for row in database.execute(f"SELECT * FROM {table}").fetchall():
                moved = [_relocated(value, project) for value in row]
                if moved != list(row):
                    database.execute(
                        f"UPDATE {table} SET {change} WHERE {place}", [*moved, *(row[at] for at in key)]
                    )


def _relocated(value: Any, project: str) -> Any:
    match value:
        case str():
            return _identity() if value == NATIVE else value.replace(PROJECT, project)
        case bytes() if PROJECT.encode() in value:
            try:
                return msgspec.msgpack.encode(_relocated(msgspec.msgpack.decode(value), project))
            except msgspec.DecodeError:
                return value.replace(PROJECT.encode(), project.encode())
        case dict():
            return {_relocated(key, project): _relocated(inner, project) for key, inner in value.items()}
        case list():
            return [_relocated(inner, project) for inner in value]
    return value


def _identity() -> str:
    """Under which name this installation, which may be a checkout, keeps the sessions of the native agent."""
    from coupler.agent.capabilities import identity_of
    from coupler.providers import Claude

    return identity_of(Claude)
