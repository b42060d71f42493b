"""The store: whether its file is sound, whose it is, and how large it has become.

It is only read, and no file is made beside it: whatever is wrong with it is left as it is.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.cli.doctor.database import opened
from coupler.cli.sessions.wording import count, short_directory, size

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section

GRAPHS = ".langgraph"
"""What the file is called after the store's that keeps the conversations of LangChain agents."""

LARGE_LOG = 256 * 1024 * 1024
"""Bytes of the write-ahead log that it does not have while all is well."""

MOST_DAMAGES = 3
LOCKED, NO_DATABASE, DAMAGED = (5, 6), 26, 11
"""SQLite's result codes."""


def examine(section: Section, circumstances: Circumstances) -> None:
    """The file of the sessions, and the one of LangChain's conversations if there is one."""
    from coupler.config import keys
    from coupler.runtime.directories import NoHomeError, store_file

    try:
        path = Path(circumstances.config[keys.STORE] or store_file())
    except NoHomeError as error:
        section.problem("file", str(error), "set COUPLER_HOME to a directory that you can write to")
        return
    section.facts["file"] = str(path)
    if _look_at_file(section, path, "file", is_needed=True):
        _look_inside(section, path, circumstances, is_ours=True)
    graphs = path.with_name(path.name + GRAPHS)
    if graphs.exists() and _look_at_file(section, graphs, "graphs", is_needed=False):
        _look_inside(section, graphs, circumstances, is_ours=False)


def _look_at_file(section: Section, path: Path, about: str, *, is_needed: bool) -> bool:
    """Whether there is something to look into."""
    shown = short_directory(str(path))
    try:
        status = path.stat()
    except FileNotFoundError:
        if is_needed:
            section.ok(about, f"{shown}, which is made when something is kept")
        return False
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        section.problem(about, f"{shown} cannot be looked at: {reason}", _remedy(path))
        return False
    if not stat.S_ISREG(status.st_mode):
        section.problem(about, f"{shown} is not a file", "move it away, or set `sessions.store` to a file")
        return False
    section.facts[f"{about}_bytes"] = status.st_size
    section.ok(about, f"{shown}, {size(status.st_size)}")
    if os.name == "posix" and status.st_mode & 0o077:
        section.problem(
            "permissions", f"others can read {shown}", f"run `{shlex.join(['chmod', '600', str(path)])}`"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        section.problem("permissions", f"you may not read and write {shown}", _remedy(path))
        return False
    _look_at_log(section, path)
    return status.st_size > 0


def _look_at_log(section: Section, path: Path) -> None:
    try:
        log = path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return
    section.facts.setdefault("log_bytes", log)
    if log > LARGE_LOG:
        section.note(
            "log",
            f"the write-ahead log has {size(log)} that are not yet in the file",
            "end the programs that have it open; the last one to close it folds the log in",
        )


def _look_inside(section: Section, path: Path, circumstances: Circumstances, *, is_ours: bool) -> None:
    about = "integrity" if is_ours else "graphs integrity"
    shown = short_directory(str(path))
    try:
        with closing(opened(path, circumstances.patience)) as connection:
            if is_ours and not _look_whose_it_is(section, connection, shown):
                return
            damages = [
                str(row[0])
                for row in connection.execute(f"PRAGMA quick_check({MOST_DAMAGES})")
                if row[0] != "ok"
            ]
            if damages:
                section.problem(about, f"{shown} is damaged: {'; '.join(damages)}", _rescue(path))
            else:
                section.ok(about, "the file is sound")
            if is_ours:
                _count(section, connection)
    except sqlite3.Error as error:
        _tell(section, about, path, error)


def _look_whose_it_is(section: Section, connection: sqlite3.Connection, shown: str) -> bool:
    from coupler.store.database import APPLICATION_ID, MIGRATIONS

    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    section.facts["schema"] = version
    if application != APPLICATION_ID:
        section.problem(
            "contents", f"{shown} is a database of another program", "move it away, or set `sessions.store`"
        )
        return False
    if version > len(MIGRATIONS):
        section.problem("contents", f"{shown} was written by a newer Coupler", "upgrade Coupler")
        return False
    return True


def _count(section: Section, connection: sqlite3.Connection) -> None:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    sessions = connection.execute("SELECT count(*) FROM sessions WHERE deleted = 0").fetchone()[0]
    runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0] if "runs" in tables else 0
    section.facts |= {"sessions": sessions, "runs": runs}
    section.ok("contents", f"{count(sessions, 'session')}, {count(runs, 'run')} of workflows")


def _tell(section: Section, about: str, path: Path, error: sqlite3.Error) -> None:
    shown = short_directory(str(path))
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if "interrupted" in str(error):
        section.note(
            about, f"{shown} is too large to be read whole in this time", "give it longer with --timeout"
        )
    elif code in LOCKED:
        section.note(about, f"another program holds {shown} just now", "run this again when it is done")
    elif code in (NO_DATABASE, DAMAGED):
        section.problem(about, f"{shown} is not a database, or damaged", _rescue(path))
    else:
        section.problem(about, f"{shown} cannot be read: {error}", _remedy(path))


def _rescue(path: Path) -> str:
    damaged = shlex.quote(f"{path}.damaged")
    return (
        f"move it away: `mv {shlex.quote(str(path))} {damaged}`, and Coupler begins a new one; "
        f"`sqlite3 {damaged} .recover` may still get something out of the old one"
    )


def _remedy(path: Path) -> str:
    return f"see to the permissions of {path}, or set `sessions.store` or COUPLER_HOME to another place"
