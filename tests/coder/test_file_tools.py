"""Places outside of a session's directories that it may read: there, and nowhere else, and never to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.langchain.acting import Stage
from labs.langchain.desk import Desk

READER = '''
"""The obedient agent, in sessions that may read the directory `kept` beside their own."""
from pathlib import Path
from labs.langchain.graphs.obedient import agent as graph
from coupler import Session, serve

def agent_for(session: Session):
    session.readable_places.add(str(Path(session.cwd).parent / "kept"))
    return graph

serve(factory=agent_for)
'''


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reader")
    (directory / "reader.py").write_text(READER)
    made = Stage(directory / "reader.py", directory / "home")
    yield made
    made.close()


@pytest.fixture
def desk(stage, tmp_path: Path) -> Desk:
    files = {"kept/out.txt": "one\nneedle\n", "kept/deep/x.txt": "needle\n", "other/x.txt": "needle\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "kept" / "link").symlink_to(tmp_path / "other" / "x.txt")
    (tmp_path / "work").mkdir()
    return Desk(stage.client, tmp_path / "work")


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("read_file", {"path": "../kept/out.txt"}, "     1\tone\n     2\tneedle"),
        ("read_file", {"path": "{0}/kept/out.txt", "offset": 2}, "     2\tneedle"),
        ("search", {"pattern": "needle", "directory": "{0}/kept/out.txt"}, "{0}/kept/out.txt:2: needle"),
        (
            "search",
            {"pattern": "needle", "directory": "{0}/kept"},
            "{0}/kept/deep/x.txt:1: needle\n{0}/kept/out.txt:2: needle",
        ),
        ("find_files", {"glob": "*.txt", "directory": "{0}/kept"}, "{0}/kept/deep/x.txt\n{0}/kept/out.txt"),
        ("list_directory", {"path": "{0}/kept/deep"}, "x.txt (7 bytes)"),
    ],
)
def test_a_readable_place_is_read_and_searched_without_asking(desk, tmp_path, tool, arguments, expected):
    given = {name: _in(value, tmp_path) for name, value in arguments.items()}
    assert desk.does([tool, given]) == [["success", _in(expected, tmp_path)]]
    assert desk.asked == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "{0}/other/x.txt"}),
        ("read_file", {"path": "{0}/kept/link"}),
        ("read_file", {"path": "{0}/kept/../other/x.txt"}),
        ("search", {"pattern": "needle", "directory": "{0}"}),
        ("list_directory", {"path": "{0}"}),
    ],
)
def test_whatever_else_is_read_is_asked_about(desk, tmp_path, tool, arguments):
    given = {name: _in(value, tmp_path) for name, value in arguments.items()}
    ((status, content),) = desk.does([tool, given], answer="reject_once")
    assert status == "error"
    assert "was not done" in content
    assert len(desk.asked) == 1


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "{0}/kept/out.txt", "content": "x"}),
        ("write_file", {"path": "{0}/kept/new.txt", "content": "x"}),
        ("edit_file", {"path": "{0}/kept/out.txt", "edits": [{"old_text": "one", "new_text": "x"}]}),
        ("run_command", {"command": "ls", "directory": "{0}/kept"}),
    ],
)
def test_nothing_is_written_there(desk, tmp_path, tool, arguments):
    given = {name: _in(value, tmp_path) for name, value in arguments.items()}
    ((status, content),) = desk.does([tool, given])
    assert status == "error"
    assert "outside of the session's directories" in content
    assert desk.asked == []
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["deep", "link", "out.txt"]
    assert (tmp_path / "kept" / "out.txt").read_text() == "one\nneedle\n"


def _in(value, directory):
    return value.replace("{0}", str(directory)) if isinstance(value, str) else value
