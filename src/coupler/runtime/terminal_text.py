"""Makes text safe for a terminal: it cannot move the cursor, change colours, hide or reorder anything.

Text may come from a model, from the output of a program or from a file of somebody else. The patterns are
compiled on use, because programs that an editor waits for print a line, too.
"""

from __future__ import annotations

import re
from functools import cache

ESCAPE_SEQUENCES = (
    # Strings for the terminal, such as a window's title; colours and moves of the cursor; the rest.
    "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\n\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)

ESCAPE_SEQUENCES_IN_QUOTES = (
    "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^ \x07\n\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*[@-~]"
    "|\x1b\\([0AB]"
)
"""The usual ones, as far as no space is in them: what is opened in a quotation takes no word along."""

LINE_ENDS = "\r\n|[\r\u2028\u2029]"

INVISIBLE = (
    # Marks that set the direction of text, and characters that nobody sees, tags among them. The joiners of
    # emoji and of Persian or Indian words stay.
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
"""Characters that are not shown, or turn others around; for use between the brackets of a pattern."""

CONTROLS = f"\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE}"
"""All that does not stay in a text; tabs and line ends do. For use between the brackets of a pattern."""

SURROGATES = "[\ud800-\udfff]"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def clean(text: str) -> str:
    """Removes everything from a text that a terminal would obey or not show; lines and tabs stay."""
    return _without(ESCAPE_SEQUENCES, text)


def clean_sentence(text: str) -> str:
    """Cleans a text that quotes others: what begins in a quotation hides no words of the text around it.

    Of rare escape sequences, and of those with a space in them, only the control characters are removed.
    """
    return _without(ESCAPE_SEQUENCES_IN_QUOTES, text)


def _without(sequences: str, text: str) -> str:
    # What commands print is mostly such lines: looking through millions of them for more would take minutes.
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    text = _compiled(LINE_ENDS).sub("\n", _compiled(sequences).sub("", text))
    return _compiled(SURROGATES).sub("\ufffd", _compiled(f"[{CONTROLS}]").sub("", text))


def one_line(text: str) -> str:
    """Cleans a text, which may quote others, and puts it on one line."""
    return " ".join(clean_sentence(text).split())


def terminal_safe_json(text: str) -> str:
    """Escapes everything in JSON that a terminal would obey or not show; it means the same."""
    # JSON lets these stand as they are inside strings.
    return _compiled(f"[\x7f-\x9f\u2028\u2029{INVISIBLE}]").sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    encoded = match[0].encode("utf-16-be")
    return "".join(f"\\u{encoded[at : at + 2].hex()}" for at in range(0, len(encoded), 2))
