"""Stores in files of their own, other processes that use them, and programs that lock them."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coupler.store.database import Database
from coupler.store.leases import LeaseHolder
from coupler.store.store import Store

OpenStore = Callable[..., Store]
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "coupler.db")


@pytest.fixture
def open_store(path: str) -> Iterator[OpenStore]:
    """Opens the file, with options of `Database`; closes whatever is left open."""
    stores: list[Store] = []

    def open_one(at: str = path, **options: Any) -> Store:
        database = Database(at, **options)
        store = Store(database, LeaseHolder.of(database.path))
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        with contextlib.suppress(sqlite3.ProgrammingError):
            store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


@pytest.fixture
def run(path: str) -> Iterator[Run]:
    """Runs a program in another process; `path` is the database there, and `argv` what it was given."""
    children: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> subprocess.Popen[str]:
        preamble = f"import sys\npath, argv = {path!r}, sys.argv[1:]\n"
        command = [sys.executable, "-c", preamble + textwrap.dedent(program), *map(str, arguments)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()
