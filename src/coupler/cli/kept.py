"""The store that commands look into: the file that is named, else the one that the user has set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.cli.exit_codes import FAILED, WRONG_USAGE
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.store.store import Store


class UnusableStoreError(Exception):
    """There is no working with the store, before it is open or after; `code` is the exit code for it."""

    def __init__(self, sentence: str, code: int = FAILED) -> None:
        super().__init__(sentence)
        self.code = code


@contextmanager
def kept_store(path: str | None, program: str, *, is_made: bool = False) -> Iterator[Store | None]:
    """The store, or None if there is none yet: to look for something makes none. Trouble ends the program."""
    try:
        with user_store(path, is_made=is_made) as store:
            yield store
    except UnusableStoreError as error:
        refuse(str(error), program, error.code)


@contextmanager
def user_store(path: str | None = None, *, is_made: bool = False) -> Iterator[Store | None]:
    """The same for those who have more to do than to end: raises `UnusableStoreError`."""
    from coupler.config import ConfigError, load
    from coupler.config.keys import STORE
    from coupler.runtime.directories import NoHomeError, store_file
    from coupler.store.errors import StoreError
    from coupler.store.store import Store

    try:
        file = path or load(None, environ=os.environ)[STORE] or store_file()
        if not is_made and not _is_there(file, is_named=path is not None):
            yield None
            return
        store = Store.open(file)
        try:
            yield store
        finally:
            store.close()
    except (ConfigError, StoreError, NoHomeError) as error:
        raise UnusableStoreError(str(error)) from error


def _is_there(file: str, *, is_named: bool) -> bool:
    try:
        return Path(file).stat().st_size > 0
    except FileNotFoundError:
        if is_named:
            message = f"there is no file {file}: without --store it is the user's own store that is meant"
            raise UnusableStoreError(message, WRONG_USAGE) from None
        return False
    except OSError as error:
        raise UnusableStoreError(f"{file} cannot be read: {error.strerror}") from None
