"""What earlier starts learned: where it is kept, and what it depends on."""

import json
import os
import sys
import types

import pytest

from coupler.agent.startup import early_answer as module
from coupler.agent.startup.early_answer import StartupCache, StartupRecord
from coupler.agent.startup.serve_options import ServeOptions

OPTIONS = ServeOptions()
INTRODUCTION = '{"protocolVersion":1}'


@pytest.fixture
def memory(coupler_home, monkeypatch):
    # pytest changes this one between the preparation of a test and the test itself.
    passing = module._PASSING_VARIABLES | {"PYTEST_CURRENT_TEST"}
    monkeypatch.setattr(module, "_PASSING_VARIABLES", passing)
    return StartupCache("app.py:agent", OPTIONS)


def test_nothing_is_known_before_anything_was_learned(memory):
    assert memory.recall() is None


def test_what_was_learned_is_recalled_by_another_start(memory):
    memory.remember(INTRODUCTION, [])

    assert StartupCache("app.py:agent", OPTIONS).recall() == StartupRecord(INTRODUCTION, {}, [])


def test_what_was_forgotten_is_not_known_and_may_be_forgotten_again(memory):
    memory.remember(INTRODUCTION, [])
    memory.forget()
    memory.forget()

    assert memory.recall() is None


def test_the_record_is_readable_by_its_owner_alone(memory, coupler_home):
    memory.remember(INTRODUCTION, [])

    assert (coupler_home / "cache" / "introductions").stat().st_mode & 0o077 == 0


def test_no_draft_is_left(memory, coupler_home):
    memory.remember(INTRODUCTION, [])

    assert [file.suffix for file in (coupler_home / "cache" / "introductions").iterdir()] == [".json"]


@pytest.mark.parametrize(
    "other",
    [
        lambda: StartupCache("app.py:other", OPTIONS),
        lambda: StartupCache("elsewhere/app.py:agent", OPTIONS),
        lambda: StartupCache("app.py:agent", OPTIONS._replace(name="x")),
    ],
)
def test_another_target_is_another_record(memory, other):
    memory.remember(INTRODUCTION, [])

    assert other().recall() is None


@pytest.mark.parametrize(("words", "known"), [("package.module", False), ("/project/app.py", True)])
def test_a_module_depends_on_the_directory_and_a_file_on_its_path(
    memory, tmp_path, monkeypatch, words, known
):
    StartupCache(words, OPTIONS).remember(INTRODUCTION, [])

    monkeypatch.chdir(tmp_path)

    assert (StartupCache(words, OPTIONS).recall() is not None) is known


@pytest.mark.parametrize("variable", ["KITTY_LISTEN_ON", "VSCODE_CWD", "WEZTERM_CONFIG_FILE", "NVIM"])
def test_the_window_does_not_count(memory, monkeypatch, variable):
    memory.remember(INTRODUCTION, [])

    monkeypatch.setenv(variable, "another")

    assert StartupCache("app.py:agent", OPTIONS).recall() is not None


def test_only_the_newest_records_are_kept(memory, coupler_home, monkeypatch):
    monkeypatch.setattr(module, "MOST_RECORDS", 2)
    for time, name in enumerate(["first", "second"]):
        StartupCache(name, OPTIONS).remember(INTRODUCTION, [])
        for file in (coupler_home / "cache" / "introductions").iterdir():
            os.utime(file, (time, time)) if file.stat().st_mtime > 10 else None

    memory.remember(INTRODUCTION, [])

    assert StartupCache("first", OPTIONS).recall() is None
    assert StartupCache("second", OPTIONS).recall() is not None
    assert memory.recall() is not None


def test_without_a_home_nothing_is_remembered(monkeypatch, tmp_path):
    for name in ("COUPLER_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    memory = StartupCache("app.py", OPTIONS)

    memory.remember(INTRODUCTION, [])
    memory.forget()

    assert memory.recall() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["site-packages", "dist-packages"])
