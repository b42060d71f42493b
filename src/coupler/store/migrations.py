"""The tables of the database, made and brought up to date step by step.

Files of earlier versions are out there: a later version appends a step, and those before it are never changed
again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence

from coupler.store.errors import not_ours, written_by_newer

APPLICATION_ID = 0x4350_4C52
"""Marks the file as Coupler's in its header ("CPLR")."""

Migration = Callable[[sqlite3.Connection], None]


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in (
        # AUTOINCREMENT: the number of a deleted session, whose entries may still be there, never comes back.
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        """CREATE TABLE sessions (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            cwd TEXT NOT NULL,
            roots TEXT NOT NULL,
            title TEXT,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            turns INTEGER NOT NULL,
            settings TEXT NOT NULL,
            usage TEXT,
            made_by TEXT NOT NULL,
            holder TEXT,
            deleted INTEGER NOT NULL DEFAULT 0
        )""",
        """CREATE INDEX sessions_of_agent ON sessions (agent, updated_at DESC, number DESC)
            WHERE deleted = 0""",
        """CREATE INDEX sessions_of_directory ON sessions (agent, cwd, updated_at DESC, number DESC)
            WHERE deleted = 0""",
        "CREATE INDEX sessions_of_all ON sessions (updated_at DESC, number DESC) WHERE deleted = 0",
        "CREATE INDEX sessions_deleted ON sessions (number) WHERE deleted = 1",
        # Apart from the sessions, because a change of their date would write a large state again.
        "CREATE TABLE states (session INTEGER PRIMARY KEY, state BLOB NOT NULL)",
        """CREATE TABLE entries (
            session INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            turn INTEGER NOT NULL,
            at INTEGER NOT NULL,
            kind TEXT NOT NULL,
            key TEXT NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (session, seq)
        ) WITHOUT ROWID""",
    ):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('cursor key', ?)", [os.urandom(32)])


def _add_choices(connection: sqlite3.Connection) -> None:
    # One row a scope: who chooses again for the same scope changes their mind.
    connection.execute(
        """CREATE TABLE choices (
            project TEXT NOT NULL,
            subject TEXT NOT NULL,
            pattern TEXT NOT NULL,
            effect TEXT NOT NULL,
            made_at INTEGER NOT NULL,
            PRIMARY KEY (project, subject, pattern)
        ) WITHOUT ROWID"""
    )


def _add_trust(connection: sqlite3.Connection) -> None:
    # Paths are the system's bytes, which need not be text. A file keeps every content it was trusted with,
    # so that going back and forth between two branches asks once for each.
    connection.execute(
        """CREATE TABLE trusted_files (
            path BLOB NOT NULL,
            digest BLOB NOT NULL,
            trusted_at INTEGER NOT NULL,
            PRIMARY KEY (path, digest)
        ) WITHOUT ROWID"""
    )


def _add_kept_sessions(connection: sqlite3.Connection) -> None:
    # Names that clients gave to sessions of other agents, one of each in a directory.
    connection.execute(
        """CREATE TABLE kept_sessions (
            directory BLOB NOT NULL,
            name TEXT NOT NULL,
            session_id TEXT NOT NULL,
            cwd BLOB NOT NULL,
            fingerprint TEXT NOT NULL,
            kept_at INTEGER NOT NULL,
            PRIMARY KEY (directory, name)
        ) WITHOUT ROWID"""
    )


def _add_held_names(connection: sqlite3.Connection) -> None:
    # Apart from the kept sessions: a name is in use before there is a session under it.
    connection.execute(
        """CREATE TABLE held_names (
            directory BLOB NOT NULL,
            name TEXT NOT NULL,
            holder TEXT NOT NULL,
            PRIMARY KEY (directory, name)
        ) WITHOUT ROWID"""
    )


