"""Matches patterns of commands, paths and URLs, and knows sensitive files by their names.

To allow, a pattern must match strictly (`covers`). To ask or deny, it is enough that it may match
(`touches`): what only the running command knows, or another way to write the same thing, must not slip
through.
"""

from __future__ import annotations

import enum
import fnmatch
import functools
import os.path
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from coupler.permission.command_words import Word
from coupler.permission.programs import inline_code_at, program_name
from coupler.runtime.paths import ResolvedPath, fold_name, split_path, split_path_folded

_META = re.compile(r"[;&|<>`$()\n\\]")
_BETWEEN_TOKENS = re.compile(r"""[\s;&|<>`$(){}\[\]'"=:,!+]+""")


class CommandForm:
    """A command as patterns compare it, taken apart once for all of them."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words

    @functools.cached_property
    def code_at(self) -> int | None:
        """The position of the first word that may pass code or another program, if there is one."""
        return inline_code_at(self.words)

    @functools.cached_property
    def names(self) -> Sequence[str]:
        """The name of each word, if it is a program."""
        return [_program(word.text) for word in self.words]

    @functools.cached_property
    def texts(self) -> Sequence[Sequence[Word]]:
        """The words that may be commands as texts, which some program may run in a shell, in pieces."""
        pieces = (_BETWEEN_TOKENS.split(word.text) for word in self.words[1:])
        tokens = ([Word(token) for token in each if token] for each in pieces if len(each) > 1)
        return [each for each in tokens if len(each) > 1]

    @functools.cached_property
    def programs(self) -> frozenset[str]:
        """All names of programs that are in its words and texts."""
        return frozenset([*self.names, *(_program(token.text) for text in self.texts for token in text)])


@functools.lru_cache(maxsize=4096)
def _program(text: str) -> str:
    return program_name(fold_name(text))


class CommandPattern(Struct, frozen=True):
    """A pattern of commands: all words, or with a last `*` those that a command must begin with."""

    words: tuple[str, ...]
    is_open: bool

    @classmethod
    def parse(cls, text: str) -> CommandPattern:
        """Parse a pattern; the ValueError says what is wrong and how to write it."""
        if _META.search(text):
            raise ValueError("it has a character of the shell's: write a rule for each single command")
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"its quotes do not match ({error})") from None
        if not words:
            raise ValueError("it has no command: write for example `git commit *`")
        is_open = words[-1] == "*"
        words = words[:-1] if is_open else words
        if words and not words[0]:
            raise ValueError("its program is empty: write for example `git commit *`")
        if words and has_wildcard(words[0]):
            raise ValueError("its program has a wildcard: name the program, as in `git commit *`")
        return cls(tuple(words), is_open)

    def covers(self, command: CommandForm) -> bool:
        """True if a command certainly matches; a word that passes code must be in the pattern."""
        words = command.words
        if len(words) < len(self.words) or (len(words) > len(self.words) and not self.is_open):
            return False
        if not all(
            _word_fits(pattern, word) and word.is_one
            for pattern, word in zip(self.words, words, strict=False)
        ):
            return False
        code_at = command.code_at
        if code_at is None:
            return True
        return code_at < len(self.words) and not any(has_wildcard(word) for word in self.words[: code_at + 1])

    def touches(self, command: CommandForm) -> Match:
        """Return how far a command matches, however it is written; MAYBE if it may be or start such a one."""
        if not self.words:
            return Match.YES
        words = command.words
        wanted = _program(self.words[0])
        if words[0].is_certain and wanted not in command.programs:
            return Match.NO
        if command.names[0] == wanted and self._follow(words[1:]):
            return Match.YES
        is_possible = self._may_be_in(words) or any(self._may_be_in(text) for text in command.texts)
        return Match.MAYBE if is_possible else Match.NO

    def _follow(self, words: Sequence[Word]) -> bool:
        wanted = self.words[1:]
        if len(words) < len(wanted) or (len(words) > len(wanted) and not self.is_open):
            return False
        return all(
            _word_fits(pattern, word) and word.is_one for pattern, word in zip(wanted, words, strict=False)
        )

    def _may_be_in(self, words: Sequence[Word]) -> bool:
        """True if some of the words may be the program, and those behind it match the pattern's others.

        Options of the program may stand in between. `states` are the positions in the pattern that can be
        reached after each word, wherever among the words the program stands.
        """
        program, *wanted = self.words
        name, end = _program(program), len(wanted)
        states: set[int] = set()
        is_after_option = False
        for place, word in enumerate(words):
            if self.is_open and end in states:
                return True
            is_option = word.text.startswith("-")
            following = {
                state + 1 for state in states if state < end and _may_fit(wanted[state], word)
            }  # fmt: skip
            if is_option or is_after_option or not word.is_one:
                following |= states
            # An option may stand anywhere.
            following |= {state for state in states if state < end and wanted[state].startswith("-")}
            if not word.is_one and states:
                following |= set(range(min(states), end + 1))
            if _program(word.text) == name or (place == 0 and not word.is_certain):
                following.add(0)
            states = following
            is_after_option = is_option
        return end in states


def _word_fits(pattern: str, word: Word) -> bool:
    if pattern == "*":
        return True
    return word.is_certain and (glob(pattern).match(word.text) is not None)


def _may_fit(pattern: str, word: Word) -> bool:
    return not word.is_certain or glob(fold_name(pattern)).match(fold_name(word.text)) is not None


_ANY_DEPTH = "**"


class PathPattern(Struct, frozen=True, dict=True):
    """A pattern of paths: `src/**`, `~/notes/*.md`, `/etc/hosts`.

    `*` and `?` stay within one name, `**` stands for any number of directories. A relative pattern is
    relative to the project, and reaches nothing outside of the session's directories. To allow, a pattern is
    compared with where a path really leads, and no link in the pattern is followed: an agent could have made
    it.
    """

    names: tuple[str, ...]
    is_relative: bool

    @classmethod
    def parse(cls, text: str) -> PathPattern:
        """Parse a pattern; the ValueError says what is wrong and how to write it."""
        if not text or not text.isprintable():
            raise ValueError("its path is empty or cannot be shown: write for example `src/**`")
        path = os.path.expanduser(text)
        if path.startswith("~"):
            raise ValueError("its home directory is not known: write the whole path")
        names = [name for name in path.split("/") if name not in {"", "."}]
        if ".." in names:
            raise ValueError("its path has `..`: write where it leads")
        if any(_ANY_DEPTH in name and name != _ANY_DEPTH for name in names):
            raise ValueError("`**` stands for whole directories: write `src/**/*.py`")
        if path.endswith("/") and (not names or names[-1] != _ANY_DEPTH):
            names.append(_ANY_DEPTH)
        return cls(tuple(names), not os.path.isabs(path))

    def covers(self, place: ResolvedPath, kind: str, project: str, roots: Sequence[str]) -> bool:
        """True if each file that a path may mean certainly matches; wildcards match no sensitive names."""
        if self.is_relative and not place.is_inside(roots):
            return False
        names = self._whole(project)
        is_free = _is_free_for(kind, len(split_path(project)) if self.is_relative else 0)
        return all(_path_fits(names, split_path(target), is_free) for target in place.targets)

    def touches(self, place: ResolvedPath, kind: str, spelled: Callable[[], Sequence[PathSpelling]]) -> Match:
        """Return how far a path matches by any of its names; MAYBE if it takes along what may match.

        `spelled` returns the pattern's spellings in the project, which take longer than most paths.
        """
        paths = [split_path_folded(name) for name in place.names]
        if kind in {"read", "edit"} and not any(map(self.literals.issubset, paths)):
            return Match.NO
        spellings = spelled()
        if any(spelling.fits(path) for spelling in spellings for path in paths):
            return Match.YES
        # Whole directories are searched, deleted and moved: something denied may lie below.
        if kind in {"search", "delete", "move"} and any(
            _may_lie_below(spelling.names, path) for spelling in spellings for path in paths
        ):
            return Match.MAYBE
        return Match.NO

    @functools.cached_property
    def literals(self) -> frozenset[str]:
        """Names without wildcards of all paths that match: none in front of the first, where links may be."""
        behind = self.names[_fixed_part(self.names) :]
        return frozenset(fold_name(name) for name in behind if not has_wildcard(name))

    def spellings(self, project: str) -> Sequence[PathSpelling]:
        """Return the pattern as it is spelled at this moment, with and without links in front of it."""
        wanted = {self._whole(project), self._whole(os.path.realpath(project)), self._resolved(project)}
        return [PathSpelling(names) for names in wanted]

    def _whole(self, project: str) -> tuple[str, ...]:
        if not self.is_relative:
            return self.names
        return (*(_escaped(name) for name in split_path(project)), *self.names)

    def _resolved(self, project: str) -> tuple[str, ...]:
        """Return the pattern with the links in front of its first wildcard resolved."""
        names = self._whole(project)
        fixed = _fixed_part(names)
        plain = [_unescaped(name) for name in names[:fixed]]
        real = os.path.realpath(os.sep + os.sep.join(plain))
        return (*(_escaped(name) for name in split_path(real)), *names[fixed:])


class PathSpelling:
    """One spelling of a path pattern for comparing it with folded paths."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(_folded_glob(name) for name in names)
        self._literals = frozenset(name for name in self.names if not has_wildcard(name))

    def fits(self, path: Sequence[str]) -> bool:
        """True if the pattern matches a path, of which it must have all names without wildcards."""
        return self._literals.issubset(path) and _path_fits(self.names, path, _is_free)


