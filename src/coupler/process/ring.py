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

    @property
    def is_cut(self) -> bool:
        """Whether the beginning was dropped."""
        return self._dropped or len(self._kept) > self._limit

    def text(self) -> str:
        """What is kept, as text. Without its beginning it starts with a whole line, or character."""
        if len(self._kept) > self._limit:
            self._trim()
        kept = bytes(self._kept)
        if self._dropped and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]
        elif self._dropped:
            kept = kept[_rest_of_character(kept) :]
        return kept.decode("utf-8", "replace")

    def _trim(self) -> None:
        del self._kept[: -self._limit]
        self._dropped = True


def _rest_of_character(kept: bytes) -> int:
    """How many bytes at the beginning belong to a character that began before them."""
    return next((index for index, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80), 0)
