"""Finds what a command reaches: files, secrets that it prints, other processes, programs that it starts.

A rule allows a command with any words. A mode allows all commands at once, and means those that stay in the
project; and rules that deny or ask about paths mean the words of commands as well. Both ask `Reach`, which
looks only when it is asked: most commands are decided by their words alone.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from urllib.parse import unquote

from coupler.permission.action import Budget
from coupler.permission.command_words import Line, Word
from coupler.permission.effects import (
    TEXT_OPTIONS,
    WITH_SCRIPT,
    changed_words,
    goes_beyond,
    hands_on,
    reads_nothing,
    takes_messages,
    writes_only,
)
from coupler.permission.expansion import Scope
from coupler.permission.patterns import glob, has_wildcard
from coupler.permission.places import UNKNOWN, Reading
from coupler.permission.programs import has_known_options, program_name
from coupler.redaction.sources import looks_secret
from coupler.runtime.paths import (
    ResolvedPath,
    UnresolvablePathError,
    resolve_path,
)

MOST_FOUND = 2000
"""Most files that the wildcards of one word are expanded to; with more, the word counts as the root."""

MOST_LETTERS = 8
"""Most short options in one word behind which a value may be attached."""

MOST_DIRECTORIES = 8
"""Most directories of one line, from which a word may name a file; with more, it may be any."""

ANYWHERE = ResolvedPath(os.sep, (os.sep,), (os.sep,))
"""Stands for files that are only known when a command runs: they may be anywhere."""

_OF_A_PROCESS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:cwd|root|fd)\b|/dev/fd/")
"""Paths by which a process means any file that it has open, or its directory."""
_PLACES = frozenset({"PWD", "OLDPWD"})
"""Variables that name directories, although they are called like passwords."""
_DEVICES = re.compile(r"/dev/(?:null|zero|full|u?random|std(?:in|out|err)|tty|fd/\d+)")
_BETWEEN_PARTS = re.compile(r"[=:,@]")
_LETTERS = re.compile(r"-[A-Za-z0-9#]+")
_SCHEMES = (
    *("https?", "ftps?", "sftp", "scp", "ssh", "git", "svn", "hg", "rsync", "wss?", "s3", "gs", "gcs", "oci"),
    *(
        "docker",
        "docker-image",
        "postgres(?:ql)?",
        "mysql",
        "mariadb",
        "rediss?",
        "mongodb",
        "amqps?",
        "nats",
    ),
    *("kafka", "tcp", "udp", "mqtts?", "ldaps?", "smtps?", "imaps?", "grpc", "chrome", "vscode"),
)
_ADDRESS = re.compile(
    rf"(?<![\w./+-])(?:\w+\+)?(?:{'|'.join(_SCHEMES)})(?:\+\w+)?://[^\s\"'<>]*", re.IGNORECASE
)
"""An address on the network, which names no file."""
_FILE_ADDRESS = re.compile(r"(?<![A-Za-z0-9])file:(?://[^/]*)?(?P<path>/.*)", re.IGNORECASE | re.DOTALL)
_DATABASE = re.compile(r"(?<!\w)sqlite(?:\+\w+)?:///", re.IGNORECASE)
"""The beginning of an address of a database, before its path from the working directory."""
_REPLACED_IN_ADDRESS = re.compile(r"[{}\[\]%?#\\]")
_HARMLESS_OUTPUT = re.compile(
    r"\$\((?:nproc|seq [\d ]+|id -[ug]|uname(?: -[a-z])?|date \+%[sYmdHMSF]+"
    r"|git rev-parse (?:--short )?HEAD|git merge-base [\w-]+ [\w-]+)\)",
    re.ASCII,
)
"""Substitutions of which the output is a number, a date or the name of a commit, and so no secret file's."""


def is_harmless_output(source: str) -> bool:
    """True if a piece of a line is a substitution with a number, a date or a commit's name as its output."""
    return _HARMLESS_OUTPUT.fullmatch(source) is not None


