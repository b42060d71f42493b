"""Loads the configuration of one session: the user's file and the project's, merged by precedence.

The command line wins over the environment, that over the project as far as it may say anything, and that over
the user's file. Lists add up instead, also those of files above the project's nearest one. What a project may
not set is left out, and reported in the notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec

from coupler.config import keys
from coupler.config.files import COMMAND_LINE, FILES_CACHED, ConfigFile, Layer, Origin, read_config_file
from coupler.config.lookup import ConfigError, project_files, user_file
from coupler.config.value_kinds import ConfigKey, ConfigSchema, ConfigSetting, ValueSource, WrongValueError
from coupler.runtime.directories import home_directory

T = TypeVar("T")


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


class Config(msgspec.Struct, frozen=True, eq=False):
    """The settings of one session. Immutable: a changed file is read by the next `load`."""

    settings: Mapping[str, ConfigSetting]
    """The settings by key; the origin of a list is that of highest precedence that added to it."""
    notes: tuple[IgnoredSetting, ...] = ()
    project: ConfigFile | None = None
    """The project's nearest file, if there is one."""
    untrusted: tuple[ConfigSetting, ...] = ()
    """Settings of the project's file that are not used until the user trusts it."""

    def __getitem__(self, key: ConfigKey[T]) -> T:
        """A key's value, or its default."""
        setting = self.settings.get(key.name)
        value: T = key.default if setting is None else setting.value
        return value

    def untrusted_value(self, key: ConfigKey[T]) -> tuple[T, Origin] | None:
        """A key's value in the project's file if it is not used because the file is not trusted."""
        return next(((each.value, each.origin) for each in self.untrusted if each.key.name == key.name), None)


def load(
    cwd: str | None,
    *,
    environ: Mapping[str, str],
    command_line: Mapping[str, object] | None = None,
    trust: TrustedFiles | None = None,
    schema: ConfigSchema | None = None,
) -> Config:
    """Load the configuration for a session in this directory; without one, the user's alone.

    Raises ConfigError if a file or a value is wrong. `command_line` has values by the names of their keys;
    without `trust` no project is trusted.
    """
    schema = schema or keys.SCHEMA
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
    return Config(settings, notes, project, untrusted)


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
    return keys.read_settings(file, layer, schema, home)


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
            yield _setting(key, value, ValueSource(Origin("environment", variable=key.variable), home=home))


def _from_command_line(
    given: Mapping[str, object], schema: ConfigSchema, home: str | None
) -> Iterator[ConfigSetting]:
    for name, value in given.items():
        key = schema.find(name)
        if key is None:
            raise LookupError(f"there is no key {name!r}")
        yield _setting(key, value, ValueSource(COMMAND_LINE, home=home))


def _setting(key: ConfigKey[Any], value: object, source: ValueSource) -> ConfigSetting:
    try:
        return ConfigSetting(key, key.kind.read(value, source), source.origin)
    except WrongValueError as error:
        raise ConfigError("invalid", [f"`{key.name}` from {source.origin} {error}"]) from None


def _joined(settings: Iterable[ConfigSetting]) -> Mapping[str, ConfigSetting]:
    """Merge the settings of all origins, that of lowest precedence first, to one for each key."""
    joined: dict[str, ConfigSetting] = {}
    for key, value, origin in settings:
        weaker = joined[key.name].value if key.name in joined else key.default
        joined[key.name] = ConfigSetting(key, key.kind.join(weaker, value), origin)
    return MappingProxyType(joined)


def _note(setting: ConfigSetting) -> IgnoredSetting:
    key, _, origin = setting
    reason = (
        "until you have trusted the project: run `coupler trust` in its directory"
        if key.setter == "trusted project"
        else "because a project can only tighten: only your own coupler.toml can set it"
    )
    return IgnoredSetting(key.name, origin, f"`{key.name}` in {origin} is ignored, {reason}")
