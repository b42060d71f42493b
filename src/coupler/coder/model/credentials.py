"""What `coupler login coder` has stored: the model to begin with, and a key for each provider and address.

One file below Coupler's own directory, which only its user can read; it is replaced as a whole. A key is
given out for exactly the provider and the address that it was stored for.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from coupler.coder.model.errors import ModelError
from coupler.runtime.directories import NoHomeError, data_directory

log = logging.getLogger("coupler.coder")

FILE = "credentials.json"
"""A name that rules know to be sensitive."""

LARGEST = 1024 * 1024
"""Bytes of the file."""


class StoredKey(Struct, frozen=True):
    """A key, and what it is for."""

    provider: str
    base_url: str | None
    key: str

    @property
    def place(self) -> tuple[str, str | None]:
        """What it is for."""
        return self.provider, self.base_url

    def __repr__(self) -> str:
        return f"StoredKey({self.provider!r}, {self.base_url!r}, …)"


class Credentials(Struct, frozen=True):
    """All that is stored."""

    model: str | None = None
    base_url: str | None = None
    keys: tuple[StoredKey, ...] = ()
    stored_at: int = 0
    """When that was, in nanoseconds; 0 if nothing is stored."""

    def key_for(self, provider: str, base_url: str | None) -> str | None:
        """The key that was stored for this."""
        return next((each.key for each in self.keys if each.place == (provider, base_url)), None)

    def with_login(
        self, model: str, base_url: str | None, place: tuple[str, str | None], key: str | None
    ) -> Credentials:
        """The same with another model to begin with, and its key for this place if it has one."""
        others = tuple(each for each in self.keys if each.place != place)
        added = () if key is None else (StoredKey(*place, key),)
        return Credentials(model, base_url, (*others, *added))

    def without(self, keys: Iterable[StoredKey], *, model: bool) -> Credentials:
        """The same without these keys, and without the model to begin with."""
        gone = {each.place for each in keys}
        left = tuple(each for each in self.keys if each.place not in gone)
        return Credentials(None, None, left) if model else structs.replace(self, keys=left)


def credentials_file() -> Path:
    """Where they are; raises NoHomeError for a user without a home."""
    return Path(data_directory(), FILE)


def stored_credentials() -> Credentials:
    """What is stored; nothing if there is no file. Raises ModelError for one that cannot be used."""
    try:
        path = credentials_file()
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read(LARGEST + 1)
    except (FileNotFoundError, NoHomeError):
        return Credentials()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
        log.warning("%s holds keys and others can read it: run `chmod 600` on it", path)
    return _credentials(path, content, status.st_mtime_ns)


def store(credentials: Credentials) -> Path:
    """Replace what is stored; returns the file. Raises OSError, and then the old one is still whole."""
    path = credentials_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Made for this user alone from its first moment on, whatever the umask is.
    descriptor, name = tempfile.mkstemp(prefix=f".{FILE}.", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(_as_json(credentials), stream, indent=2)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except BaseException:
        new.unlink()
        raise
    return path


def remove() -> bool:
    """Forget everything; returns whether there was something."""
    try:
        credentials_file().unlink()
    except (FileNotFoundError, NoHomeError):
        return False
    return True


def _as_json(credentials: Credentials) -> dict[str, Any]:
    return {
        "model": credentials.model,
        "base_url": credentials.base_url,
        "keys": [
            {"provider": each.provider, "base_url": each.base_url, "key": each.key}
            for each in credentials.keys
        ],
    }


def _credentials(path: Path, content: bytes, stored_at: int) -> Credentials:
    try:
        kept = msgspec.json.decode(content, type=Credentials)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # What is wrong with it is not repeated: it may be a key.
        raise ModelError(
            f"{path} cannot be used: run `coupler login coder` again after removing it."
        ) from None
    return structs.replace(kept, stored_at=stored_at)