class Reach:
    """Finds the files, secrets and processes that one command reaches, from each directory it may run in."""

    def __init__(
        self, words: Sequence[Word], surroundings: Surroundings, directories: Sequence[str], budget: Budget
    ) -> None:
        self._words = words
        self._surroundings = surroundings
        self._directories = directories[:MOST_DIRECTORIES]
        self._budget = budget
        self._is_unknown = len(directories) > MOST_DIRECTORIES
        """True if some word, or more of what its wildcards stand for, is only known when it runs."""
        self._name = program_name(words[0].text) if words else ""

    @cached_property
    def places(self) -> tuple[ResolvedPath, ...]:
        """Paths that it may name, and directories that its line enters; ANYWHERE if one is unknown."""
        if not self._words:
            return ()
        named = dict.fromkeys(place for word in self._positions for place in self._named_by(word))
        self._is_unknown = self._is_unknown or ANYWHERE in named
        entered = (self._surroundings.place(path) for path in self._surroundings.entered[:MOST_DIRECTORIES])
        unknown = (ANYWHERE,) if self._is_unknown else ()
        return (*unknown, *named, *entered)

    @cached_property
    def is_vague(self) -> bool:
        """True if it may touch files that are not among its places."""
        self.places  # noqa: B018  # finds out what is unknown
        return self._is_unknown or any(word.is_found for word in self._words[1:])

    @cached_property
    def in_each_directory(self) -> Sequence[Reach]:
        """The same command in each of its directories by itself, if it may run in several."""
        if len(self._directories) in {1, MOST_DIRECTORIES}:
            return (self,)
        return [Reach(self._words, self._surroundings, (each,), self._budget) for each in self._directories]

    @property
    def is_reader(self) -> bool:
        """True if it may read the files that it names."""
        return not reads_nothing(self._name) and not writes_only(self._words)

    @property
    def is_writer(self) -> bool:
        """True if it is known to write files that it names."""
        return any(True for _ in changed_words(self._words))

    @cached_property
    def changes(self) -> tuple[tuple[str, ResolvedPath], ...]:
        """The paths that it is known to write, each with the kind of the change."""
        found: list[tuple[str, ResolvedPath]] = []
        for change in changed_words(self._words):
            for place in self._named_by_word(
                self._words[change.at], change.skipped, is_written=change.at in self._written
            ):
                is_whole = change.kind != "edit" and any(map(os.path.isdir, place.targets))
                found.append((change.kind if is_whole else "edit", place))
                inner = (os.path.join(place.shown, source) for source in change.put_in)
                found += [("edit", self._surroundings.place(path)) for path in inner]
        return tuple(found)

    @cached_property
    def is_beyond(self) -> bool:
        """True if a mode for all commands does not mean it: it reaches more than files of the project."""
        return (
            goes_beyond(self._words, self._directories[0], self._budget)
            or self._surroundings.shows_secrets
            or (hands_on(self._name) and any(map(self._surroundings.is_secret, self._words[1:])))
        )

    @cached_property
    def starting_options(self) -> Sequence[int]:
        """Positions of options of an unknown program whose values may be commands, or are paths elsewhere."""
        return starting_options(self._words, self._directories[0], self._is_elsewhere)

    def _is_elsewhere(self, text: str) -> bool:
        """True if a text is a path outside of the session's directories."""
        path = os.path.expanduser(text)
        if _DEVICES.fullmatch(path) or not (os.path.isabs(path) or ".." in path.split(os.sep)):
            return False
        if os.path.isabs(path) and not _is_path(path, path):
            return False
        roots = self._surroundings.roots
        places = [self._surroundings.place(os.path.join(each, path)) for each in self._directories]
        return not all(place.is_inside(roots) for place in places)

    @cached_property
    def _written(self) -> frozenset[int]:
        """Positions of words that are paths and nothing else, whether or not there is such a file."""
        if self._name in WITH_SCRIPT:
            return frozenset()
        return frozenset(change.at for change in changed_words(self._words))

    @property
    def _positions(self) -> Iterable[int]:
        return range(1, len(self._words))

    def _named_by(self, at: int) -> Iterator[ResolvedPath]:
        """Yield the paths that the word at a position may name."""
        word = self._words[at]
        if word.is_found:
            return
        options = (self._words[at - 1].text, word.text.partition("=")[0])
        is_message = takes_messages(self._name) and any(option in TEXT_OPTIONS for option in options)
        if (word.is_plain and "\n" not in word.text) or not is_message:
            yield from self._named_by_word(word, is_written=at in self._written)

    def _named_by_word(
        self, word: Word, skipped: int = 0, *, is_written: bool = False
    ) -> Iterator[ResolvedPath]:
        is_silent = reads_nothing(self._name)
        if is_silent and word.is_plain:
            return
        for reading in self._surroundings.readings(word):
            is_pattern = reading.is_pattern and has_wildcard(reading.text)
            if is_silent and not is_pattern:
                continue  # only the shell reads directories for it
            for text in _parts(reading.text[skipped:]):
                if UNKNOWN in text and not is_silent:
                    self._is_unknown = True
                if plain := os.path.expanduser(text.split(UNKNOWN)[0]):
                    is_path = is_written and os.path.isabs(plain) and not _DEVICES.fullmatch(plain)
                    yield from self._places_of(plain, is_pattern=is_pattern, is_path=is_path)

    def _places_of(self, text: str, *, is_pattern: bool, is_path: bool) -> Iterator[ResolvedPath]:
        for directory in self._directories:
            if not self._budget.take(files=1):
                self._is_unknown = True
                return
            paths = self._paths(text, directory, is_pattern=is_pattern, is_path=is_path)
            yield from map(self._surroundings.place, paths)

    def _paths(self, text: str, directory: str, *, is_pattern: bool, is_path: bool) -> Iterator[str]:
        """Yield the paths that a text may name in a directory, or names if it is known to be a path.

        For a pattern that is what it matches, and the path in front of its first `*`.
        """
        if not is_pattern or not has_wildcard(text):
            path = os.path.join(directory, text)
            if _ADDRESS.search(text) and not _is_path_like_address(text, directory):
                return
            yield from [path] if is_path or _is_path(text, path) else ()
            return
        found = 0
        for path in matching_paths(text.replace("[^", "[!"), directory, self._budget):
            found += 1
            if found > MOST_FOUND:
                break
            yield path
        # Nobody looks at so many: it is as if they were anywhere.
        self._is_unknown = self._is_unknown or found > MOST_FOUND or self._budget.is_spent
        before = text.split("*")[0]
        if before and _is_path(before, path := os.path.join(directory, before)):
            yield path


