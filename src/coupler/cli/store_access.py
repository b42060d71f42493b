"""The store that commands look into: the file that is named, else the one that the user has set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coupler.cli.exit_codes import FAILED, WRONG_USAGE, refuse

if TYPE_CHECKING:
    from coupler.agent.history import TranscriptTurn
    from coupler.redaction.masker import Masker
    from coupler.store.sessions import SessionRecord
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


# What the commands that show kept things leave unshown: secrets that were kept before anybody knew of them.
#
# Agents keep nothing that is secret when it is kept. A variable that was set or named later is hidden here,
# as far as this shell has it: the environment, and `secrets.names` of the user's and the project's settings.


JSON_STATE = b"j"
"""The first byte of an agent's memory that is JSON."""


@cache
def masker_for(directory: str | None) -> Masker:
    """Hides what is secret in a directory."""
    from coupler.redaction.masker import Masker
    from coupler.redaction.sources import declared_secrets, secrets_in_environment

    named = {name: os.environ[name] for name in _names_in(directory) if name in os.environ}
    return Masker([*declared_secrets(named), *secrets_in_environment(os.environ)])


def _names_in(directory: str | None) -> list[str]:
    from coupler.config import ConfigError, load
    from coupler.config.keys import SECRET_NAMES

    try:
        return [entry.text for entry in load(directory, environ=os.environ)[SECRET_NAMES]]
    except (ConfigError, OSError, ValueError):
        # A project whose file is wrong or gone must not keep its sessions from being read.
        return [] if directory is None else _names_in(None)


def shown_title(record: SessionRecord) -> str:
    """What a session is called; empty if it has no name."""
    return masker_for(record.cwd).mask(record.title or "")


def shown_record(record: SessionRecord) -> SessionRecord:
    """All that is kept of a session beside its turns; its directories and ids stay."""
    masker = masker_for(record.cwd)
    return msgspec.structs.replace(
        record,
        title=shown_title(record) or record.title,
        settings=_shown_json(record.settings.encode(), masker).decode(),
        usage=None if record.usage is None else _shown_json(record.usage.encode(), masker).decode(),
        state=_shown_state(record.state, masker),
    )


def shown_turns(record: SessionRecord, turns: Iterable[TranscriptTurn]) -> Iterator[TranscriptTurn]:
    """What was said and done in them."""
    from coupler.agent.output import masked

    masker = masker_for(record.cwd)
    return (masked(turn, masker) for turn in turns)


def _shown_state(state: bytes | None, masker: Masker) -> bytes | None:
    if state is None or state[:1] != JSON_STATE:
        return None if state is None else masker.mask_bytes(state)
    return JSON_STATE + _shown_json(state[1:], masker)


def _shown_json(text: bytes, masker: Masker) -> bytes:
    from coupler.agent.output import masked

    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return masker.mask_bytes(text)
    shown = masked(value, masker)
    return text if shown is value else msgspec.json.encode(shown)
