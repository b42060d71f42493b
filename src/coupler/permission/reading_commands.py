"""Knows which commands only read: programs that change nothing, with options that start nothing.

A mode in which nothing may change runs these and no others. So what is not known here is taken to change
something: a program by its path, an option of a program that has harmful ones, a word that is only known when
the command runs where it could be such an option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from coupler.permission.command_words import Word
from coupler.permission.programs import inline_code_at
from coupler.permission.reach import is_harmless_output

WRAPPERS = frozenset({"cd", "timeout", "gtimeout", "time", "nice", "command", "builtin"})
"""Programs that may stand around a command that only reads, and do nothing by themselves."""

_READS_WITH_ANY_WORDS = frozenset(
    {
        *("cat", "head", "tail", "wc", "cut", "tr", "nl", "od", "hexdump", "fold", "fmt", "rev", "tac"),
        *("paste", "join", "comm", "cmp", "ls", "dir", "stat", "df", "basename", "dirname", "pwd", "echo"),
        *("printf", "true", "false", ":", "test", "[", "seq", "expr", "uname", "whoami", "id", "nproc"),
        *("which", "realpath", "readlink", "md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "jq"),
        *("awk", "gawk", "mawk", "nawk"),
    }
)
"""Programs without options that write or start others. Programs in awk's language are judged elsewhere."""

_OPTIONS_OF = {
    "sort": r"-[bdfghiMnRrVcCsuz]+|-[bdfghiMnRrVcCsuz]*[kt].*"
    r"|--(?:numeric|general-numeric|human-numeric|version|random)-sort|--(?:reverse|unique|ignore-case|stable|check|zero-terminated|key=.*|field-separator=.*)",
    "uniq": r"-[cdDiuz]+|--(?:count|repeated|unique|ignore-case|zero-terminated)",
    "sed": r"-[nErsuz]+|-e|--(?:quiet|silent|regexp-extended|posix|expression=.*)",
    "gsed": r"-[nErsuz]+|-e|--(?:quiet|silent|regexp-extended|posix|expression=.*)",
    "file": r"-[bihkL]+|--(?:brief|mime|mime-type|mime-encoding|dereference)",
    "date": r"-[uR]+|-I[a-z]*|-d|--(?:utc|rfc-email|iso-8601(?:=[a-z]+)?|rfc-3339=[a-z]+|date=.*)",
    "tree": r"-[adfilpsughDFrtUvxnACQNJXq]+|-[LIP]|--(?:dirsfirst|gitignore|noreport|filelimit|du|prune)",
    "du": r"-[abchklmsSxH0]+|-[dt]\d*|--(?:max-depth|exclude|threshold)=.*|--(?:all|bytes|total"
    r"|human-readable|summarize|apparent-size|si)",
}
"""The options that are known to be harmless, of programs that have others."""

_HARMFUL_OPTIONS = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), r"-[a-zA-Z0-9]*[rRdD].*|--(?:d.*|re?|rec.*)"),
    "diff": r"-[a-zA-Z0-9]*r.*|--rec.*|--r",
    "rg": r"--pre(?!tty$).*|--hostname-bin.*|-[a-zA-Z0-9]*[zuL.].*"
    r"|--(?:search-zip|hidden|no-ignore.*|unrestricted|follow)",
    "find": r"-(?:exec|execdir|ok|okdir|delete|fprint|fprint0|fprintf|fls|files0-from)",
}
"""The options that write, start programs or read whatever is found, of programs whose others are harmless."""

_UNKNOWN_FILES = re.compile(r"--files0.*")
_ONLY_GLOB = re.compile(r"[\w./][\w./*?\[\],-]*", re.ASCII)
"""A word with wildcards that cannot become an option: its first character is written."""

_GIT_BEFORE_COMMAND = frozenset({"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"})
_GIT_READS = frozenset(
    {
        *("log", "show", "diff", "status", "blame", "annotate", "shortlog", "describe", "rev-parse"),
        *("rev-list", "ls-files", "ls-tree", "cat-file", "grep", "merge-base", "name-rev", "show-ref"),
        *("for-each-ref", "diff-tree", "whatchanged", "count-objects", "check-ignore", "check-attr"),
        *("cherry", "range-diff", "version"),
    }
)
_GIT_HARMFUL = (
    *("--output", "--output-directory", "--ext-diff", "--textconv", "--filters", "--show-signature"),
    *("--open-files-in-pager", "--recurse-submodules", "--submodule", "--dirty", "--broken", "--paginate"),
    *("--git-dir", "--work-tree", "--upload-pack", "--exec"),
)
"""Options of git that write, start programs or look into other repositories; git takes abbreviations."""
_GIT_HARMLESS = frozenset({"--oneline", "--text", "--extended-regexp"})
_OF_GREP = ("--no-index", "--untracked", "--no-exclude-standard")
"""Options with which `git grep` reads files that are in no repository."""
_SHORTEST = len("--o")
_LISTING = r"--(?:list|contains|no-contains|merged|no-merged|points-at)(?:=.*)?"
_GIT_LISTS = {
    "branch": r"-[arvi]+|-vv|--(?:all|remotes|verbose|show-current|ignore-case|(?:sort|format|abbrev)=.*)"
    rf"|{_LISTING}",
    "tag": rf"-[li]|-n\d*|--(?:ignore-case|(?:sort|format)=.*)|{_LISTING}",
}
"""Options by which these subcommands list; without one of _LISTING, an operand is what they make."""
_GIT_SUBCOMMANDS = {
    "remote": frozenset({"-v", "--verbose", "get-url"}),
    "stash": frozenset({"list", "show"}),
    "worktree": frozenset({"list"}),
    "reflog": frozenset({"show"}),
}
"""Words that must follow these subcommands."""
_NEED_NO_WORD = frozenset({"remote", "reflog"})


