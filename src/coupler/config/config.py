"""Loads the configuration of one session: the user's file and the project's, merged by precedence.

The command line wins over the environment, that over the project as far as it may say anything, and that over
the user's file. Lists add up instead, also those of files above the project's nearest one. What a project may
not set is left out, and reported in the notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec

from coupler.config.files import COMMAND_LINE, FILES_CACHED, ConfigFile, Layer, Origin, read_config_file
from coupler.config.keys import ConfigSchema, ConfigSetting, Settings, read_setting, read_settings, schema_of
from coupler.config.lookup import project_files, user_file
from coupler.runtime.directories import home_directory

S = TypeVar("S", bound=msgspec.Struct)


class TrustedFiles(Protocol):
    """Knows which projects' files the user has trusted; the store's `Trust` does."""

    def is_trusted(self, path: str, content: bytes) -> bool:
        """Tell whether the file at this real path was trusted with exactly this content."""
        ...


class IgnoredSetting(msgspec.Struct, frozen=True):
    """A setting of a project's file that is not used, and why."""

    key: str
    origin: Origin
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Config(Settings, frozen=True, kw_only=True, eq=False):
    """The settings of one session, as fields. Immutable: a changed file is read by the next `load`."""

    settings: Mapping[str, ConfigSetting] = MappingProxyType({})
    """The settings that were made, by key; the origin of a list is the strongest that added to it."""
    notes: tuple[IgnoredSetting, ...] = ()
    project: ConfigFile | None = None
    """The project's nearest file, if there is one."""
    untrusted: tuple[ConfigSetting, ...] = ()
    """Settings of the project's file that are not used until the user trusts it."""

    def untrusted_setting(self, name: str) -> ConfigSetting | None:
        """A key's setting in the project's file if it is not used because the file is not trusted."""
        return next((each for each in self.untrusted if each.key.name == name), None)


def load(
    cwd: str | None,
    *,
    environ: Mapping[str, str],
    command_line: Mapping[str, object] | None = None,
    trust: TrustedFiles | None = None,
    kind: type[Config] | None = None,
) -> Config:
    """Load the configuration for a session in this directory; without one, the user's alone.

    Raises ConfigError if a file or a value is wrong. `command_line` has values by the names of their keys;
    without `trust` no project is trusted. Sections beside Coupler's own are those of a `kind` of Config.
    """
    kind = kind or Config
    schema = schema_of(kind)
    home = home_directory(environ)
    own = user_file(environ)
    user = None if own is None else read_config_file(own)
    files = () if cwd is None else _read_project(cwd, environ)
    project = files[0] if files else None
    said = () if project is None else _settings(project, "project", schema, home)
    above = [*_said_above(files[1:], schema, home)]
    is_trusted = _is_trusted(project, said, trust)
    settings = _joined(
        [
            *(() if user is None else _settings(user, "user", schema, home)),
            *(setting for setting in (*above, *said) if _may_be_used(setting, is_trusted)),
            *_from_environment(environ, schema, home),
            *_from_command_line(command_line or {}, schema, home),
        ]
    )
    untrusted = () if is_trusted else (*(each for each in said if each.key.setter == "trusted project"),)
    notes = (*(_note(each) for each in (*above, *said) if not _may_be_used(each, is_trusted)),)
    fields: dict[str, Any] = {
        "settings": settings,
        "notes": notes,
        "project": project,
        "untrusted": untrusted,
    }
    for setting in settings.values():
        *sections, name = setting.key.path
        section = fields
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = setting.value
    return _filled(_unset(kind), fields)


@cache
def _unset(kind: type[Config]) -> Config:
    return kind()


def _filled(unset: S, fields: Mapping[str, Any]) -> S:
    """Make a struct like one without settings, whose sections have what is set."""
    return type(unset)(
        **{
            name: _filled(getattr(unset, name), value) if type(value) is dict else value
            for name, value in fields.items()
        }
    )


def _read_project(cwd: str, environ: Mapping[str, str]) -> tuple[ConfigFile, ...]:
    """The project's files, the nearest first."""
    found = [read_config_file(*each) for each in project_files(cwd, environ)]
    return tuple(file for file in found if file is not None)


def _said_above(
    files: Sequence[ConfigFile], schema: ConfigSchema, home: str | None
) -> Iterator[ConfigSetting]:
    """The settings of the files above the nearest one, the farthest first.

    What needs trust they cannot set.
    """
    for file in reversed(files):
        for setting in _settings(file, "project", schema, home):
            if setting.key.setter != "trusted project":
                yield setting


@lru_cache(maxsize=FILES_CACHED)
def _settings(
    file: ConfigFile, layer: Layer, schema: ConfigSchema, home: str | None
) -> tuple[ConfigSetting, ...]:
    """Check a file, once: unchanged files are cached as objects."""
    return read_settings(file, layer, schema, home)


def _is_trusted(
    project: ConfigFile | None, said: tuple[ConfigSetting, ...], trust: TrustedFiles | None
) -> bool:
    """Tell whether the project is trusted.

    Asks only if something depends on it: the store is slow to open.
    """
    if project is None or trust is None or not any(each.key.setter == "trusted project" for each in said):
        return False
    return trust.is_trusted(project.real_path, project.content)


def _may_be_used(setting: ConfigSetting, is_trusted: bool) -> bool:
    match setting.key.setter:
        case "project":
            return True
        case "trusted project":
            return is_trusted
        case "user":
            return False


def _from_environment(
    environ: Mapping[str, str], schema: ConfigSchema, home: str | None
) -> Iterator[ConfigSetting]:
    for key in schema.keys:
        value = environ.get(key.variable) if key.variable is not None else None
        if value:
            yield read_setting(key, value, Origin("environment", variable=key.variable), home)


def _from_command_line(
    given: Mapping[str, object], schema: ConfigSchema, home: str | None
) -> Iterator[ConfigSetting]:
    for name, value in given.items():
        key = schema.find(name)
        if key is None:
            raise LookupError(f"there is no key {name!r}")
        yield read_setting(key, value, COMMAND_LINE, home)


def _joined(settings: Iterable[ConfigSetting]) -> Mapping[str, ConfigSetting]:
    """Merge the settings of all origins, that of lowest precedence first, to one for each key."""
    joined: dict[str, ConfigSetting] = {}
    for key, value, origin in settings:
        if key.name in joined:
            value = _join(joined[key.name].value, value)
        joined[key.name] = ConfigSetting(key, value, origin)
    return MappingProxyType(joined)


def _join(weaker: Any, stronger: Any) -> Any:
    """Join values of two origins: lists add up, and of two tables with one name the stronger counts."""
    if not isinstance(stronger, tuple) or not isinstance(weaker, tuple):
        return stronger
    by_name = {getattr(each, "name", number): each for number, each in enumerate((*weaker, *stronger))}
    return (*by_name.values(),)


def _note(setting: ConfigSetting) -> IgnoredSetting:
    key, _, origin = setting
    reason = (
        "until you have trusted the project: run `coupler trust` in its directory"
        if key.setter == "trusted project"
        else "because a project can only tighten: only your own coupler.toml can set it"
    )
    return IgnoredSetting(key.name, origin, f"`{key.name}` in {origin} is ignored, {reason}")
