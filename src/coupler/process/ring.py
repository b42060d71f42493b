"""The last bytes of an output that may be endless."""


class Ring:
    """Keeps the last `limit` bytes of what is appended; memory stays below three times that."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._dropped = False

    def append(self, chunk: bytes) -> None:
        if len(chunk) > self._limit:
            chunk = chunk[len(chunk) - self._limit :]
            self._dropped = True
        self._kept += chunk
        # Trimming only now and then makes appending cheap for a flood of small chunks.
        if len(self._kept) > 2 * self._limit:
            self._trim()

    def text(self) -> str:
        """What is kept, as text. Where the beginning was dropped, it starts at a line's beginning."""
        if len(self._kept) > self._limit:
            self._trim()
        kept = bytes(self._kept)
        if self._dropped and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]
        return kept.decode("utf-8", "replace")

    def _trim(self) -> None:
        del self._kept[: -self._limit]
        self._dropped = True