class Surroundings:
    """Shares between the commands of a line its variables, its directories and the paths it has resolved."""

    def __init__(self, line: Line, scope: Scope, roots: Sequence[str], entered: Sequence[str]) -> None:
        self.roots = roots
        self.entered = entered
        self._line = line
        self._scope = scope
        self._places: dict[str, ResolvedPath] = {}
        self._links: dict[str, str | None] = {}

    def place(self, path: str) -> ResolvedPath:
        """Resolve a path, once a line."""
        if path not in self._places:
            self._places[path] = self._resolved(path)
        return self._places[path]

    def readings(self, word: Word) -> Iterator[Reading]:
        """Yield the texts that a word may become."""
        if word.is_plain:
            yield Reading(word.text)
            return
        if word.source and _HARMLESS_OUTPUT.search(word.source):
            word = word._replace(source=_HARMLESS_OUTPUT.sub("0", word.source))
        for words in self._scope.readings(word):
            yield from words

    @cached_property
    def shows_secrets(self) -> bool:
        """True if a here-document or here-string has the value of a variable that looks like a secret."""
        return any(map(self.is_secret, self._line.expanded))

    def is_secret(self, word: Word) -> bool:
        """True if a word has the value of a variable that looks like a secret by its name."""
        return bool(word.source) and any(map(self._is_secret_name, _expanded_names(word.source)))

    def _is_secret_name(self, name: str) -> bool:
        # What the line itself has set in small letters is its own: `for key in a b; do echo $key; done`.
        is_own = name.islower() and name in self._line.variables
        is_own = is_own or name in _PLACES
        return name in self._secret_variables or (looks_secret(name) and not is_own)

    @cached_property
    def _secret_variables(self) -> frozenset[str]:
        """Names of the line's variables that are given the value of one that looks like a secret."""
        found: set[str] = set()
        given = {
            name: {each for word in words for each in _expanded_names(word.source)}
            for name, words in self._line.variables.items()
        }
        for _ in given:
            more = {
                name
                for name, names in given.items()
                if name not in found and any(looks_secret(each) or each in found for each in names)
            }
            if not more:
                break
            found |= more
        return frozenset(found)

    def _resolved(self, path: str) -> ResolvedPath:
        try:
            return resolve_path(path, self._links, is_shown=False)
        except UnresolvablePathError:
            # It means another file to each program, as in `/proc`, or none, and then is judged as written.
            plain = os.path.normpath(path)
            if _OF_A_PROCESS.match(plain):
                return ANYWHERE
            return ResolvedPath(path, (plain,), (plain,))


