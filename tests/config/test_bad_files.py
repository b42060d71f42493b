"""Files that are wrong: each is refused with the place and what to do, and none harms."""

from __future__ import annotations

import os
import pickle
import sys
import time

import pytest

from coupler.config import ConfigError
from coupler.config.files import LARGEST_FILE
from coupler.config.lookup import MOST_PROBLEMS

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs links, pipes and modes of POSIX")

SYNTAX = [
    ("[permissions\n", "line 1, column 13: expected ']' at the end of a table declaration"),
    ("[permissions]\ndeny = [\n", "line 2, column 9: invalid value"),
    ("[permissions]\ndeny = nonsense", "line 2, column 8: invalid value"),
    ("[permissions]\ndeny\n", "line 2, column 5: expected '=' after a key"),
    ("[a]\n[a]\n", "line 2, column 3: cannot declare ('a',) twice"),
    ("a = 1\na = 2", "line 2, column 6: cannot overwrite a value"),
    ('a = "x\n"', "line 1, column 7: illegal character '\\n'"),
    ('a = "\x1b[31m"', "line 1, column 6: illegal character '\\x1b'"),
    ('a = "\\q"', "line 1, column 8: unescaped '\\' in a string"),
    ("a = 1\rb = 2", "line 1, column 6: expected newline or end of document"),
    ("a = " + "9" * 5000, "a number in it is too long"),
    ("a = " + "[" * 5000, "line 1, column 37: lists and tables are nested more than 32 deep"),
    ("\na" + ".a" * 5000 + " = 1", "line 2, column 1: a key has more than 16 parts"),
    (b"ok = 1\n\xc3\xa4 = '\xff'", "line 2, column 6: it is not UTF-8"),
    ("a = 1".encode("utf-16"), "line 1, column 1: it is not UTF-8"),
    (b"a = 1\n\x00", "line 2, column 1: invalid statement"),
    ('a = """never ends', "unterminated string"),
    ("a = { b = 1", "line 1, column 12: unclosed inline table"),
]


@pytest.mark.parametrize(("text", "sentence"), SYNTAX)
@pytest.mark.parametrize("whose", ["user", "project"])
def test_what_is_no_toml_is_refused_with_line_and_column(place, text, sentence, whose):
    path = place.user_says(text) if whose == "user" else place.project_says(text)

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert caught.value.kind == "syntax"
    assert str(caught.value).startswith(str(path))
    assert sentence in str(caught.value)


