"""What a session knows of the files that it read or wrote: enough to see that one has changed."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class KnownFiles:
    """Files by their real paths, with a digest of the text that the session saw last."""

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __contains__(self, path: str) -> bool:
        return path in self._digests

    def note(self, path: str, text: str) -> None:
        """The session has seen this text in the file."""
        self._digests[path] = _digest(text)

    def forget(self, path: str) -> None:
        """The session has seen that there is no such file."""
        self._digests.pop(path, None)

    def is_current(self, path: str, text: str) -> bool:
        """Whether this is the text that the session saw last."""
        return self._digests.get(path) == _digest(text)

    def writing(self, path: str) -> asyncio.Lock:
        """Held by who compares and writes: of two writers at once the second sees what the first wrote."""
        lock = self._writing.get(path)
        if lock is None:
            lock = self._writing[path] = asyncio.Lock()
        return lock


def _digest(text: str) -> bytes:
    # Imported on use: most sessions touch no file.
    from hashlib import blake2b

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
