"""The last bytes of an output that may be endless."""

import codecs


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
        kept = self._whole_characters()
        if self._dropped and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]
        return kept.decode("utf-8", "replace")

    def tail(self, *, is_final: bool) -> str:
        """As much of the end as fits the limit, also when it is encoded again, from a whole character on.

        Unless it is final, the last character may not be there yet, and is left out.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(self._whole_characters(), is_final)
        encoded = text.encode()
        if len(encoded) <= self._limit:
            return text
        # What is no text was replaced by something longer.
        self._dropped = True
        cut = encoded[len(encoded) - self._limit :]
        return cut[rest_of_character(cut) :].decode()

    def _whole_characters(self) -> bytes:
        if len(self._kept) > self._limit:
            self._trim()
        kept = bytes(self._kept)
        return kept[rest_of_character(kept) :] if self._dropped else kept

    def _trim(self) -> None:
        del self._kept[: -self._limit]
        self._dropped = True


def rest_of_character(kept: bytes) -> int:
    """How many bytes at the beginning belong to a character that began before them."""
    begins = (index for index, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80)
    return next(begins, len(kept) if len(kept) < 4 else 0)