INVALID = [
    ("\n\npermisions = 1", "unknown key `permisions` in FILE line 3; did you mean `permissions`?"),
    ("[Permissions]", "unknown key `Permissions` in FILE line 1; did you mean `permissions`?"),
    ("[permission]\ndeny = []", "unknown key `permission` in FILE line 1; did you mean `permissions`?"),
    ("\ndeny = []", "unknown key `deny` in FILE line 2; did you mean `permissions.deny`?"),
    ("[permissions]\ndenny = []", "unknown key `permissions.denny` in FILE line 2; did you mean `deny`?"),
    ("permissions.denny = []", "unknown key `permissions.denny` in FILE line 1; did you mean `deny`?"),
    ("permissions = {\tdenny = [] }", "unknown key `permissions.denny` in FILE line 1; did you mean `deny`?"),
    ("[permissions]\nx = 1", "unknown key `permissions.x` in FILE line 2; use one of `allow`, `ask`, `deny`"),
    ("[agent.coder]", "unknown key `agent` in FILE line 1; did you mean `agents`?"),
    (
        "[zebra.coder]",
        "unknown key `zebra` in FILE line 1; use one of `permissions`, `agents`, `mcp`, `coder`,",
    ),
    ("[[zzzzz]]\n[[zzzzz]]", "unknown key `zzzzz` in FILE line 1; use one of `permissions`"),
    ("[sessions]\nkeep_days = 3", "unknown key `sessions.keep_days` in FILE line 2; use one of `store`"),
    ('"permissions.deny" = []', 'unknown key `"permissions.deny"` in FILE line 1; did you mean'),
    ('[permissions]\n"" = 1', 'unknown key `permissions.""` in FILE line 2; use one of'),
    ('"\\u001b[31m" = 1', 'unknown key `"\\u001b[31m"` in FILE line 1; use one of'),
    ('"\\u202e" = 1', 'unknown key `"\\u202e"` in FILE line 1; use one of'),
    (f"{'x' * 5000} = 1", f"unknown key `{'x' * 59}…` in FILE line 1; use one of"),
    ("permissions = 3", "`permissions` in FILE line 1 must be a table, not a number"),
    ("[[permissions]]", "`permissions` in FILE line 1 must be a table, not a list"),
    ("[permissions]\ndeny = 'read'", "`permissions.deny` in FILE line 2 must be a list of rules, not a text"),
    ("[permissions.deny]", "`permissions.deny` in FILE line 1 must be a list of rules, not a table"),
    (
        "[permissions]\nask = true",
        "`permissions.ask` in FILE line 2 must be a list of rules, not true or false",
    ),
    ("[permissions]\nask = 2020-01-01", "must be a list of rules, not a date or time"),
    (
        "[permissions]\ndeny = [\n'read',\n\n3]",
        "item 2 of `permissions.deny` in FILE line 5 must be a text, not a number",
    ),
    (
        "[permissions]\ndeny = [['a']]",
        "item 1 of `permissions.deny` in FILE line 2 must be a text, not a list",
    ),
    ("[permissions]\ndeny = ['a', ' ']", "item 2 of `permissions.deny` in FILE line 2 must not be empty"),
    ('[permissions]\ndeny = ["a\\nb"]', "item 1 of `permissions.deny` in FILE line 2 must be one line"),
    ('[permissions]\ndeny = ["a\\u0000"]', "must be one line without control characters"),
    (
        "[secrets]\nnames = 'TOKEN'",
        "`secrets.names` in FILE line 2 must be a list of variable names, not a text",
    ),
    ("[secrets]\nnames = ['A=b']", "item 1 of `secrets.names` in FILE line 2 must be a variable's name"),
    ("[secrets]\nnames = ['1A']", "item 1 of `secrets.names` in FILE line 2 must be a variable's name"),
    ("[secrets]\nnames = ['Ä']", "must be a variable's name"),
    ("[secrets]\nname = ['A']", "unknown key `secrets.name` in FILE line 2; did you mean `names`?"),
    (
        "[sessions]\nsynchronous = 'ful'",
        '`sessions.synchronous` in FILE line 2 must be "normal" or "full"; did you mean `full`?',
    ),
    (
        "[sessions]\nsynchronous = 'FULL'",
        '`sessions.synchronous` in FILE line 2 must be "normal" or "full"; did you mean `full`?',
    ),
    ("[sessions]\nsynchronous = 'xxxx'", 'must be "normal" or "full"'),
    ("[sessions]\nsynchronous = 1", 'must be "normal" or "full", not a number'),
    ("[sessions]\nstore = 1", "`sessions.store` in FILE line 2 must be a path, not a number"),
    ("[sessions]\nstore = ''", "must be a path: it is empty, or has control characters"),
    ('[sessions]\nstore = "a\\u0000b"', "must be a path: it is empty, or has control characters"),
    ("[sessions]\nstore = '~root/x.db'", "names another user's home: write the path whole"),
]


@pytest.mark.parametrize(("text", "sentence"), INVALID)
@pytest.mark.parametrize("whose", ["user", "project"])
def test_a_wrong_key_or_value_is_refused_with_its_line(place, text, sentence, whose):
    path = place.user_says(text) if whose == "user" else place.project_says(text)

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert caught.value.kind == "invalid"
    assert sentence.replace("FILE", str(path)) in str(caught.value)


def test_a_value_that_may_be_a_secret_is_not_repeated(place):
    place.project_says("[secrets]\nnames = ['sk-live-1234567890']\n[sessions]\nsynchronous = 'hunter2'")

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert len(caught.value.problems) == 2
    assert "sk-live" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_all_problems_are_told_at_once_but_not_too_many(place):
    place.project_says("\n".join(f"zz{number} = 1" for number in range(MOST_PROBLEMS + 5)))

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert len(caught.value.problems) == MOST_PROBLEMS + 5
    assert str(caught.value).count("\n") == MOST_PROBLEMS
    assert str(caught.value).endswith("and 5 more problems")


def test_an_error_survives_its_way_to_another_process(place):
    place.project_says("zz = 1")
    with pytest.raises(ConfigError) as caught:
        place.load()

    again = pickle.loads(pickle.dumps(caught.value))

    assert (again.kind, again.problems, str(again)) == ("invalid", caught.value.problems, str(caught.value))


