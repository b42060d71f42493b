"""The program that looks for files and lines, in this process: what it finds, and what it passes over."""

import io
import json
import sys

import pytest

from coupler.bridges.langchain.editor import finding


@pytest.fixture
def find(tmp_path, monkeypatch):
    def find(glob="**", pattern=None, most=10, directory=tmp_path):
        task = {"directory": str(directory), "glob": glob, "pattern": pattern, "most": most}
        answer = io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(task)))
        monkeypatch.setattr(sys, "stdout", answer)
        finding.main()
        found, is_cut = json.loads(answer.getvalue())
        return [(path.removeprefix(f"{tmp_path}/"), line, text) for path, line, text in found], is_cut

    return find


@pytest.mark.parametrize(
    ("glob", "fits", "fits_not"),
    [
        ("*.py", ["a.py", "deep/b.py"], ["a.pyc"]),
        ("deep/*.py", ["deep/b.py"], ["a.py", "deep/er/b.py"]),
        ("**/*.py", ["a.py", "deep/er/b.py"], []),
        ("deep/**", ["deep/er/b.py"], ["a.py"]),
        ("?.py", ["a.py"], ["ab.py"]),
        ("a+b.txt", ["a+b.txt"], ["aab.txt"]),
    ],
)
def test_names_fit_a_pattern(find, tmp_path, glob, fits, fits_not):
    for name in (*fits, *fits_not):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(path for path, _, _ in find(glob)[0]) == sorted(fits)


def test_lines_have_their_numbers_and_are_cut(find, tmp_path):
    (tmp_path / "a.txt").write_text(f"no\nyes {'x' * 1000}\n")
    ((path, line, text),), is_cut = find(pattern="yes")
    assert (path, line, len(text), is_cut) == ("a.txt", 2, finding.LONGEST_LINE, False)


def test_what_is_too_much_is_cut_and_said(find, tmp_path):
    (tmp_path / "a.txt").write_text("x\n" * 5)
    found, is_cut = find(pattern="x", most=3)
    assert (len(found), is_cut) == (3, True)


def test_one_file_can_be_searched_alone(find, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.txt").write_text("x")
    assert find(pattern="x", directory=tmp_path / "a.txt")[0] == [("a.txt", 1, "x")]


def test_bytes_large_files_links_and_others_work_are_passed_over(find, tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "LARGEST", 100)
    (tmp_path / "bytes").write_bytes(b"x\0")
    (tmp_path / "large").write_text("x" * 101)
    (tmp_path / "real.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "a.js").write_text("x")
    assert find(pattern="x")[0] == [("real.txt", 1, "x")]


def test_a_file_that_goes_away_meanwhile_is_no_error(find, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x")
    monkeypatch.setattr(
        finding.Path, "read_bytes", lambda path: (_ for _ in ()).throw(FileNotFoundError(path))
    )
    assert find(pattern="x") == ([], False)
