"""What a program writes, kept whole, or its beginning and its end if it is too long."""

import codecs

from coupler.process.ring import rest_of_character


class Capture:
    """Keeps the first `head` bytes of what is appended and the last `tail` of the others.

    Where something was left out a marker says how much; before and after it stand whole characters.
    """

    def __init__(self, head: int, tail: int) -> None:
        self._most_head = head
        self._most_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def is_cut(self) -> bool:
        """Whether something was left out."""
        return self._dropped > 0 or len(self._tail) > self._most_tail

    def append(self, chunk: bytes) -> bytes:
        """Keep it; return what of it belongs to the beginning, and is kept for certain."""
        room = self._most_head - len(self._head)
        begins, others = chunk[:room], chunk[room:]
        self._head += begins
        self._tail += others
        # Trimming only now and then makes appending cheap for a flood of small chunks.
        if len(self._tail) > 2 * self._most_tail:
            self._trim()
        return begins

    def content(self) -> bytes:
        """All that is kept."""
        return bytes(self._head[: len(self._head) - self._unfinished()]) + self.rest()

    def rest(self) -> bytes:
        """What comes after the beginning: the marker, if something was left out, and the end."""
        if not self.is_cut:
            return bytes(self._tail)
        self._trim()
        tail = bytes(self._tail)
        torn = rest_of_character(tail)
        left_out = self._dropped + torn + self._unfinished()
        return f"\n[… {left_out:,} bytes left out …]\n".encode() + tail[torn:]

    def _trim(self) -> None:
        excess = max(0, len(self._tail) - self._most_tail)
        del self._tail[:excess]
        self._dropped += excess

    def _unfinished(self) -> int:
        """How many bytes before the marker begin a character that does not end there."""
        if not self.is_cut:
            return 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(bytes(self._head[-3:]))
        return len(decoder.getstate()[0])
