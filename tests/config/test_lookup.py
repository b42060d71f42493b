"""Which files are found: from the session's directory upwards, and no further than the project goes."""

from __future__ import annotations

import os
import sys

import pytest

from coupler.config import ConfigError, load
from coupler.config.lookup import project_file, user_file
from coupler.runtime import directories

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs links")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def rules(config) -> list[str]:
    return [entry.text for entry in config.permissions.deny]


def says(name: str) -> str:
    return f"[permissions]\ndeny = ['{name}']"


def test_without_any_file_the_defaults_hold(place):
    config = place.load()
    assert (rules(config), config.project, config.notes) == ([], None, ())


def test_the_nearest_file_is_the_projects_and_takes_back_nothing_that_those_above_it_forbid(place):
    place.project_says(says("root"))
    place.project_says(says("near"), below="src")
    (place.project / "src" / "deep" / "er").mkdir(parents=True)

    config = place.load(place.project / "src" / "deep" / "er")

    assert rules(config) == ["root", "near"]
    assert config.project.path == str(place.project / "src" / "coupler.toml")
    assert rules(place.load(place.project)) == ["root"]


def test_a_file_above_the_nearest_one_cannot_loosen_either(place):
    place.project_says("[permissions]\nallow = ['root']")
    place.project_says(says("near"), below="src")

    config = place.load(place.project / "src")

    assert config.permissions.allow == ()
    assert [note.key for note in config.notes] == ["permissions.allow"]


def test_a_wrong_file_above_the_nearest_one_is_not_passed_over(place):
    place.project_says("permisions = 1")
    place.project_says(says("near"), below="src")

    with pytest.raises(ConfigError, match="unknown key `permisions`"):
        place.load(place.project / "src")


@pytest.mark.parametrize("git", ["directory", "file"])
def test_the_search_ends_at_the_repository_and_a_file_at_its_root_counts(place, git):
    write(place.project.parent / "coupler.toml", says("outside"))
    inner = place.project / "inner"
    (inner / "src").mkdir(parents=True)
    if git == "file":
        (inner / ".git").write_text("gitdir: elsewhere")
    else:
        (inner / ".git").mkdir()

    assert rules(place.load(inner / "src")) == []
    write(inner / "coupler.toml", says("inner"))
    assert rules(place.load(inner / "src")) == ["inner"]


def test_the_search_ends_at_the_users_home(place):
    (place.project / ".git").rmdir()
    write(place.home.parent / "coupler.toml", says("above home"))

    assert rules(place.load()) == []
    write(place.home / "coupler.toml", says("home"))
    assert rules(place.load()) == ["home"]


def test_without_home_and_repository_the_search_goes_up_to_the_end(place):
    (place.project / ".git").rmdir()
    write(place.home.parent / "coupler.toml", says("far above"))
    environ = {**place.environ, "HOME": str(place.home / "other"), "USERPROFILE": str(place.home / "other")}

    assert rules(place.load(environ=environ)) == ["far above"]


def test_the_directory_of_the_process_plays_no_part(place, monkeypatch):
    place.project_says(says("project"))
    other = place.home / "other"
    (other / ".git").mkdir(parents=True)

    monkeypatch.chdir(place.project)

    assert rules(place.load(other)) == []
    for relative in (".", "", "src", "a\0b", "/a\0b"):
        with pytest.raises(ValueError, match="absolute directory"):
            load(relative, environ=place.environ)


def test_two_sessions_in_two_projects_see_two_configurations(place):
    place.project_says(says("one"))
    other = place.home / "work" / "other"
    write(other / "coupler.toml", says("two"))

    assert [rules(place.load()), rules(place.load(other)), rules(place.load())] == [["one"], ["two"], ["one"]]


def test_a_session_without_a_directory_has_the_users_configuration(place, monkeypatch):
    place.user_says(says("user"))
    place.project_says(says("project"))
    monkeypatch.chdir(place.project)

    assert rules(load(None, environ=place.environ)) == ["user"]


def test_the_users_own_file_is_no_project_file(place):
    place.user_says("[permissions]\nallow = ['read']\ndeny = ['user']")

    config = place.load(place.own)

    assert (rules(config), config.notes, config.project) == (["user"], (), None)


@posix
def test_a_session_in_a_linked_directory_belongs_to_the_real_project(place):
    place.project_says(says("real"))
    (place.project / "src").mkdir()
    link = place.home / "link"
    link.symlink_to(place.project / "src")

    assert rules(place.load(link)) == ["real"]


@posix
def test_a_link_inside_of_the_repository_is_followed(place):
    write(place.project / "settings" / "c.toml", says("linked"))
    (place.project / "src").mkdir()
    (place.project / "src" / "coupler.toml").symlink_to("../settings/c.toml")

    config = place.load(place.project / "src")

    assert rules(config) == ["linked"]
    assert config.project.path == str(place.project / "src" / "coupler.toml")
    assert config.project.real_path == str(place.project / "settings" / "c.toml")


@posix
def test_the_users_file_may_be_a_link_to_anywhere(place):
    write(place.home / "dotfiles" / "c.toml", says("dotfiles"))
    (place.own / "coupler.toml").symlink_to(place.home / "dotfiles" / "c.toml")

    assert rules(place.load()) == ["dotfiles"]


def test_a_directory_that_is_not_there_any_more_is_no_trouble(place):
    place.project_says(says("root"))
    assert rules(place.load(place.project / "gone" / "for" / "good")) == ["root"]


def test_a_file_in_the_way_is_no_trouble(place):
    place.project_says(says("root"))
    write(place.project / "file", "")
    assert rules(place.load(place.project / "file" / "below")) == ["root"]


class TestTheUsersDirectory:
    @pytest.mark.parametrize(
        ("platform", "variables", "directory"),
        [
            ("linux", {}, "/home/somebody/.config/coupler"),
            ("linux", {"XDG_CONFIG_HOME": "/c"}, "/c/coupler"),
            ("darwin", {}, "/home/somebody/Library/Application Support/coupler"),
            ("win32", {"APPDATA": "/roaming"}, "/roaming/coupler"),
            ("win32", {"USERPROFILE": "/home/somebody"}, "/home/somebody/coupler"),
            ("linux", {"COUPLER_HOME": "/own"}, "/own"),
        ],
    )
    def test_each_system_has_its_own_place(self, monkeypatch, platform, variables, directory):
        monkeypatch.setattr(sys, "platform", platform)
        environ = {"HOME": "/home/somebody", **variables}
        assert user_file(environ) == f"{directory}{os.sep}coupler.toml"

    def test_the_process_own_variables_give_the_same(self, monkeypatch):
        monkeypatch.delenv("COUPLER_HOME")
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        assert directories.config_directory(os.environ) == directories.config_directory(dict(os.environ))

    def test_a_user_without_a_home_has_no_file(self, monkeypatch, tmp_path):
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        assert user_file({}) is None
        assert project_file(str(tmp_path), {}) is None
        assert load(None, environ={}).permissions.deny == ()


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_absent(place, monkeypatch):
    def refuse(path, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "lstat", refuse)
    monkeypatch.setattr(os.path, "realpath", str)

    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        project_file(str(place.project), place.environ)
    with pytest.raises(ConfigError, match="cannot be used: Permission denied"):
        load(None, environ=place.environ)
