"""Graphs that a factory makes, one for each session."""

import sqlite3
from contextlib import closing

from labs.langchain.acting import HERE, Stage
from raw_client import texts


def test_each_session_has_its_own_graph_and_a_deleted_one_leaves_no_thread(tmp_path):
    stage = Stage(HERE / "graphs" / "by_factory.py", tmp_path)
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    sessions = [stage.session(folder)[1] for folder in folders]

    answers = [texts(stage.client.prompt(session, "where?")[0]) for session in sessions]
    stage.client.call("session/delete", {"sessionId": sessions[0]})

    assert answers == [f"in {folder}" for folder in folders]
    assert stage.hello["agentCapabilities"]["promptCapabilities"]["image"] is True
    with closing(sqlite3.connect(tmp_path / "coupler.db")) as database:
        assert {*database.execute("SELECT id FROM threads WHERE id IS NOT NULL")} == {(sessions[1],)}
    stage.close()
