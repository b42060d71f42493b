"""Text that comes in pieces: secrets in it are hidden, and pieces are gathered into rows for the store."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coupler.redaction.masker import Stream
from coupler.store.runs import RunEntry
from coupler.workflow.journal.happenings import Happening, Place, Said, Thought, Wrote
from coupler.workflow.journal.record import kind_of, packed
from coupler.workflow.journal.secrecy import Secrecy

Piece = Said | Thought | Wrote

PIECE_KINDS = frozenset({"text", "thought", "output"})
"""What pieces are called in the store."""


def row_of(happening: Happening, seq: int, at: int) -> RunEntry:
    """A happening for the store."""
    place = happening.place
    path, visit = ("", 0) if place is None else (place.path, place.visit)
    return RunEntry(seq, at, kind_of(happening), path, visit, packed(happening))


class Hiding:
    """Hides the secrets in the texts of a run, also those that were cut in two."""

    def __init__(self, secrecy: Secrecy) -> None:
        self._secrecy = secrecy
        self._streams: dict[Place | None, dict[str, tuple[Stream, Piece]]] = {}

    def shown(self, piece: Piece) -> Piece | None:
        """What may be shown now; None if that is nothing yet."""
        streams = self._streams.setdefault(piece.place, {})
        known = streams.get(_line_of(piece))
        if known is None:
            stream = self._secrecy.stream()
            if stream is None:
                return piece
            known = streams[_line_of(piece)] = stream, msgspec.structs.replace(piece, text="")
        text = known[0].feed(piece.text)
        if text is piece.text:
            return piece
        return msgspec.structs.replace(piece, text=text) if text else None

    def ended(self, place: Place | None) -> Iterator[Piece]:
        """What was held back of a step's texts, because something else comes now."""
        for stream, piece in self._streams.get(place, {}).values():
            text = stream.end()
            if text:
                yield msgspec.structs.replace(piece, text=text)

    def forget(self, place: Place | None) -> None:
        """The step is over."""
        self._streams.pop(place, None)

    @property
    def places(self) -> list[Place | None]:
        """The steps that have texts and are not over."""
        return [*self._streams]


class _Gathered:
    """Neighbouring pieces of one text."""

    __slots__ = ("at", "line", "seq", "start", "texts")

    def __init__(self, piece: Piece, seq: int, at: int) -> None:
        self.start = piece
        self.line = _line_of(piece)
        self.seq = seq
        self.at = at
        self.texts = [piece.text]

    def row(self) -> RunEntry:
        return row_of(msgspec.structs.replace(self.start, text="".join(self.texts)), self.seq, self.at)


class Gathering:
    """Joins the pieces of each step; those of steps that run beside each other do not part them."""

    def __init__(self) -> None:
        self._of_places: dict[Place | None, _Gathered] = {}

    def add(self, piece: Piece, seq: int, at: int) -> RunEntry | None:
        """Another piece; the text that it does not continue, if it was one of the same step."""
        gathered = self._of_places.get(piece.place)
        if gathered is not None and gathered.line == _line_of(piece):
            gathered.texts.append(piece.text)
            gathered.seq = seq
            return None
        self._of_places[piece.place] = _Gathered(piece, seq, at)
        return None if gathered is None else gathered.row()

    def close(self) -> list[RunEntry]:
        """All that is gathered; what comes now is another row."""
        rows = [gathered.row() for gathered in self._of_places.values()]
        self._of_places.clear()
        return rows


def _line_of(piece: Piece) -> str:
    """What tells the texts of a step apart."""
    return piece.stream if isinstance(piece, Wrote) else kind_of(piece)
