"""What a session knows of the files that it read or wrote: enough to see that one has changed."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

_writing: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()


class _Known(NamedTuple):
    text: bytes
    saved: bytes


class KnownFiles:
    """Files by their real paths, with digests of what the session saw last: the text, and what was saved."""

    def __init__(self) -> None:
        self._files: dict[str, _Known] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the session has touched, the last one last."""
        return tuple(self._files)

    def saved(self, most: int) -> dict[str, list[str]]:
        """What is known of the last files, as JSON can hold it."""
        last = [*self._files.items()][-most:]
        return {path: [known.text.hex(), known.saved.hex()] for path, known in last}

    def restore(self, saved: object) -> None:
        """Know what was saved before; what is not of that form is nothing."""
        try:
            files = msgspec.convert(saved, dict[str, tuple[str, str]])
            known = {path: _Known(*map(bytes.fromhex, digests)) for path, digests in files.items()}
        except (msgspec.ValidationError, ValueError):
            return
        self._files = {**known, **self._files}

    def note(self, path: str, text: str, saved: str) -> None:
        """The session has seen this text in the file, when this was on the disk."""
        self._files.pop(path, None)
        self._files[path] = _Known(_digest(text), _digest(saved))

    def forget(self, path: str) -> None:
        """The session has seen that there is no such file."""
        self._files.pop(path, None)

    def is_current(self, path: str, text: str) -> bool:
        """Whether this is the text that the session saw last."""
        known = self._files.get(path)
        return known is not None and known.text == _digest(text)

    def is_saved(self, path: str, saved: str) -> bool:
        """Whether this is what was on the disk, or the text that the session saw and that is saved now."""
        known = self._files.get(path)
        return known is not None and _digest(saved) in known


def writing(path: str) -> asyncio.Lock:
    """Held by who compares and writes, in whichever session: a second writer sees what the first wrote."""
    key = asyncio.get_running_loop(), path
    lock = _writing.get(key)
    if lock is None:
        lock = _writing[key] = asyncio.Lock()
    return lock


def _digest(text: str) -> bytes:
    # Imported on use: most sessions touch no file.
    from hashlib import blake2b

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
