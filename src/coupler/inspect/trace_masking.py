"""A trace without secrets, as it is written to a file: the lines that hold none stay as they were.

A trace is for people, so everything in it is masked that `record_masking` masks in a recording. It is whole
when it is written: a text that came in pieces is looked through as one, whatever stands between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.agent.output import TOO_DEEP
from coupler.inspect.record_masking import Pieces, Screen, known_secrets, piece_of, with_text

if TYPE_CHECKING:
    from coupler.inspect.trace import Entry
    from coupler.redaction.masker import Masker
    from coupler.redaction.sources import Secret


class TraceScreen:
    """Masks the lines of one trace and what was printed beside them."""

    def __init__(self, entries: Sequence[Entry], secrets: Iterable[Secret]) -> None:
        self._screen = Screen(known_secrets(secrets))
        for entry in entries:
            self._screen.learn(entry.message)
        self._texts = _texts(entries, self._screen.masker)

    def mask(self, text: str) -> str:
        """A text that was printed."""
        return self._screen.masker.mask(text)

    def line(self, entry: Entry) -> bytes:
        """The entry's line as it may be shown."""
        try:
            value = msgspec.json.decode(entry.line)
            shown = self._frame(value, self._texts.get(entry.number))
        except RecursionError:
            return msgspec.json.encode(TOO_DEEP)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._screen.masker.mask_bytes(entry.line)
        return entry.line if shown is value else msgspec.json.encode(shown)

    def _frame(self, value: Any, text: str | None) -> Any:
        shown = self._screen.masked(value)
        if text is None or text == shown["params"]["update"]["content"]["text"]:
            return shown
        return with_text(shown, text)


def _texts(entries: Sequence[Entry], masker: Masker) -> dict[int, str]:
    """The text of each line that is a piece of one."""
    runs: dict[tuple[Any, str], tuple[Pieces, list[int]]] = {}
    for entry in entries:
        piece = piece_of(entry.message)
        if piece is not None:
            session, kind, text = piece
            pieces, numbers = runs.setdefault((session, kind), (Pieces(), []))
            pieces.add(text, masker)
            numbers.append(entry.number)
    return {
        number: text
        for pieces, numbers in runs.values()
        for number, text in zip(numbers, pieces.release(masker), strict=True)
    }
