"""What holds for a session: who wins, who may say what, and when files are read again."""

from __future__ import annotations

import os
import time
from operator import attrgetter
from typing import Annotated

import msgspec
import pytest

from coupler.config import ConfigError, ListItem, Origin, load
from coupler.config import files as config_file
from coupler.config.config import Config
from coupler.config.keys import Settings, schema_of
from coupler.config.shapes import File, Setting, entries, one_of
from tables import table


class Server(msgspec.Struct, frozen=True):
    """A section that Coupler does not have."""

    command: Annotated[
        str | None,
        Setting("A made-up command.", shape=File(), setter="trusted project", variable="MADE_UP"),
    ] = None
    colour: Annotated[str, Setting("A made-up colour.", shape=one_of("red", "blue"), setter="project")] = (
        "blue"
    )
    hooks: Annotated[
        tuple[ListItem, ...],
        Setting("Made-up hooks.", shape=entries("a list of hooks"), setter="trusted project"),
    ] = ()


class MadeUp(Config, frozen=True, kw_only=True, eq=False):
    """A configuration that has it."""

    server: Server = Server()


class TrustedOnes:
    """Trusts exactly what it is told, and remembers what it was asked."""

    def __init__(self, *trusted: tuple[str, bytes]) -> None:
        self.trusted = trusted
        self.asked: list[tuple[str, bytes]] = []

    def is_trusted(self, path: str, content: bytes) -> bool:
        self.asked.append((path, content))
        return (path, content) in self.trusted


def texts(entries) -> list[str]:
    return [entry.text for entry in entries]


class TestPrecedence:
    def test_rules_of_both_files_hold_together_each_with_its_origin(self, place):
        user = place.user_says("[permissions]\nallow = ['read']\ndeny = [\n 'one',\n 'two']")
        project = place.project_says("[permissions]\nask = ['fetch']\n\ndeny = ['three']")

        config = place.load()

        assert [(entry.text, entry.origin) for entry in config.permissions.deny] == [
            ("one", Origin("user", str(user), 4)),
            ("two", Origin("user", str(user), 5)),
            ("three", Origin("project", str(project), 4)),
        ]
        assert (texts(config.permissions.allow), texts(config.permissions.ask)) == (["read"], ["fetch"])
        assert config.permissions.deny[2].origin.directory == str(place.project)
        assert str(config.permissions.deny[2].origin) == f"{project} line 4"
        assert config.settings["permissions.deny"].origin.layer == "project"
        assert config.settings["permissions.allow"].origin == Origin("user", str(user), 2)

    def test_what_nobody_set_has_its_default(self, place):
        config = place.load()

        keys = [key.name for key in schema_of(Settings).keys]
        of_coder = [name for name in keys if name.startswith("coder.")]
        others = [name for name in keys if name not in of_coder]
        assert [attrgetter(name)(config) for name in others] == [
            (),
            (),
            (),
            (),
            (),
            (),
            None,
            "normal",
            None,
            None,
        ]
        settings_of_models = [None, None, None]
        settings_of_search = [None, None, None]
        limits = [300, 60, 1]
        assert [attrgetter(name)(config) for name in of_coder] == [
            None,
            None,
            None,
            (),
            *settings_of_models,
            *limits,
            "interactive",
            "off",
            True,
            (),
            (),
            *settings_of_search,
        ]
        assert config.settings == {}

    @pytest.mark.parametrize(
        ("variable", "given", "value", "origin"),
        [
            ("", None, "full", "user"),
            ("normal", None, "normal", "environment"),
            ("full", "normal", "normal", "command line"),
        ],
    )
    def test_the_command_line_wins_over_the_environment_and_that_over_the_user(
        self, place, variable, given, value, origin
    ):
        place.user_says("[sessions]\nsynchronous = 'full'")
        environ = {**place.environ, "COUPLER_SYNCHRONOUS": variable}
        command_line = {} if given is None else {"sessions.synchronous": given}

        config = place.load(environ=environ, command_line=command_line)

        assert (config.sessions.synchronous, config.settings["sessions.synchronous"].origin.layer) == (
            value,
            origin,
        )

    def test_the_project_wins_over_the_user_where_it_may_and_the_environment_over_both(self, place):
        place.user_says("[server]\ncolour = 'red'\ncommand = '/user'")
        content = b"[server]\ncolour = 'blue'\ncommand = '/project'"
        path = place.project_says(content)
        trust = TrustedOnes((str(path), content))

        config = place.load(trust=trust, kind=MadeUp)
        assert (config.server.colour, config.server.command) == ("blue", os.path.normpath("/project"))
        config = place.load(trust=trust, kind=MadeUp, environ={**place.environ, "MADE_UP": "/variable"})
        assert (config.server.command, str(config.settings["server.command"].origin)) == (
            os.path.normpath("/variable"),
            "the variable MADE_UP",
        )

    def test_paths_start_where_they_are_named(self, place):
        for text, path in (
            ("x.db", place.own / "x.db"),
            ("../x.db", place.home / "x.db"),
            ("~/d/x.db", place.home / "d" / "x.db"),
            (str(place.home / "abs.db"), place.home / "abs.db"),
        ):
            place.user_says(f"[sessions]\nstore = '{text}'")
            assert place.load().sessions.store == str(path)

    @pytest.mark.parametrize("store", ["x.db", "./x.db", "~x/y"])
    def test_a_variable_needs_a_whole_path(self, place, store):
        environ = {**place.environ, "COUPLER_STORE": store}
        with pytest.raises(ConfigError, match=r"^`sessions.store` from the variable COUPLER_STORE "):
            place.load(environ=environ)
        assert place.load(environ={**place.environ, "COUPLER_STORE": "~/y"}).sessions.store == str(
            place.home / "y"
        )

    def test_without_a_home_nothing_is_below_it(self, monkeypatch):
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        with pytest.raises(ConfigError, match="this user has no home directory"):
            load(None, environ={"COUPLER_STORE": "~/x"})

    def test_a_wrong_value_of_the_command_line_is_refused(self, place):
        with pytest.raises(ConfigError, match=r'from the command line must be "normal" or "full"'):
            place.load(command_line={"sessions.synchronous": "half"})
        with pytest.raises(LookupError, match=r"there is no key 'sessions.sync'"):
            place.load(command_line={"sessions.sync": "full"})