Freedom = Callable[[str, int], bool]


def _is_free(name: str, place: int) -> bool:
    return True


def _is_free_for(kind: str, inside: int) -> Freedom:
    """Return a predicate: a wildcard may match any of the first `inside` names, then no sensitive one."""

    def is_free(name: str, place: int) -> bool:
        return place < inside or not is_sensitive(name, kind)

    return is_free


def _path_fits(pattern: Sequence[str], path: Sequence[str], is_free: Freedom) -> bool:
    """True if a path's names match the pattern; `is_free` says which names a mere wildcard may match.

    `states` are the positions in the pattern that can be reached after each name.
    """
    states = _with_skipped(pattern, {0})
    for place, name in enumerate(path):
        following: set[int] = set()
        for state in states:
            if state == len(pattern):
                continue
            wanted = pattern[state]
            if wanted == _ANY_DEPTH:
                if is_free(name, place):
                    following.add(state)
            elif glob(wanted).match(name) and (is_free(name, place) or not _is_all_wildcard(wanted)):
                following.add(state + 1)
        states = _with_skipped(pattern, following)
    return len(pattern) in states


def _with_skipped(pattern: Sequence[str], states: set[int]) -> set[int]:
    """Add the positions that are reached if `**` stands for no directory at all."""
    reached = set(states)
    for state in sorted(states):
        place = state
        while place < len(pattern) and pattern[place] == _ANY_DEPTH:
            place += 1
            reached.add(place)
    return reached


