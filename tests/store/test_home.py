"""Where things are kept, on each system."""

import os
import subprocess
import sys

import pytest

from coupler.runtime import directories


@pytest.fixture
def nowhere(monkeypatch):
    for name in ("COUPLER_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")


@pytest.mark.parametrize(
    ("platform", "variables", "data", "cache"),
    [
        ("linux", {}, "~/.local/share/coupler", "~/.cache/coupler"),
        ("linux", {"XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/c"}, "/d/coupler", "/c/coupler"),
        ("darwin", {}, "~/Library/Application Support/coupler", "~/Library/Caches/coupler"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/coupler", "/local/coupler"),
        ("win32", {}, "~/coupler", "~/coupler"),
        ("linux", {"COUPLER_HOME": "/own"}, "/own", "/own/cache"),
    ],
)
def test_each_system_has_its_own_places(nowhere, monkeypatch, platform, variables, data, cache):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)

    assert directories.data_directory() == data.replace("~", "/home/somebody")
    assert directories.cache_directory() == cache.replace("~", "/home/somebody")
    assert directories.store_file() == f"{directories.data_directory()}{os.sep}coupler.db"


def test_a_relative_home_is_made_absolute_for_data(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUPLER_HOME", "here")

    assert directories.data_directory() == str(tmp_path / "here")


def test_without_a_home_data_has_no_place_and_the_message_says_what_to_set(nowhere, monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)

    assert directories.cache_directory() is None
    with pytest.raises(directories.NoHomeError, match="set COUPLER_HOME"):
        directories.data_directory()


def test_importing_the_store_brings_no_database_along():
    program = "import sys; sys.modules['sqlite3'] = None; import coupler.runtime.directories, coupler.store"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