class TestWhatAProjectMaySay:
    def test_it_can_tighten_but_not_loosen(self, place):
        place.user_says("[permissions]\nallow = ['read']")
        path = place.project_says(
            "[permissions]\nallow = ['*']\nask = ['a']\ndeny = ['b']\n[secrets]\nnames = ['DEPLOY']\n"
            "[sessions]\nstore = '/tmp/stolen.db'\nsynchronous = 'full'"
        )

        config = place.load()

        assert texts(config.permissions.allow) == ["read"]
        added = (config.permissions.ask, config.permissions.deny, config.secrets.names)
        assert [texts(each) for each in added] == [["a"], ["b"], ["DEPLOY"]]
        assert (config.sessions.store, config.sessions.synchronous) == (None, "normal")
        assert [(note.key, note.origin.line) for note in config.notes] == [
            ("permissions.allow", 2),
            ("sessions.store", 8),
            ("sessions.synchronous", 9),
        ]
        assert str(config.notes[0]) == (
            f"`permissions.allow` in {path} line 2 is ignored, because a project can only tighten: "
            "only your own coupler.toml can set it"
        )
        assert config.untrusted == ()

    def test_a_trust_cannot_give_it_what_is_the_users(self, place):
        content = b"[permissions]\nallow = ['*']"
        trust = TrustedOnes((str(place.project_says(content)), content))

        config = place.load(trust=trust)

        assert (config.permissions.allow, len(config.notes), trust.asked) == ((), 1, [])


class TestTrust:
    CONTENT = b"[server]\ncolour = 'red'\ncommand = './run'\nhooks = ['h']"

    def test_an_untrusted_project_sets_only_what_needs_no_trust(self, place):
        path = place.project_says(self.CONTENT)
        for trust in (None, TrustedOnes()):
            config = place.load(trust=trust, kind=MadeUp)

            assert (config.server.colour, config.server.command, config.server.hooks) == ("red", None, ())
            assert [setting.key.name for setting in config.untrusted] == ["server.command", "server.hooks"]
            assert [note.key for note in config.notes] == ["server.command", "server.hooks"]
            assert str(config.notes[0]) == (
                f"`server.command` in {path} line 3 is ignored, until you have trusted the project: "
                "run `coupler trust` in its directory"
            )

    def test_a_trusted_one_sets_them(self, place):
        path = place.project_says(self.CONTENT)

        config = place.load(trust=TrustedOnes((str(path), self.CONTENT)), kind=MadeUp)

        assert (config.server.command, texts(config.server.hooks)) == (str(place.project / "run"), ["h"])
        assert (config.untrusted, config.notes) == ((), ())

    def test_a_changed_file_is_another_one(self, place):
        path = place.project_says(self.CONTENT + b"\n# changed")
        config = place.load(trust=TrustedOnes((str(path), self.CONTENT)), kind=MadeUp)
        assert config.server.command is None

    def test_nobody_is_asked_about_a_file_that_needs_no_trust(self, place):
        place.project_says("[server]\ncolour = 'red'")
        trust = TrustedOnes()
        place.load(trust=trust, kind=MadeUp)
        assert trust.asked == []

    def test_the_users_own_file_needs_none(self, place):
        place.user_says("[server]\ncommand = '/user'")
        assert place.load(kind=MadeUp).server.command == os.path.normpath("/user")


