"""Scripts of sed and awk, and of shells of databases: only those that do nothing but change text.

All of these languages can start commands and write files. What is not known to be harmless is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coupler.permission.options import UnknownOptionError
from coupler.permission.word import Word

_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/I?)"
_SUBSTITUTION = r"s([/|,#@:])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpIi0-9]*"
_COMMAND = rf"(?:{_ADDRESS}(?:,[+~]?{_ADDRESS})?)?\s*!?\s*(?:[pdqQDPNngGhHx=lz]|{_SUBSTITUTION})?"
_HARMLESS_SED = re.compile(rf"\s*{_COMMAND}\s*", re.ASCII)
_SED_FLAGS = re.compile(
    r"-[nErszu]+|--quiet|--silent|--regexp-extended|--posix|--debug|--in-place|--separate"
)
_SED_IN_PLACE = re.compile(r"-[nErszu]*i(?:\.\w+)?")
_AWK_OPTIONS = re.compile(r"-[Fv]?|-[Fv].+|--|--posix|--field-separator=.*|--assign=.*", re.DOTALL)

_COMMAND_OF_CLIENT = re.compile(r"\\|(?:^|\s)\.[a-z]|\||system|program|file|extension", re.IGNORECASE)


def check_sed(words: Sequence[Word]) -> None:
    """Raises UnknownOptionError unless the script can only change text."""
    if not all(word.is_plain for word in words):
        raise UnknownOptionError("is given words that are only known when it runs")
    scripts: list[str] = []
    operands: list[str] = []
    given = iter(word.text for word in words)
    for text in given:
        if text in {"-e", "--expression"}:
            scripts.append(next(given, ""))
        elif text.startswith("--expression="):
            scripts.append(text.partition("=")[2])
        elif text.startswith("-") and len(text) > 1:
            _check_sed_option(text)
        else:
            operands.append(text)
    for script in scripts or operands[:1]:
        _check_sed_script(script)


def _check_sed_option(text: str) -> None:
    if not _SED_FLAGS.fullmatch(text) and not _SED_IN_PLACE.fullmatch(text):
        raise UnknownOptionError(f"has the option {text}, which cannot be judged")


def _check_sed_script(script: str) -> None:
    if _HARMLESS_SED.fullmatch(script):
        return
    # A separator within an expression leaves pieces that are no commands, and so in doubt.
    if not all(_HARMLESS_SED.fullmatch(piece) for piece in re.split(r"[;\n]", script)):
        raise UnknownOptionError("has a script that may start commands or write files")


def check_awk(words: Sequence[Word]) -> None:
    """Raises UnknownOptionError unless the program is there to be read, and only prints."""
    operand = next((word for word in words if not word.text.startswith("-") or not word.is_plain), None)
    if operand is None or not operand.is_plain:
        raise UnknownOptionError("has a program that is only known when it runs")
    for word in words:
        if word.text.startswith("-") and not _AWK_OPTIONS.fullmatch(word.text):
            raise UnknownOptionError(f"has the option {word.text}, which cannot be judged")
        if re.search(r"system|getline|[|>@]", word.text):
            raise UnknownOptionError("has a program that starts commands or writes files")


def check_database(words: Sequence[Word]) -> None:
    """Raises UnknownOptionError unless there is a statement, and no command of the client's own."""
    if not any(" " in word.text for word in words):
        raise UnknownOptionError("reads its commands from elsewhere")
    for word in words:
        if not word.is_plain or _COMMAND_OF_CLIENT.search(word.text):
            raise UnknownOptionError("may be given commands that start others or write files")
