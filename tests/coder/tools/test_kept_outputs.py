"""Outputs that are too long for a model: where they are kept, how long, and what the model gets instead."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from coupler.agent.output import SessionRedactor
from coupler.coder.tools import outputs as kept
from coupler.coder.tools.outputs import SessionOutputs, delete_old_outputs, delete_outputs, outputs_directory
from coupler.runtime.directories import NoHomeError


class TestForTheModel:
    def test_a_long_result_of_any_tool_is_cut_and_named(self, desk):
        at = desk()
        ((status, told),) = at.does(["repeat", {"text": "a line of the result\n", "times": 3000}])

        assert status == "success"
        assert told.startswith("a line of the result\n")
        assert "[… 38,000 characters left out …]" in told
        assert len(told) < 26_000
        path = Path(re.search(r"all of it is in (\S+),", told)[1])
        assert path.read_text() == "a line of the result\n" * 3000
        assert path.name.startswith("repeat-")

        ((status, part),) = at.does(["read_file", {"path": str(path), "offset": 2999}])
        assert (status, part.count("a line of the result")) == ("success", 2)

    def test_what_is_short_is_left_as_it_is(self, desk):
        assert desk().does(["repeat", {"text": "x", "times": 30_000}]) == [["success", "x" * 30_000]]

    def test_of_several_blocks_only_the_long_one_is_cut(self, desk):
        ((_, blocks),) = desk().does(["repeat", {"text": "x", "times": 30_001, "blocks": True}])
        long, short = (block["text"] for block in blocks)
        assert short == "short"
        assert len(long) < 26_000
        assert "all of it is in" in long

    def test_a_file_that_is_read_in_parts_is_not_kept_once_more(self, desk, project):
        (project / "a.txt").write_text((("0123456789" * 9) + "\n") * 1500)
        ((_, told),) = desk().does(["read_file", {"path": "a.txt"}])
        assert "all of it is in" not in told

    def test_where_nothing_can_be_kept_the_model_gets_both_ends_all_the_same(self, desk):
        at = desk(env={"NOTHING": "kept"})
        (at.home / "outputs").write_text("in the way")
        ((status, told),) = at.does(["repeat", {"text": "x", "times": 50_000}])
        assert status == "success"
        assert told.endswith("(this is the beginning and the end; the rest could not be kept)")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("COUPLER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def session(id="s1"):
    return SimpleNamespace(id=id, secrets=SessionRedactor(), readable_places=set())


def _no_home():
    raise NoHomeError("this user has no home directory")


class TestOnTheDisk:
    def test_a_session_may_read_its_own_and_no_others(self, home):
        one = session()
        SessionOutputs(one)
        assert one.readable_places == {str(home / "outputs" / "s1")}

    def test_an_id_that_is_no_name_leads_nowhere_else(self, home):
        for id in ("../../etc", "a/b", ".", "", "x" * 300):
            assert outputs_directory(id).parent == home / "outputs"
            assert outputs_directory(id).name not in ("", ".", "..")

    def test_a_user_without_a_home_keeps_nothing(self, monkeypatch):
        monkeypatch.delenv("COUPLER_HOME", raising=False)
        monkeypatch.setattr(kept, "data_directory", _no_home)
        assert SessionOutputs(session()).keep("text", "tool") is None

    def test_a_character_that_comes_in_two_pieces_stays_one(self, home):
        file = SessionOutputs(session()).begin("tool")
        for piece in ("größe\n".encode()[:3], "größe\n".encode()[3:], b"\xff\0"):
            file.append(piece)
        file.close()
        assert Path(file.path).read_text() == "größe\n\N{REPLACEMENT CHARACTER}\N{SYMBOL FOR NULL}"

    def test_a_secret_that_comes_in_two_pieces_is_hidden(self, home):
        one = session()
        one.secrets.add({"KEY": "abcdefghijkl"})
        file = SessionOutputs(one).begin("tool")
        for piece in (b"the key is abcd", b"efghijkl, see"):
            file.append(piece)
        file.close()
        assert Path(file.path).read_text() == "the key is [secret:KEY], see"

    def test_of_what_is_too_large_both_ends_are_kept(self, home, monkeypatch):
        monkeypatch.setattr(kept, "LARGEST", 100)
        monkeypatch.setattr(kept, "LAST", 20)
        path = SessionOutputs(session()).keep("".join(f"line {n}\n" for n in range(100)), "tool")
        text = Path(path).read_text()
        assert text.startswith("line 0\nline 1\n")
        assert text.endswith("bytes left out …]\nline 98\nline 99\n")

    def test_the_oldest_of_a_session_make_room(self, home, monkeypatch):
        monkeypatch.setattr(kept, "LARGEST", 1000)
        monkeypatch.setattr(kept, "MOST_OF_SESSION", 2500)
        outputs = SessionOutputs(session())
        paths = []
        for number in range(4):
            paths.append(Path(outputs.keep("x" * 900, "tool")))
            os.utime(paths[-1], (1000 + number, 1000 + number))
        assert [path.exists() for path in paths] == [False, False, True, True]

    def test_what_is_old_is_deleted_and_what_is_not_stays(self, home):
        old, new = (Path(SessionOutputs(session(id)).keep("text", "tool")) for id in ("old", "new"))
        before = time.time() - 8 * 24 * 3600
        os.utime(old, (before, before))
        os.utime(old.parent, (before, before))
        delete_old_outputs()
        assert (old.exists(), new.exists()) == (False, True)

    def test_they_are_deleted_with_the_session(self, home):
        one, two = (Path(SessionOutputs(session(id)).keep("text", "tool")) for id in ("one", "two"))
        delete_outputs("one")
        delete_outputs("never-kept-anything")
        assert (one.parent.exists(), two.exists()) == (False, True)

    def test_a_disk_that_is_full_costs_the_file_and_nothing_else(self, home, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        file = SessionOutputs(session()).begin("tool")
        path = Path(file.path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            file.append(b"text")
        file.append(b"more")
        file.close()
        assert (file.path, path.exists()) == (None, False)