class TestReadingAgain:
    @pytest.fixture
    def reads(self, monkeypatch) -> list[str]:
        """The files that were really read."""
        seen: list[str] = []
        read = config_file._content

        def note(path, real_path):
            seen.append(path)
            return read(path, real_path)

        monkeypatch.setattr(config_file, "_content", note)
        return seen

    def test_an_unchanged_file_is_read_once(self, place, settle, reads):
        user, project = place.user_says(""), place.project_says("[permissions]\ndeny = ['a']")
        settle(user)
        settle(project)

        loaded = [texts(place.load().permissions.deny) for _ in range(3)]

        assert loaded == [["a"]] * 3
        assert reads == [str(user), str(project)]

    @pytest.mark.parametrize("new", ["b", "longer"])
    def test_a_changed_one_is_read_again_even_with_the_same_size_and_date(self, place, settle, new):
        path = place.project_says("[permissions]\ndeny = ['a']")
        settle(path)
        assert texts(place.load().permissions.deny) == ["a"]

        replacement = path.with_name("new")
        replacement.write_text(f"[permissions]\ndeny = ['{new}']")
        settle(replacement)
        replacement.replace(path)

        assert texts(place.load().permissions.deny) == [new]

    def test_one_that_was_just_written_is_not_remembered(self, place, reads):
        path = place.project_says("[permissions]\ndeny = ['a']")
        moment = time.time()
        for text in ("a", "b", "c"):
            path.write_text(f"[permissions]\ndeny = ['{text}']")
            os.utime(path, (moment, moment))
            assert texts(place.load().permissions.deny) == [text]
        assert len(reads) == 3

    def test_a_removed_one_no_longer_counts(self, place, settle):
        path = place.project_says("[permissions]\ndeny = ['a']")
        settle(path)
        place.load()
        path.unlink()
        assert place.load().permissions.deny == ()

    def test_a_broken_one_is_told_of_each_time_until_it_is_mended(self, place, settle):
        path = place.project_says("zz = 1")
        settle(path)
        for _ in range(2):
            with pytest.raises(ConfigError):
                place.load()
        place.project_says("")
        place.load()

    def test_starting_a_session_costs_less_than_a_millisecond(self, place, settle):
        settle(place.user_says("[permissions]\nallow = ['read']"))
        settle(place.project_says("[permissions]\ndeny = ['a']"))
        deep = place.project / "a" / "b" / "c" / "d"
        place.load(deep)
        durations = []
        for _ in range(50):
            begun = time.perf_counter()
            place.load(deep)
            durations.append(time.perf_counter() - begun)
        # The shared machine may pause any of them.
        assert min(durations) < 0.001


def test_a_configuration_cannot_be_changed(place):
    config = place.load()
    with pytest.raises(AttributeError):
        config.notes = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.settings["sessions.store"] = None  # type: ignore[index]


class TestHowLongThingsAreKept:
    @table(
        ("said", "age", "size", "words"),
        [
            ("'90d'", 90 * 86400, None, "90d"),
            ("' 12H '", 12 * 3600, None, " 12H "),
            ("'8w'", 8 * 7 * 86400, None, "8w"),
            ("'2GB'", None, 2_000_000_000, "2GB"),
            ("'1.5 tb'", None, 1_500_000_000_000, "1.5 tb"),
            ("['90d']", 90 * 86400, None, "90d"),
            ("['500MB', '30d']", 30 * 86400, 500_000_000, "500MB and 30d"),
        ],
    )
    def test_by_age_by_size_or_by_both(self, said, age, size, words, place):
        place.user_says(f"[store]\nkeep_runs = {said}")
        rule = place.load().store.keep_runs
        assert (rule.age, rule.size, str(rule)) == (age, size, words)

    @table(
        ("said", "complaint"),
        [
            ("90", '`store.keep_sessions` in FILE line 2 must be an age such as "90d"'),
            ("'90'", "must be an age such as"),
            ("'90 days'", "an age ends with m, h, d or w"),
            ("'2G'", "must be an age such as"),
            ("'-1d'", "must be an age such as"),
            ("'0d'", "must be more than nothing"),
            ("'0.0GB'", "must be more than nothing"),
            ("[]", "it is empty"),
            ("['90d', '30d']", "item 2 of `store.keep_sessions` in FILE line 2 is a second age"),
            ("['90d', 7]", "must be an age such as"),
            ("{ age = '90d' }", "must be an age such as"),
        ],
    )
    def test_what_is_neither_is_an_error(self, said, complaint, place):
        file = place.user_says(f"[store]\nkeep_sessions = {said}")
        with pytest.raises(ConfigError) as caught:
            place.load()
        assert complaint.replace("FILE", str(file)) in str(caught.value)

    def test_by_default_all_of_it_and_a_project_has_no_say(self, place):
        assert place.load().store.keep_sessions is None
        place.project_says("[store]\nkeep_sessions = '1d'")
        config = place.load(trust=AllTrusting())
        assert config.store.keep_sessions is None
        assert "only your own coupler.toml can set it" in str(config.notes[0])


class AllTrusting:
    def is_trusted(self, path: str, content: bytes) -> bool:
        return True