def why_not_reading(words: Sequence[Word], *, is_wrapper: bool, moves: bool) -> str | None:
    """Return why a command is not known to only read; None if it is.

    `moves` says that its line changes the directory.
    """
    if not words or not words[0].is_plain:
        return "is only known when it runs"
    name = words[0].text
    if is_wrapper:
        return None if name in WRAPPERS else f"starts others by `{name}`"
    if inline_code_at(words) is not None and name not in {"git"}:
        return "has an option that writes or starts a program"
    if name == "command" and words[1].text in {"-v", "-V"}:
        return None
    if name in _READS_WITH_ANY_WORDS:
        return _of_any_words(words)
    look = _LOOKS.get(name)
    if look is None:
        return "is not known to only read"
    if not all(_is_certain(word) for word in words):
        return "has words that are only known when it runs"
    if name == "git" and moves:
        return "is git behind `cd`: name the directory in the argument `directory`"
    return look(name, [_text(word) for word in words[1:]])


def _of_any_words(words: Sequence[Word]) -> str | None:
    if any(_UNKNOWN_FILES.match(word.text) for word in words[1:]):
        return "reads files that are only known when it runs"
    return None


def _is_certain(word: Word) -> bool:
    """True if a word is known, or at least can be no option."""
    if word.is_plain:
        return True
    return _ONLY_GLOB.fullmatch(word.source) is not None or is_harmless_output(word.source.strip('"'))


def _text(word: Word) -> str:
    return word.text if word.is_plain else word.source


def _with_known_options(name: str, texts: Sequence[str]) -> str | None:
    shape = re.compile(_OPTIONS_OF[name], re.DOTALL)
    for at, text in enumerate(texts):
        is_option = text.startswith("-") and text != "-"
        if is_option and not shape.fullmatch(text) and not _is_value(name, texts, at):
            return f"has the option {text}, which is not known to only read"
    operands = [text for text in texts if not text.startswith("-")]
    if name == "uniq" and operands:
        return "may write its second file: use `sort -u`, or give it one by `<`"
    if name == "date" and any(
        text[:1] not in {"+", "-"} and not _is_value(name, texts, at) for at, text in enumerate(texts)
    ):
        return "may set the clock"
    return None


_VALUED = {"sort": {"-k", "-t"}, "sed": {"-e"}, "gsed": {"-e"}, "date": {"-d"}, "tree": {"-L", "-I", "-P"}}


def _is_value(name: str, texts: Sequence[str], at: int) -> bool:
    """True if a word is the value of the option before it."""
    return at > 0 and texts[at - 1] in _VALUED.get(name, ())


def _without_harmful_options(name: str, texts: Sequence[str]) -> str | None:
    shape = re.compile(_HARMFUL_OPTIONS[name], re.DOTALL)
    for text in texts:
        if shape.fullmatch(text):
            how = "writes, starts a program, or reads whatever it finds"
            return f"has the option {text}, which {how}: the tools search and find_files do not"
    return None


def _git(name: str, texts: Sequence[str]) -> str | None:
    rest = list(texts)
    if rest == ["--version"]:
        return None
    while rest and rest[0] in _GIT_BEFORE_COMMAND:
        rest.pop(0)
    if not rest or rest[0].startswith("-"):
        return f"has the option {rest[0]} before its subcommand" if rest else "has no subcommand"
    command, *further = rest
    for text in _options_in(further):
        if _is_harmful_to_git(command, text):
            return f"has the option {text}, which writes, starts a program or leads elsewhere"
    if command in _GIT_READS:
        return None
    if command in _GIT_LISTS:
        return _listing(command, further)
    if command in _GIT_SUBCOMMANDS:
        wanted = _GIT_SUBCOMMANDS[command]
        is_known = further[0] in wanted if further else command in _NEED_NO_WORD
        is_whole = command != "remote" or len(further) <= 1 or further[0] == "get-url"
        return None if is_known and is_whole else f"may change something by `git {command}`"
    return f"may change something by `git {command}`"


def _options_in(texts: Sequence[str]) -> Sequence[str]:
    """Return the words that git may take for options: those before `--`."""
    end = texts.index("--") if "--" in texts else len(texts)
    return [text for text in texts[:end] if text.startswith("-") and text != "-"]


def _is_harmful_to_git(command: str, text: str) -> bool:
    option = text.partition("=")[0]
    if text in {"--ignore-submodules", "--ignore-submodules=all"} or option in _GIT_HARMLESS:
        return False
    if command == "grep" and re.fullmatch(r"-[a-zA-Z]*O.*", text):
        return True
    harmful = (*_GIT_HARMFUL, "--ignore-submodules", *(_OF_GREP if command == "grep" else ()))
    return len(option) >= _SHORTEST and any(
        each.startswith(option) or option.startswith(each) for each in harmful
    )


def _listing(command: str, further: Sequence[str]) -> str | None:
    options = [text for text in further if text.startswith("-")]
    unknown = next((text for text in options if not re.fullmatch(_GIT_LISTS[command], text)), None)
    if unknown is not None:
        return f"has the option {unknown}, which is not known to only read"
    lists = any(
        re.fullmatch(_LISTING, text) or (command == "tag" and text[:2] in {"-l", "-n"}) for text in options
    )
    if len(options) < len(further) and not lists:
        return f"may make a {command}: add --list"
    return None


_LOOKS: dict[str, Callable[[str, Sequence[str]], str | None]] = {
    **dict.fromkeys(_OPTIONS_OF, _with_known_options),
    **dict.fromkeys(_HARMFUL_OPTIONS, _without_harmful_options),
    "git": _git,
}