def matching_paths(pattern: str, directory: str, budget: Budget) -> Iterator[str]:
    """Yield the paths in a directory that match a pattern, until the budget is spent.

    Every directory entry that is looked at is taken off the budget.
    """
    waiting = [(os.sep if pattern.startswith(os.sep) else directory, [*filter(None, pattern.split(os.sep))])]
    while waiting:
        path, names = waiting.pop()
        if not names:
            yield path
            continue
        name, *further = names
        if not has_wildcard(name):
            following = os.path.join(path, name)
            if not budget.take(files=1):
                return
            if os.path.lexists(following):
                waiting.append((following, further))
            continue
        shape = glob(name)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if not budget.take(files=1):
                        return
                    if (entry.name[0] == ".") <= (name[0] == ".") and shape.match(entry.name):
                        waiting.append((entry.path, further))
        except OSError:
            continue  # nothing in there can be named


_EXPANDED = re.compile(r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?!\w)(?!:?\+))", re.ASCII)


def _expanded_names(source: str) -> Iterator[str]:
    """Yield the variables whose values a word has; `${NAME:+x}` has only what is written there."""
    for match in _EXPANDED.finditer(source):
        yield match["bare"] or match["braced"]


def _parts(text: str) -> Iterator[str]:
    """Yield what programs may take a word apart into: `--file=x`, `-sox`, `-d@x`, `host:x`, `file://x`.

    The word as a whole is one of them, because any of these characters may be in the name of a file.
    """
    for match in _FILE_ADDRESS.finditer(text):
        yield _path_of_address(match["path"])
    if _ADDRESS.search(text):
        yield text  # a file only if a directory is called like the beginning of an address
        text = _ADDRESS.sub("", text)
    text = _FILE_ADDRESS.sub("", _DATABASE.sub("", text))
    parts = _BETWEEN_PARTS.split(text)
    if len(parts) > 1 and not text.startswith("-"):
        yield text
    for part in parts:
        if not part.startswith("-"):
            yield part
        elif not part.startswith("--"):
            yield from _attached_values(part)


def _attached_values(text: str) -> Iterator[str]:
    """Yield the values that may be attached to a short option, or to the last of several: `-o/x`, `-so/x`."""
    match = _LETTERS.match(text)
    # `-Dapp.env` is the name of a property, and all of it the value of one option.
    last = match.end() if match is not None and text[1] not in "DP" else 2
    for start in range(2, min(last, MOST_LETTERS + 1) + 1):
        yield text[start:]


def _path_of_address(path: str) -> str:
    """Return the path of a `file:` address; what programs may replace in it is unknown."""
    plain = unquote(path)
    found = _REPLACED_IN_ADDRESS.search(plain)
    return plain if found is None else f"{plain[: found.start()]}{UNKNOWN}"


def _is_path_like_address(text: str, directory: str) -> bool:
    """True if a text that looks like an address leads to a file: through a directory that is called so."""
    first, *further = text.split(os.sep)
    return ".." in further or os.path.lexists(os.path.join(directory, first))


def _is_path(text: str, path: str) -> bool:
    if _DEVICES.fullmatch(text):
        return False
    if os.path.isabs(text):
        # An expression like `/one/d` is none, if nothing of that name is at the root.
        first = text.strip(os.sep).split(os.sep)[0]
        return os.path.lexists(os.sep + first)
    return os.sep in text or "." in text or os.path.lexists(path)


_STARTS_NOTHING = frozenset(
    {
        *("cat", "ls", "head", "tail", "wc", "cut", "tr", "uniq", "diff", "cmp", "comm", "join", "paste"),
        *("fold", "fmt", "column", "nl", "od", "xxd", "hexdump", "rev", "tac", "seq", "stat", "file", "du"),
        *("df", "tee", "touch", "mkdir", "rmdir", "cp", "mv", "rm", "ln", "chmod", "chown", "chgrp"),
        *("truncate", "realpath", "readlink", "basename", "dirname", "pwd", "date", "sleep", "true"),
        *("false", "which", "whoami", "id", "uname", "hostname", "echo", "printf", "test", "[", "expr"),
        *("base64", "md5sum", "sha1sum", "sha256sum", "jq", "gojq", "yq", "gzip", "gunzip", "zcat", "bzip2"),
        *("xz", "zstd", "unzip", "dd", "cd", "ps", "kill", "pkill", "killall"),
    }
)
"""Programs that start no other, whatever they are given."""