@pytest.mark.parametrize("section", ["agents.x", "agents.x.hooks", "mcp.x"])
def test_very_many_unknown_keys_of_a_table_take_no_time(place, section):
    place.project_says(f"[{section}]\n" + "\n".join(f"commnd{number} = 1" for number in range(19_000)))

    begun = time.process_time()
    with pytest.raises(ConfigError) as caught:
        place.load()

    assert len(caught.value.problems) >= 19_000
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "\ufeff[permissions]\ndeny = []\n",
        "[permissions]\r\ndeny = [\r\n]\r\n",
        "[permissions]",
        "permissions = {}",
    ],
)
def test_unusual_but_right_files_are_read(place, text):
    place.user_says(text)
    place.project_says(text)
    assert place.load().notes == ()


def test_a_file_of_the_largest_size_is_read_and_a_larger_one_is_not(place):
    place.project_says("#" * LARGEST_FILE)
    place.load()

    path = place.project_says("#" * (LARGEST_FILE + 1))
    with pytest.raises(ConfigError, match="cannot be used: it is larger than 1 MiB") as caught:
        place.load()
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    "text",
    [
        "a = [" + "1," * 400_000 + "]",
        "\n".join(f"k{number} = 1" for number in range(50_000)),
        "[[a]]\n" * 50_000,
    ],
)
def test_a_file_of_very_many_values_is_refused_before_it_is_parsed(place, text):
    path = place.project_says(text)
    with pytest.raises(ConfigError, match="there are more than 20000 keys and items") as caught:
        place.load()
    assert str(caught.value).startswith(f"{path} line ")


class TestWhatIsNoFile:
    @pytest.mark.parametrize("whose", ["user", "project"])
    def test_a_directory(self, place, whose):
        directory = place.own if whose == "user" else place.project
        (directory / "coupler.toml").mkdir()
        with pytest.raises(ConfigError, match="cannot be used: it is not a regular file"):
            place.load()

    @posix
    @pytest.mark.parametrize("whose", ["user", "project"])
    def test_a_pipe_does_not_hold_anybody_up(self, place, whose):
        directory = place.own if whose == "user" else place.project
        os.mkfifo(directory / "coupler.toml")
        with pytest.raises(ConfigError, match="cannot be used: it is not a regular file"):
            place.load()

    @posix
    @pytest.mark.parametrize("target", ["/etc/passwd", "../../../secret.toml", "/dev/zero", ".."])
    def test_a_link_out_of_the_project(self, place, target):
        (place.home.parent / "secret.toml").write_text("password = 1")
        (place.project / "coupler.toml").symlink_to(target)
        with pytest.raises(ConfigError, match="it is a link that leads out of the project") as caught:
            place.load()
        assert "password" not in str(caught.value)

    @posix
    def test_a_link_to_a_sibling_whose_name_begins_alike(self, place):
        other = place.project.with_name("app2")
        other.mkdir()
        (other / "x.toml").write_text("")
        (place.project / "coupler.toml").symlink_to(other / "x.toml")
        with pytest.raises(ConfigError, match="leads out of the project"):
            place.load()

    @posix
    def test_a_link_through_a_linked_directory(self, place):
        (place.home / "elsewhere").mkdir()
        (place.home / "elsewhere" / "x.toml").write_text("")
        (place.project / "inside").symlink_to(place.home / "elsewhere")
        (place.project / "coupler.toml").symlink_to("inside/x.toml")
        with pytest.raises(ConfigError, match="leads out of the project"):
            place.load()

    @posix
    @pytest.mark.parametrize("target", ["gone.toml", "coupler.toml"])
    def test_a_link_to_nowhere(self, place, target):
        (place.project / "coupler.toml").symlink_to(target)
        with pytest.raises(ConfigError, match="it is a link that leads nowhere"):
            place.load()

    @posix
    def test_a_link_to_a_directory_of_the_project(self, place):
        (place.project / "coupler.toml").symlink_to(".git")
        with pytest.raises(ConfigError, match="it is not a regular file"):
            place.load()

    @posix
    @pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read(self, place):
        place.project_says("").chmod(0)
        with pytest.raises(ConfigError, match="cannot be used: Permission denied"):
            place.load()