def _add_runs(connection: sqlite3.Connection) -> None:
    # Runs of workflows, and what happened in each, in order: the columns before the body are what entries are
    # looked for by.
    for statement in (
        """CREATE TABLE runs (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            workflow TEXT NOT NULL,
            file BLOB NOT NULL,
            digest TEXT NOT NULL,
            sources BLOB NOT NULL,
            inputs BLOB NOT NULL,
            cwd BLOB NOT NULL,
            session_id TEXT,
            status TEXT NOT NULL,
            exit_code INTEGER,
            message TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            holder TEXT
        )""",
        """CREATE TABLE run_entries (
            run INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            at INTEGER NOT NULL,
            kind TEXT NOT NULL,
            path TEXT NOT NULL,
            visit INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (run, seq)
        ) WITHOUT ROWID""",
    ):
        connection.execute(statement)


def _add_checkpoints(connection: sqlite3.Connection) -> None:
    # States of LangGraph's graphs. An item is a part of states that is stored once; its key is made of the
    # number of its thread and its own, so that those of a thread are neighbours. A thread without an id was
    # deleted, and is removed by and by.
    for statement in (
        "CREATE TABLE threads (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE)",
        "CREATE INDEX threads_deleted ON threads (number) WHERE id IS NULL",
        """CREATE TABLE checkpoints (
            thread INTEGER NOT NULL,
            namespace TEXT NOT NULL,
            id TEXT NOT NULL,
            parent TEXT,
            depth INTEGER NOT NULL,
            items BLOB NOT NULL,
            body BLOB NOT NULL,
            metadata BLOB NOT NULL,
            PRIMARY KEY (thread, namespace, id)
        ) WITHOUT ROWID""",
        """CREATE TABLE checkpoint_writes (
            thread INTEGER NOT NULL,
            namespace TEXT NOT NULL,
            checkpoint TEXT NOT NULL,
            task TEXT NOT NULL,
            position INTEGER NOT NULL,
            path TEXT NOT NULL,
            channel TEXT NOT NULL,
            items BLOB NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (thread, namespace, checkpoint, task, position)
        ) WITHOUT ROWID""",
        "CREATE TABLE checkpoint_items (key INTEGER PRIMARY KEY, format TEXT NOT NULL, body BLOB NOT NULL)",
    ):
        connection.execute(statement)


def _add_deleted_runs(connection: sqlite3.Connection) -> None:
    # Numbers of runs that are gone for everybody, while their entries are removed slice by slice.
    connection.execute("CREATE TABLE deleted_runs (number INTEGER PRIMARY KEY)")


def _add_reported_tokens(connection: sqlite3.Connection) -> None:
    # Of sessions whose agents report the sum of all their turns: the sum when it was left.
    connection.execute("ALTER TABLE kept_sessions ADD COLUMN tokens TEXT")


MIGRATIONS: Sequence[Migration] = (
    _create_tables,
    _add_choices,
    _add_trust,
    _add_kept_sessions,
    _add_held_names,
    _add_runs,
    _add_checkpoints,
    _add_deleted_runs,
    _add_reported_tokens,
)
"""The steps to the present schema. A later version appends one function.

Those before it are never changed again, because files that they made are out there.
"""


def is_new(connection: sqlite3.Connection) -> bool:
    """Return whether the file has no tables yet."""
    return _look_at(connection)[0]


def check_version(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether the file is up to date; raises if it is not Coupler's, or newer than this program."""
    has_no_tables, application, version = _look_at(connection)
    if application != APPLICATION_ID and not (has_no_tables and application == version == 0):
        raise not_ours(path)
    if version > len(MIGRATIONS):
        raise written_by_newer(path)
    return version == len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file up to date, inside a transaction that the caller has begun.

    Looks again: another process may have done it while this one waited.
    """
    if check_version(connection, path):
        return
    _, _, version = _look_at(connection)
    for migration in MIGRATIONS[version:]:
        migration(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _look_at(connection: sqlite3.Connection) -> tuple[bool, int, int]:
    """Read whether the file has no tables, whose it is, and its version: all as they were at one moment."""
    # Without a transaction another process could make the tables between two of these looks.
    is_alone = not connection.in_transaction
    if is_alone:
        connection.execute("BEGIN")
    try:
        has_no_tables = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    finally:
        if is_alone and connection.in_transaction:
            connection.execute("ROLLBACK")
    return has_no_tables, application, version