def _may_lie_below(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """True if the pattern may match the path or something below it."""
    states = _with_skipped(pattern, {0})
    for name in path:
        following = {state for state in states if state < len(pattern) and pattern[state] == _ANY_DEPTH}
        following |= {
            state + 1
            for state in states
            if state < len(pattern) and pattern[state] != _ANY_DEPTH and glob(pattern[state]).match(name)
        }
        states = _with_skipped(pattern, following)
    return bool(states)


def _is_all_wildcard(name: str) -> bool:
    """True if a part of a pattern has neither letter nor digit."""
    return not any(character.isalnum() for character in name)


def _fixed_part(names: Sequence[str]) -> int:
    for place, name in enumerate(names):
        if has_wildcard(name.replace("[[]", "").replace("[*]", "").replace("[?]", "")):
            return place
    return len(names)


def _escaped(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _unescaped(name: str) -> str:
    return name.replace("[*]", "*").replace("[?]", "?").replace("[[]", "[")


def _folded_glob(name: str) -> str:
    return name if name == _ANY_DEPTH else fold_name(name)


_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?=.*[a-z])[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]!$&'()*+,;=%@-]+")
_ESCAPED_STEERING = re.compile(r"%(?:2e|2f|5c|00|25)", re.IGNORECASE)


class Url(Struct, frozen=True):
    """A URL split for matching; `doubt` says why it cannot be judged for certain."""

    text: str
    scheme: str
    host: str
    port: int | None
    path: str
    query: str = ""
    doubt: str | None = None

    @classmethod
    def parse(cls, text: str) -> Url:
        """Parse any text; what is wrong with it is put into `doubt`."""
        try:
            parts = urlsplit(unicodedata.normalize("NFKC", text.strip()).replace("\\", "/"))
            host, port = (parts.hostname or "").casefold(), parts.port
        except ValueError:
            return cls(text, "", "", None, "", doubt="is not an address")
        return cls(
            text=text,
            scheme=parts.scheme,
            host=_looks_like(host),
            port=port or _PORTS.get(parts.scheme),
            path=parts.path or "/",
            query=f"?{parts.query}" if parts.query else "",
            doubt=_doubt_about(text),
        )


class UrlPattern(Struct, frozen=True):
    """A pattern of URLs, such as `https://*.example.com/docs/*`: scheme, host, port, and a glob for the rest.

    A URL that two programs may read differently (a user's name, a backslash, letters of other scripts in the
    host, dots in the path, a number for a host) is never allowed by a pattern; it is denied by the host that
    it looks like.
    """

    scheme: str
    host: str
    port: int | None
    has_port: bool
    path: str

    @classmethod
    def parse(cls, text: str) -> UrlPattern:
        """Parse a pattern; the ValueError says what is wrong and how to write it."""
        match = re.fullmatch(r"([A-Za-z]+)://([^/?#]*)(/.*)?", text)
        if match is None:
            raise ValueError("it is not an address: write for example `https://docs.python.org/*`")
        scheme, place, path = match[1].lower(), match[2], match[3] or "/*"
        if scheme not in _PORTS:
            raise ValueError("its scheme is neither http nor https")
        if "@" in place:
            raise ValueError("it names a user: leave out what stands before the @")
        host, _, port = place.lower().partition(":")
        _check_host(host)
        if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(f"its port {port!r} is not a number between 1 and 65535")
        return cls(scheme, host, int(port) if port else _PORTS[scheme], bool(port), path)

    def covers(self, url: Url) -> bool:
        """True if a URL certainly matches; one with a doubt never does."""
        if url.doubt is not None or (url.scheme, url.port) != (self.scheme, self.port):
            return False
        return self._is_host(url.host) and glob(self.path).match(url.path + url.query) is not None

    def touches(self, url: Url) -> Match:
        """Return how far a URL matches, however it is written; http and https are the same."""
        if not url.host:
            return Match.MAYBE
        if (self.has_port and url.port != self.port) or not self._is_host(url.host.rstrip(".")):
            return Match.NO
        path = posixpath.normpath(unquote(unquote(url.path)))
        ways = {url.path, url.path + url.query, path, f"{path.rstrip('/')}/", re.sub("/+", "/", path)}
        if any(glob(self.path.casefold()).match(way.casefold()) for way in ways):
            return Match.YES
        return Match.MAYBE if url.doubt is not None else Match.NO

    def _is_host(self, host: str) -> bool:
        if self.host == "*":
            return True
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host


def _check_host(host: str) -> None:
    bare = host.removeprefix("*.")
    if host == "*":
        return
    if not bare.isascii():
        try:
            spelling = bare.encode("idna").decode()
        except UnicodeError:
            spelling = "its xn-- form"
        raise ValueError(f"its host has letters of other scripts: write it as `{spelling}`")
    if "*" in bare:
        raise ValueError("a wildcard in a host stands for whole names in front: write `*.example.com`")
    if not _HOST.fullmatch(bare) and not _ADDRESS.fullmatch(bare):
        raise ValueError(f"its host {host!r} is not a name: write for example `docs.python.org`")


def _doubt_about(text: str) -> str | None:
    """Return why a URL cannot be judged for certain; None if all programs read it in the same way."""
    if not _CHARACTERS.fullmatch(text):
        return "has characters that do not belong into an address"
    parts = urlsplit(text)
    host = parts.netloc.partition(":")[0].lower()
    if parts.scheme not in _PORTS:
        return "is neither http nor https"
    if not text.lower().startswith(f"{parts.scheme}://"):
        return "is not an address"
    # Some take what stands behind `?` or `#` for a part of the host, up to the first slash.
    if "@" in text.partition("://")[2].partition("/")[0]:
        return "names a user, or hides its host"
    if not re.fullmatch(r"[^:]+(?::[0-9]{1,5})?", parts.netloc):
        return "has an unusual host"
    if not _ADDRESS.fullmatch(host) and (not _HOST.fullmatch(host) or _NUMBER.fullmatch(host.split(".")[-1])):
        return "has an unusual host"
    if _ESCAPED_STEERING.search(parts.path) or any(step in {".", ".."} for step in parts.path.split("/")):
        return "has a path that leads elsewhere"
    return None


def _looks_like(host: str) -> str:
    try:
        return host.encode("idna").decode().rstrip(".")
    except UnicodeError:
        return host.rstrip(".")


_NAMES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd"),
    *(".git-credentials", "credentials", "credentials.json", "secrets.*", "*.tfstate", "*.tfstate.*"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.kdbx", "*.ppk", "*.gpg", "*.asc", "*_rsa", "*_ed25519"),
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", ".password-store"),
)
"""Names, with wildcards, of files and directories that give secrets away when they are read."""

_STARTERS = (
    *(
        ".git",
        ".hg",
        ".svn",
        ".husky",
        ".vscode",
        ".idea",
        ".coupler",
        "coupler.toml",
        ".pre-commit-config.yaml",
    ),
    *(".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile", ".gitconfig"),
    *(".gitmodules", "sitecustomize.py", "usercustomize.py", "*.pth"),
)
"""Names, with wildcards, of files that make other programs run something once they are changed."""

_PUBLIC = frozenset({".env.example", ".env.sample", ".env.template", "id_rsa.pub", "id_ed25519.pub"})


@functools.lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """True if a file or directory of this name usually holds secrets."""
    plain = fold_name(name)
    return plain not in _PUBLIC and any(glob(each).match(plain) for each in _NAMES)


@functools.lru_cache(maxsize=4096)
def is_sensitive(name: str, kind: str) -> bool:
    """True if the name is one of secrets, or the action changes it and it makes programs run something.

    Such names are asked about even inside the session's directories, and a mere wildcard in a rule does not
    match them.
    """
    return is_secret(name) or (
        kind not in {"read", "search"} and any(glob(each).match(fold_name(name)) for each in _STARTERS)
    )


def has_sensitive(names: Sequence[str], kind: str) -> bool:
    """True if any of the names is sensitive in an action of this kind."""
    return any(is_sensitive(name, kind) for name in names)


class Match(enum.IntEnum):
    """Result of comparing something with a pattern: it matches, may match, or does not."""

    NO = 0
    MAYBE = 1
    YES = 2


_BEYOND = "\u00aa-\U0010fffd"
_CLASSES = {
    "alpha": f"A-Za-z{_BEYOND}",
    "alnum": f"A-Za-z0-9{_BEYOND}",
    "lower": f"a-z{_BEYOND}",
    "upper": f"A-Z{_BEYOND}",
    "digit": "0-9",
    "xdigit": "0-9A-Fa-f",
    "word": f"A-Za-z0-9_{_BEYOND}",
    "punct": ':-@[-`{-~"-/!',
    "graph": f'"-~{_BEYOND}!',
    "print": f" -~{_BEYOND}",
    "space": "\t-\r ",
    "blank": "\t ",
    "cntrl": "\x01-\x1f\x7f",
    "ascii": "\x01-\x7f",
}
"""Characters of the classes in a shell's brackets; letters beyond ASCII may be in any that has letters."""
_CLASS = re.compile(r"\[([:=.])(.+?)\1\]", re.DOTALL)
_BRACKETS = re.compile(r"\[([!^]?)(\]?(?:\[([:=.]).+?\3\]|[^\]])*)\]", re.DOTALL)


@functools.lru_cache(maxsize=4096)
def glob(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with `*`, `?` and `[…]` to a regular expression, to be matched as a whole.

    Brackets mean what they do to a shell: `[^a]` is `[!a]`, and `[[:alpha:]]` is any letter.
    """
    return re.compile(fnmatch.translate(plain_brackets(pattern)))


def plain_brackets(pattern: str) -> str:
    """Return a pattern whose brackets have neither classes nor `^`, as `fnmatch` reads them."""
    if "[^" not in pattern and not _CLASS.search(pattern):
        return pattern
    return _BRACKETS.sub(
        lambda found: f"[{'!' if found[1] else ''}{_CLASS.sub(_members, found[2])}]", pattern
    )


def _members(found: re.Match[str]) -> str:
    """Return the characters of `[:alpha:]`, `[=a=]` or `[.a.]`; of a name that is not known, any."""
    if found[1] == ":":
        return _CLASSES.get(found[2], "\U0010ffff")
    return found[2] if len(found[2]) == 1 else "\x01-.0-\U0010fffd"


def has_wildcard(text: str) -> bool:
    """True if a text has `*`, `?` or `[`."""
    return any(character in "*?[" for character in text)
