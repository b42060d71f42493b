"""The store that commands look into: the file that is named, else the one that the user has set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from coupler.store.store import Store

FAILED = 1
WRONG_USAGE = 2

Refuse = Callable[[str, int], NoReturn]
"""Ends the command with a sentence and an exit code."""


@contextmanager
def kept_store(path: str | None, refuse: Refuse, *, is_made: bool = False) -> Iterator[Store | None]:
    """The store, or None if there is none yet: to look for something makes none."""
    from coupler.config import ConfigError, load
    from coupler.config.keys import STORE
    from coupler.home import NoHomeError, store_file
    from coupler.store.errors import StoreError
    from coupler.store.store import Store

    try:
        file = path or load(None, environ=os.environ)[STORE] or store_file()
        if not is_made and not _is_there(file, refuse, is_named=path is not None):
            yield None
            return
        store = Store.open(file)
        try:
            yield store
        finally:
            store.close()
    except (ConfigError, StoreError, NoHomeError) as error:
        refuse(str(error), FAILED)


def _is_there(file: str, refuse: Refuse, *, is_named: bool) -> bool:
    try:
        return Path(file).stat().st_size > 0
    except FileNotFoundError:
        if is_named:
            message = f"there is no file {file}: without --store it is the user's own store that is meant"
            refuse(message, WRONG_USAGE)
        return False
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}", FAILED)
