"""Words that hand over a program's text, or another program: such a word can do anything.

A rule for `python *` is meant for scripts; only one that has the option itself, `python -c *`, means code.
"""

from __future__ import annotations

from collections.abc import Sequence

from coupler.permission import starter
from coupler.permission.interpreter import interpreted_at
from coupler.permission.word import Word
from coupler.permission.wrapper import program_name

_GIT_BEFORE_COMMAND = ("-c", "-C")
_SHORTEST_ABBREVIATION = 3
_PROGRAMS_WITH_COMMANDS = frozenset(program for program, _ in starter.COMMANDS)


def inline_code_at(words: Sequence[Word]) -> int | None:
    """The place of the first word that may hand over a program's text, if there is one.

    It is behind the last word if the text comes from elsewhere.
    """
    if not words:
        return None
    name = program_name(words[0].text)
    if name in starter.WHOLE:
        return 0
    command = _starting_command_at(name, words)
    if command is not None:
        return command
    if name in starter.OPTIONS:
        return next((place for place in range(1, len(words)) if _may_start(name, place, words)), None)
    return interpreted_at(words)


def starts_others(program: str, command: str) -> bool:
    """Whether the further words of a program's command are programs, or settings that start some."""
    if (program, command) in starter.COMMANDS:
        return True
    is_abbreviated = program in starter.ABBREVIATING and len(command) >= _SHORTEST_ABBREVIATION
    return is_abbreviated and any(
        program == known and name.startswith(command) for known, name in starter.COMMANDS
    )


def _starting_command_at(name: str, words: Sequence[Word]) -> int | None:
    """Where such a command stands: after options of the program, whose values are not known, anywhere."""
    if len(words) < 2 or name not in _PROGRAMS_WITH_COMMANDS:
        return None
    has_more = words[1].text.startswith(("-", "+")) or (name, words[1].text) in starter.GROUPS
    candidates = range(1, len(words) if has_more else 2)
    return next(
        (at for at in candidates if not words[at].is_plain or starts_others(name, words[at].text)), None
    )


def _may_start(name: str, place: int, words: Sequence[Word]) -> bool:
    """A word that only the shell knows may be any option, unless it is the text of a message."""
    word = words[place]
    is_message = word.is_one and words[place - 1].is_plain and words[place - 1].text == "-m"
    if name == "git" and word.text.startswith(_GIT_BEFORE_COMMAND) and words[1].text.startswith("-"):
        return True
    letters = _letters(name, words)
    return (not word.is_plain and not is_message) or _starts(name, place, word.text, letters)


def _letters(name: str, words: Sequence[Word]) -> str:
    if name != "git":
        return starter.LETTERS.get(name, "")
    return "".join(starter.LETTERS_OF_GIT.get(word.text, "") for word in words[1:])


def _starts(name: str, place: int, text: str, letters: str) -> bool:
    """Whether an option of a program starts another one, or a setting of `make` may."""
    if text.startswith(starter.BEGINNINGS.get(name, ())):
        return True
    if text.startswith("--") or (name in starter.ONE_DASH and len(text) > 2 and text.startswith("-")):
        given = f"--{text.partition('=')[0].lstrip('-')}"
        return given != "--" and any(option.startswith(given) for option in starter.OPTIONS[name])
    if name.endswith("make") and "=" in text:
        return True
    has_letters = text.startswith("-") or (name == "tar" and place == 1)
    return has_letters and any(letter in text for letter in letters)
