"""A file against the schema: every key known, every value of its kind, or a sentence for each that is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coupler.config.errors import MOST_PROBLEMS, ConfigError, shown_key, suggestion
from coupler.config.file import ConfigFile
from coupler.config.kind import Source, WrongValueError, type_words
from coupler.config.origin import Layer, Origin
from coupler.config.positions import Path
from coupler.config.schema import Key, Schema, Setting


def read_settings(file: ConfigFile, layer: Layer, schema: Schema, home: str | None) -> tuple[Setting, ...]:
    """What the file sets; raises ConfigError with all that is wrong with it."""
    reading = _Reading(file, layer, schema, home)
    settings = (*reading.table(file.values, ()),)
    if reading.problems:
        raise ConfigError("invalid", reading.problems)
    return settings


class _Reading:
    """One walk over the tables of a file, which gathers problems instead of ending at the first."""

    def __init__(self, file: ConfigFile, layer: Layer, schema: Schema, home: str | None) -> None:
        self.problems: list[str] = []
        self._file = file
        self._layer: Layer = layer
        self._schema = schema
        self._home = home

    def table(self, table: Mapping[str, Any], path: Path) -> Iterator[Setting]:
        """What a table and those in it set."""
        for name, value in table.items():
            here = (*path, name)
            full_name = ".".join(map(str, here))
            # A quoted name with a dot in it is one name: it must not pass for a table and its key.
            key = None if "." in name else self._schema.find(full_name)
            if key is not None:
                yield from self._setting(key, value, here)
            elif "." in name or not self._schema.is_section(full_name):
                self._complain_of_unknown(name, here)
            elif isinstance(value, dict):
                yield from self.table(value, here)
            else:
                self._complain(here, f"must be a table, not {type_words(value)}")

    def _setting(self, key: Key[Any], value: object, path: Path) -> Iterator[Setting]:
        items = [self._origin((*path, i)) for i in range(len(value))] if isinstance(value, list) else ()
        source = Source(self._origin(path), items, self._home)
        try:
            yield Setting(key, key.kind.read(value, source), source.origin)
        except WrongValueError as error:
            self._complain((*path, *error.below), str(error))

    def _complain(self, path: Path, problem: str) -> None:
        item = f"item {path[-1] + 1} of " if isinstance(path[-1], int) else ""
        self.problems.append(f"{item}`{shown_key(path)}` in {self._origin(path)} {problem}")

    def _complain_of_unknown(self, name: str, path: Path) -> None:
        if len(self.problems) >= MOST_PROBLEMS:
            # Only counted: a file may have a hundred thousand of them, and comparing words takes its time.
            self.problems.append(f"unknown key `{shown_key(path)}`")
            return
        section = ".".join(map(str, path[:-1]))
        valid = self._schema.words_below(section)
        if not section:
            # Who forgets the section's heading still means one of its keys.
            valid += [key.name for key in self._schema.keys]
        near = suggestion(name, valid, self._schema.words_below(section))
        self.problems.append(f"unknown key `{shown_key(path)}` in {self._origin(path)}; {near}")

    def _origin(self, path: Path) -> Origin:
        position = self._file.positions.find(path)
        return Origin(self._layer, self._file.path, None if position is None else position.line)