@pytest.mark.parametrize("change", ["installed", "gone"])
def test_installed_packages_count(coupler_home, tmp_path, monkeypatch, change, place):
    packages = tmp_path / place
    packages.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    StartupCache("app.py", OPTIONS).remember(INTRODUCTION, [])

    if change == "gone":
        packages.rmdir()
    else:
        os.utime(packages, (1, 1))

    assert StartupCache("app.py", OPTIONS).recall() is None


def test_an_environment_that_is_no_text_is_no_obstacle(memory, monkeypatch):
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\xfe"))

    StartupCache("app.py", OPTIONS).remember(INTRODUCTION, [])

    assert StartupCache("app.py", OPTIONS).recall() is not None


class TestSortingOut:
    @pytest.fixture
    def imported(self, tmp_path, monkeypatch):
        def add(name, origin):
            made = types.ModuleType(name)
            made.__file__ = origin
            monkeypatch.setitem(sys.modules, name, made)
            return name

        return add

    def sorted_out(self, memory, *names):
        memory.remember(INTRODUCTION, list(names))
        record = memory.recall()
        return record and (sorted(record.files), record.packages)

    def test_the_projects_own_files_are_told_from_packages_and_the_standard_library(
        self, memory, imported, tmp_path
    ):
        (tmp_path / "own.py").write_text("")
        names = [
            imported("own", str(tmp_path / "own.py")),
            imported("package", "/venv/lib/python3/site-packages/package/__init__.py"),
            imported("system", "/usr/lib/python3/dist-packages/system.py"),
            "json",
            "sys",
        ]

        assert self.sorted_out(memory, *names) == ([str(tmp_path / "own.py")], ["package", "system"])

    def test_a_project_below_the_interpreters_prefix_is_a_project(
        self, memory, imported, tmp_path, monkeypatch
    ):
        """Containers put the code into /usr/src, and Python into /usr."""
        monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
        (tmp_path / "own.py").write_text("")

        assert self.sorted_out(memory, imported("own", str(tmp_path / "own.py"))) == (
            [str(tmp_path / "own.py")],
            [],
        )

    def test_odd_modules_are_left_alone(self, memory, imported, monkeypatch):
        class Lazy(types.ModuleType):
            def __getattr__(self, name):
                raise ImportError("not yet")

        monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
        monkeypatch.setitem(sys.modules, "nothing", None)
        monkeypatch.setitem(sys.modules, "slots", object())

        names = ["lazy", "nothing", "slots", "gone", imported("number", 5)]
        assert self.sorted_out(memory, *names) == ([], [])

    def test_a_file_that_cannot_be_read_again_is_no_record(self, memory, imported, tmp_path):
        assert self.sorted_out(memory, imported("zipped", str(tmp_path / "a.zip" / "zipped.py"))) is None


class TestPlaces:
    @pytest.mark.parametrize(
        ("platform", "variables", "expected"),
        [
            ("linux", {}, "HOME/.cache/coupler/introductions"),
            ("linux", {"XDG_CACHE_HOME": "/cache"}, "/cache/coupler/introductions"),
            ("darwin", {}, "HOME/Library/Caches/coupler/introductions"),
            ("win32", {"LOCALAPPDATA": "/local"}, "/local/coupler/introductions"),
            ("win32", {}, "HOME/coupler/introductions"),
            ("linux", {"COUPLER_HOME": "/own"}, "/own/cache/introductions"),
        ],
    )
    def test_each_system_has_its_own(self, monkeypatch, platform, variables, expected):
        for name in ("COUPLER_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOME", "/home/somebody")
        monkeypatch.setattr(sys, "platform", platform)

        assert module._directory() == expected.replace("HOME", "/home/somebody")


def test_a_record_is_plain_json(memory, coupler_home):
    memory.remember(INTRODUCTION, ["json"])

    (file,) = (coupler_home / "cache" / "introductions").iterdir()
    kept = {"introduction": INTRODUCTION, "files": {}, "packages": [], "forecast": None}
    assert json.loads(file.read_text()) == kept
