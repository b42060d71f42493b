"""Remembers that the files `coupler serve` reads at its start were valid, to parse them only once.

Checking takes parsers, for which an editor would wait. So what was valid is remembered by the contents of
the files, and is checked again when one of them has changed. The keys of early answers depend on files, too.
Imports next to nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping

from coupler.__about__ import __version__
from coupler.agent.startup.early_answer import write_record
from coupler.config.lookup import ConfigError, project_files, user_file
from coupler.runtime.directories import NoHomeError, cache_directory, credentials_file, home_directory

LARGEST_FILE = 1024 * 1024
"""Bytes of a file; a larger one is neither valid nor cached."""

NO_SETTINGS = ("COUPLER_HOME", "COUPLER_LOG")
"""Variables of Coupler that correspond to no key of a `coupler.toml`."""


class PreflightCache:
    """The files and variables of this start, and whether an earlier start found just these valid."""

    def __init__(self, cwd: str | None, environ: Mapping[str, str], workflow: str | None) -> None:
        self._variables = sorted(
            item for item in environ.items() if item[0].startswith("COUPLER_") and item[0] not in NO_SETTINGS
        )
        self._files = configuration_files(cwd, environ)
        cache = cache_directory()
        self._directory = None if cache is None else os.path.join(cache, "sound")
        self.needs_look = self._files is None or bool(self._files or self._variables or workflow)
        """True if there is a file or variable to check."""
        self._circumstances = [__version__, sys.version, cwd, home_directory(environ), workflow]

    def recall(self) -> list[str] | None:
        """Return the blocks that prompts may hold, if all was valid earlier and is the same now."""
        path = self._path()
        if path is None:
            return None
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            is_same = all(hash_file(name) == known for name, known in record["files"].items())
            return [str(kind) for kind in record["accepts"]] if is_same else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def remember(self, others: Iterable[str], accepts: Iterable[str]) -> None:
        """Records that all of it is valid, with these other files, and what prompts may hold."""
        path = self._path()
        hashes = {name: hash_file(name) for name in others}
        if path is not None and None not in hashes.values():
            write_record(path, {"files": hashes, "accepts": [*accepts]})

    def _path(self) -> str | None:
        """The record's file; None if a file is no plain one, or there is no cache directory."""
        hashes = [(path, os.path.realpath(path), hash_file(path)) for path in self._files or ()]
        if self._directory is None or self._files is None or any(each[2] is None for each in hashes):
            return None
        seen = json.dumps([self._circumstances, self._variables, hashes]).encode()
        return os.path.join(self._directory, f"{hashlib.blake2b(seen, digest_size=16).hexdigest()}.json")


def configuration_files(cwd: str | None, environ: Mapping[str, str]) -> list[str] | None:
    """The configuration files that exist; None if that cannot be seen."""
    own = user_file(environ)
    try:
        projects = [] if cwd is None else [file.path for file in project_files(cwd, environ)]
    except (ConfigError, ValueError):
        return None
    return [*projects, *([own] if own is not None and os.path.lexists(own) else [])]


def hash_file(path: str) -> str | None:
    """Hashes the content of a plain file; a pipe is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = file.read(LARGEST_FILE + 1)
    except OSError:
        return None
    return None if len(content) > LARGEST_FILE else hashlib.blake2b(content, digest_size=16).hexdigest()


def command_key(command: list[str]) -> str:
    """The key of the early answer for another agent; valid while its program is the same file."""
    import shutil
    from pathlib import Path

    program = shutil.which(command[0])
    changed_at = Path(program).stat().st_mtime_ns if program is not None else 0
    return "\0".join(["--", *command, str(changed_at)])


def coder_key(profile: str, model: str | None) -> str | None:
    """The key of the early answer for the coder; valid while what decides about its login is the same.

    None if that cannot be seen from files: a project that sets a model may be trusted any time.
    """
    own = user_file(os.environ)
    try:
        files = configuration_files(os.getcwd(), os.environ)
        if files is None or any(_may_set_model(file) for file in files if file != own):
            return None
        stored = hash_file(credentials_file())
    except (OSError, NoHomeError):
        return None
    seen = [f"{file}={hash_file(file)}" for file in files]
    return "\0".join(["coder", profile, model or "", stored or "", *seen])


def _may_set_model(file: str) -> bool:
    """True if a project's file has a word in it that a model, or its address, is set by."""
    with open(file, "rb") as stream:
        content = stream.read()
    return b"model" in content or b"base_url" in content