_RUNS = frozenset(
    {
        *("shell", "exec", "execute", "command", "cmd", "eval", "linker", "extld", "script", "engine"),
        *("interpreter", "rsh"),
    }
)
"""Last words in the names of options whose values are run."""
_MAY_RUN = frozenset(
    {
        *("program", "prog", "editor", "pager", "compiler", "cc", "cxx", "ld", "tool", "runner", "wrapper"),
        *("launcher", "browser", "hook", "run", "bin", "binary", "executable", "before", "after", "pre"),
        *("post", "c", "e", "x", ""),
    }
)
"""Last words in the names of options whose values are run if they are programs; the empty one is `--`."""
_USUAL_VALUES = frozenset(
    {
        *("test", "install", "time", "date", "sort", "link", "file", "split", "join", "env", "users"),
        *("groups", "size", "host", "clear", "reset", "tree", "free", "last", "more", "less", "head"),
        *("tail", "cut", "paste", "true", "false", "yes", "look", "view", "type", "print", "dir", "write"),
        *("id", "service", "top", "w", "all", "build", "dev", "debug", "release", "local", "ci", "lint"),
        *("check", "format", "docs", "script"),
    }
)
"""Names of programs that are usual values of options as well."""
_CODE = re.compile(r"[();|&$<>`\s]")
_OPERATOR = re.compile(r"[;|&$<>`]")
_PAIR = re.compile(r"[A-Za-z_][\w.-]*=")
_RUN_WITHIN = re.compile(rf"(?:^|[-_,.])(?:{'|'.join(sorted(_RUNS))})=", re.IGNORECASE)
_DIRECTORY_OPTIONS = {"tar": ("-C", "--directory")}
"""Options of known programs that choose the directory in which they write."""


def starting_options(
    words: Sequence[Word], directory: str, is_elsewhere: Callable[[str], bool]
) -> Sequence[int]:
    """Return the positions of options that may start a command in a directory, or name a path elsewhere.

    `is_elsewhere` says of a text if it is a path outside of the session's directories.
    """
    name = program_name(words[0].text) if words else ""
    values = _values(words)
    if name in _DIRECTORY_OPTIONS:
        return [
            at for at, option, value in values if option in _DIRECTORY_OPTIONS[name] and is_elsewhere(value)
        ]
    if name in _STARTS_NOTHING or name.endswith("grep") or has_known_options(words[0]):
        return ()
    on_path = functools.cache(_programs_on_path)
    return [
        at
        for at, option, value in values
        if option not in TEXT_OPTIONS
        and (is_elsewhere(value) or _may_start(option, value, directory, on_path))
    ]


def _values(words: Sequence[Word]) -> Iterator[tuple[int, str, str]]:
    """Yield each value that an option may have: the option's position, the option and the value."""
    for at in range(1, len(words)):
        text, before = words[at].text, words[at - 1].text
        if text.startswith("-"):
            option, has_value, value = text.partition("=")
            if has_value:
                yield at, option, value
            if not text.startswith("--") and len(text) > 2:
                yield at, text[:2], text[2:]
        elif at > 1 and before.startswith("-") and "=" not in before:
            yield at - 1, before, text


def _may_start(option: str, value: str, directory: str, on_path: Callable[[], frozenset[str]]) -> bool:
    """True if the value of an option may be a command, or the program that is started."""
    kind = re.split(r"[-_.]", option.lstrip("-"))[-1].lower() if option.lstrip("-") else ""
    if (kind in _RUNS and value) or _RUN_WITHIN.search(value):
        return True
    if option in {"-e", "-E"} and _CODE.search(value) and not _PAIR.match(value):
        return True
    first, *further = value.split() or [""]
    is_usual = first in _USUAL_VALUES and not (further and (kind in _MAY_RUN or _OPERATOR.search(value)))
    is_likely = bool(further) or "/" in first or kind in _MAY_RUN
    return is_likely and not is_usual and _is_program(first, directory, on_path)


def _is_program(name: str, directory: str, on_path: Callable[[], frozenset[str]]) -> bool:
    """True if a program of this name is found on PATH, or a path from a directory is an executable file."""
    if "/" in name:
        path = os.path.join(directory, name)
        return os.path.isfile(path) and os.access(path, os.X_OK)
    return name in on_path()


def _programs_on_path() -> frozenset[str]:
    """Return the names of the programs that are found on PATH."""
    directories = os.environ.get("PATH", "").split(os.pathsep)
    return frozenset().union(*(_names_in(directory) for directory in directories if directory))


def _names_in(directory: str) -> frozenset[str]:
    try:
        return _names_at(directory, os.stat(directory).st_mtime_ns)
    except OSError:
        return frozenset()


@functools.lru_cache(maxsize=64)
def _names_at(directory: str, changed: int) -> frozenset[str]:
    """Return the names in a directory, which is read again when it has changed."""
    return frozenset(os.listdir(directory))
