"""Interpreters: which of their words are a program's text, and when they read one from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coupler.permission.word import Word
from coupler.permission.wrapper import program_name

_CODE_LETTERS = {
    **dict.fromkeys(("python", "pypy", "ipython"), "c"),
    "perl": "eEMmd",
    "ruby": "e",
    **dict.fromkeys(("node", "nodejs", "bun", "tsx", "ts-node"), "ep"),
    "deno": "",
    "php": "rBREd",
    "lua": "e",
    "luajit": "e",
    **dict.fromkeys(("rscript", "r", "ghc", "ghci", "groovy", "elixir", "scala", "gnuplot", "racket"), "e"),
    **dict.fromkeys(("ocaml", "swift"), "e"),
    "tcc": "r",
    "julia": "eE",
    "guile": "ce",
    "swipl": "gt",
    **dict.fromkeys(("octave", "irb", "tclsh", "wish", "jshell", "erl", "sbcl"), ""),
    **dict.fromkeys(("vim", "nvim", "vi", "view", "gvim", "rvim", "vimdiff"), "cSsuUWwe"),
    "emacs": "flx",
}
_EDITORS = frozenset({"vim", "nvim", "vi", "view", "gvim", "rvim", "vimdiff", "emacs"})
_CODE_WORDS = frozenset(
    {
        *("eval", "exec", "repl", "--eval", "--print", "--execute", "--run", "--cmd", "-eval"),
        *("--import", "--loader", "--experimental-loader", "--funcall", "--load", "--script"),
        *("--process-begin", "--process-code", "--process-end"),
    }
)
_FLAGS = {
    **dict.fromkeys(("python", "pypy"), "uBIEsSOqvbdPmx"),
    "perl": "wTtUWXlnpasfc",
    "ruby": "wvanpls",
    "php": "fnqlsw",
}
"""Letters of options that take no further word, or (`-m`) one that says what to run."""
_LONG_FLAGS = frozenset({"--test", "--watch", "--no-warnings", "--enable-source-maps", "--check"})
_ASKING = frozenset({"--version", "-version", "-V", "-VV", "-v", "--help", "-help", "-h"})
_CODE_MODULES = frozenset({"timeit", "code", "asyncio", "pdb"})


def interpreted_at(words: Sequence[Word]) -> int | None:
    """The place of the first word that may be a program's text; behind the last if none has it.

    Where an option of the interpreter ends and one of a script begins is not known here: any will do.
    """
    letters = _letters(words[0])
    if letters is None:
        return None
    for place, word in enumerate(words[1:], 1):
        if not word.is_plain or _hands_over(word.text, letters):
            return place
        if word.text in _CODE_MODULES and words[place - 1].text.endswith("m"):
            return place
    return None if _has_script(words) else len(words)


def is_interpreter(word: Word) -> bool:
    """Whether the program can be handed a program's text."""
    return _letters(word) is not None


def _letters(word: Word) -> str | None:
    return _CODE_LETTERS.get(_name(word))


def _name(word: Word) -> str:
    return re.sub(r"[\d.]+w?$", "", program_name(word.text))


def _hands_over(text: str, letters: str) -> bool:
    if text == "-" or text.partition("=")[0] in _CODE_WORDS or text.startswith(("+", "/dev/", "/proc/")):
        return True
    return re.match(r"-[A-Za-z0-9]", text) is not None and any(letter in text[1:] for letter in letters)


def _has_script(words: Sequence[Word]) -> bool:
    """Whether it is told what to run: without that it runs what it reads."""
    name = _name(words[0])
    if name in _EDITORS or any(word.text in _ASKING for word in words[1:2]):
        return True
    return any(
        not word.text.startswith("-") and (place == 1 or _takes_no_value(words[place - 1].text, name))
        for place, word in enumerate(words)
        if place
    )


def _takes_no_value(text: str, name: str) -> bool:
    """Whether the word after this one is none that belongs to it."""
    if not text.startswith("-") or text in _LONG_FLAGS or (text.startswith("--") and "=" in text):
        return True
    return not text.startswith("--") and set(text[1:]) <= set(_FLAGS.get(name, ""))
