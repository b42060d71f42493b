"""Interpreters that are given their program in a word: such a program can do anything.

A rule for `python *` is meant for scripts; only one that has the option itself, `python -c *`, means code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coupler.permission.word import Word
from coupler.permission.wrapper import program_name

_CODE_LETTERS = {
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "nodejs": "ep",
    "bun": "ep",
    "php": "rBRE",
    "lua": "e",
    "rscript": "e",
    "julia": "eE",
    "ghc": "e",
    "groovy": "e",
    "elixir": "e",
    "vim": "cS",
    "nvim": "cS",
    "vi": "cS",
    "emacs": "",
}
# Options of other programs that hand over a command, a setting that is one, or a file to write. A long one
# may be abbreviated.
_STARTING_OPTIONS = {
    "git": (
        *(
            "--exec-path",
            "--config-env",
            "--upload-pack",
            "--receive-pack",
            "--exec",
            "--ext-diff",
            "--extcmd",
        ),
        *("--open-files-in-pager", "--output", "--git-dir", "--work-tree", "--template", "--textconv"),
    ),
    "make": ("--eval", "--file", "--makefile", "--directory", "--include-dir"),
    "gmake": ("--eval", "--file", "--makefile", "--directory", "--include-dir"),
    "tar": (
        "--to-command",
        "--checkpoint-action",
        "--use-compress-program",
        "--rsh-command",
        "--info-script",
    ),
    "rsync": ("--rsh", "--rsync-path"),
    "cargo": ("--config",),
    "npm": ("--script-shell", "--prefix", "--node-options", "--userconfig", "--globalconfig"),
    "sort": ("--compress-program", "--output"),
    "pytest": ("--override-ini", "--rootdir", "--confcutdir"),
}
_STARTING_LETTERS = {"make": "fCEI", "gmake": "fCEI", "tar": "IF", "rsync": "e", "sort": "o"}
_GIT_BEFORE_COMMAND = ("-c", "-C")

STARTING_COMMANDS = frozenset(
    {
        *(("git", name) for name in ("config", "bisect", "submodule", "filter-branch", "rebase")),
        *(("git", name) for name in ("difftool", "mergetool", "send-email")),
        *(("npm", name) for name in ("exec", "x", "explore", "config")),
        *(("docker", name) for name in ("run", "exec", "create", "buildx", "plugin")),
        *(("uv", name) for name in ("run", "tool")),
        *(("kubectl", name) for name in ("exec", "run", "debug", "plugin")),
        ("cargo", "run"),
    }
)
"""Commands of programs whose further words are programs of their own, or settings that start some."""

_CODE_WORDS = frozenset({"eval", "exec", "--eval", "--print", "--execute", "--run", "--cmd", "-eval"})


def inline_code_at(words: Sequence[Word]) -> int | None:
    """The place of the first word that may hand over a program's text, if there is one.

    Where an option of the interpreter ends and one of a script begins is not known here: any will do.
    """
    if not words:
        return None
    name = program_name(words[0].text)
    if len(words) > 1 and (name, words[1].text) in STARTING_COMMANDS:
        return 1
    if name in _STARTING_OPTIONS:
        return next((place for place in range(1, len(words)) if _may_start(name, place, words)), None)
    letters = _letters(words[0])
    if letters is None:
        return None
    for place, word in enumerate(words[1:], 1):
        if not word.is_plain or _hands_over(word.text, letters):
            return place
    return None


def _may_start(name: str, place: int, words: Sequence[Word]) -> bool:
    """A word that only the shell knows may be any option, unless it is the text of a message."""
    word = words[place]
    is_message = word.is_one and words[place - 1].is_plain and words[place - 1].text == "-m"
    if name == "git" and word.text.startswith(_GIT_BEFORE_COMMAND) and words[1].text.startswith("-"):
        return True
    return (not word.is_plain and not is_message) or _starts(name, place, word.text)


def _starts(name: str, place: int, text: str) -> bool:
    """Whether an option of a program starts another one, or a setting of `make` may."""
    if text.startswith("--"):
        given = text.partition("=")[0]
        return given != "--" and any(option.startswith(given) for option in _STARTING_OPTIONS[name])
    if name.endswith("make") and "=" in text:
        return True
    has_letters = text.startswith("-") or (name == "tar" and place == 1)
    return has_letters and any(letter in text for letter in _STARTING_LETTERS.get(name, ""))


def is_interpreter(word: Word) -> bool:
    """Whether the program can be handed a program's text."""
    return _letters(word) is not None


def _letters(word: Word) -> str | None:
    name = re.sub(r"[\d.]+w?$", "", program_name(word.text))
    return _CODE_LETTERS.get(name)


def _hands_over(text: str, letters: str) -> bool:
    if text == "-" or text.partition("=")[0] in _CODE_WORDS:
        return True
    return re.match(r"-[A-Za-z0-9]", text) is not None and any(letter in text[1:] for letter in letters)
