"""Finds secrets: which values count as secret, their spellings, and their positions in a text.

A declared secret counts, and so does a variable whose name begins with such a word, as PASSWORD_X, unless its
value is so short that it stands in nearly every text. Any other variable of the environment counts when its
name looks secret and its value could be one; a password inside an address counts whatever the name. In doubt
it counts: to mask a harmless word is a nuisance, to show a token is an incident.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

SHORTEST_DECLARED = 4
"""Characters of a declared secret that is masked: to mask every 1 hides nothing, and spoils all output."""

SHORTEST = 8
"""Characters of a value in the environment that can be a secret."""

LONGEST_WORD = 15
"""Lowercase letters that can be a plain word. Longer words are rare, and some passwords have 16 letters."""

LONGEST_NUMBER = 20
"""Characters of a number that means an amount; a longer row of digits is rather a token."""

SHORTEST_USER = 16
"""Characters of a user in an address that may be a token: many services take one in that place."""

SHORTEST_ENCODED = 8
"""Characters from which on a value is also looked for in base64: shorter ones would be found by chance."""

SHORTEST_LINE = 16
"""Characters from which on a line of a secret with several lines is a secret of its own."""

LONGEST_BEGINNING = 4
"""Characters that make a text look like the beginning of a secret."""

SECRET_WORDS = frozenset(
    {"APIKEY", "AUTH", "AUTHORIZATION", "BEARER", "CONNSTR", "COOKIE", "COOKIES", "CRED", "CREDENTIAL"}
    | {"CREDENTIALS", "CREDS", "DSN", "JWT", "KEY", "KEYS", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD"}
    | {"PASSWORDS", "PAT", "PWD", "SECRET", "SECRETS", "SSHPASS", "TOKEN", "TOKENS"}
)
"""Words that make a name look secret."""

DECLARING_BEGINNINGS = ("SECRET_", "API_KEY", "APIKEY", "PASSWORD")
"""Beginnings of names that declare a secret, as PASSWORD_X does: its value may be short, or a plain word."""

SECRET_ENDINGS = ("APIKEY", "CREDENTIALS", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "TOKEN")
"""Endings of words that make a name look secret, as in PGPASSWORD; not KEY, which ends MONKEY."""

SECRET_PAIRS = frozenset({("CONNECTION", "STRING"), ("CONN", "STR"), ("CONN", "STRING")})
"""Pairs of words that make a name look secret."""

HARMLESS_LAST_WORDS = frozenset(
    {"ALGORITHM", "DIR", "DIRECTORY", "FILE", "LIMIT", "METHOD", "MODE", "PATH", "PROVIDER", "SOCK"}
    | {"TTL", "TYPE"}
)
"""Last words of a name that describes a secret without holding it."""

OPEN_VARIABLES = frozenset(
    {"PWD", "OLDPWD", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "XAUTHORITY"}
    | {"DBUS_SESSION_BUS_ADDRESS", "GNOME_KEYRING_CONTROL", "KRB5CCNAME"}
)
"""Variables that name a place, a socket or a process, and hold no secret, whatever their values look like."""

GIT_COUNT, GIT_KEYS, GIT_VALUES = "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"
"""The variables with settings of git: their number, the beginnings of their names and of their values."""

MOST_NAMED = 20
"""Variables that a sentence about withheld ones names."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_BOOLEANS = frozenset({"true", "false", "enabled", "disabled"})
_NUMBER = re.compile(r"[+-]?[0-9][0-9_,]*(\.[0-9]+)?([eE][+-]?[0-9]+)?|0[xX][0-9a-fA-F]+")
_PATH = re.compile(r"(~|\.{1,2})?/|[A-Za-z]:[\\/]|\\\\|~$")
_FILE_NAME = re.compile(
    r"[\w./\\-]+\.(asc|cer|cfg|conf|crt|env|gpg|ini|jks|json|key|p12|pem|pfx|pub|sock|toml|txt|ya?ml)"
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_AUTHORITY = re.compile(r"[^/?#]*")
_PORT = re.compile(r"[0-9]+[/?#]")
_PAIR = re.compile(r"(?:^|[;&?\s])([A-Za-z][\w .-]{0,40}?)\s*=\s*([^;&\s]+)")

_KNOWN_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:sk-|sk_live_|rk_live_|gh[oprsu]_|github_pat_|glpat-|xox[abprs]-"
    r"|hf_|npm_|pypi-|AKIA|ASIA|AIza|ya29\.|eyJ)[A-Za-z0-9_.-]{12,}"
)
"""Keys that are known by their beginnings."""

# A line ends where the text says so, or where an escaped one does: keys are often kept on one line.
_LINE_END = re.compile(r"\r\n|[\r\n]|\\r\\n|\\n")
_ARMOUR = "-----"
_NEVER_QUOTED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_NOT_QUOTED_BY_BROWSERS = _NEVER_QUOTED | frozenset("!'()*")


def declared_secrets(values: Mapping[str, str], shortest: int = SHORTEST_DECLARED) -> list[Secret]:
    """The secrets that someone declared, and the passwords and tokens within them.

    Blank values, and those with less than `shortest` characters, hide nothing.
    """
    found = []
    for name, value in values.items():
        if len(value.strip()) >= max(shortest, 1):
            found.append(Secret(name, value))
        found += [Secret(name, part) for part in _secret_parts(value)]
    return found


def secrets_in_environment(environment: Mapping[str, str]) -> list[Secret]:
    """The secrets among these variables, by name so that the same environment gives the same marks."""
    found = []
    for name, value in sorted(environment.items()):
        if _is_declared(name, value) or (looks_secret(name) and could_be_secret(value)):
            found.append(Secret(name, value))
        found += [Secret(name, part) for part in _secret_parts(value)]
    return found


def secret_variables(environment: Mapping[str, str], named: Iterable[str] = ()) -> list[str]:
    """Return the names of the variables that hold a secret, in order; `named` ones do whatever they hold."""
    found = {secret.name for secret in secrets_in_environment(environment)} - OPEN_VARIABLES
    found |= {name for name, value in environment.items() if declares_secret(name) and value.strip()}
    found = {name for name in found if not name.startswith(GIT_KEYS)}
    if any(name.startswith(GIT_VALUES) for name in found):
        found.add(GIT_COUNT)  # git fails if one of as many as this says is missing
    return sorted(found.union(named).intersection(environment))


def withheld_sentence(names: Sequence[str], where: str) -> str:
    """Say which variables a command was not given, and where to list them: by their names alone."""
    shown = [name for name in names if name.isprintable()][:MOST_NAMED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    them = "it" if len(names) == 1 else "them"
    how = f"list {them} under {where} to pass {them} on"
    return f"withheld from its environment: {', '.join(shown)}{more} ({how})"


def looks_secret(name: str) -> bool:
    """Return whether the name of a variable or a field says that its value is secret."""
    words = [word.upper() for word in _WORD.findall(name)]
    if not words or words[-1] in HARMLESS_LAST_WORDS:
        return False
    if any(word in SECRET_WORDS or word.endswith(SECRET_ENDINGS) for word in words):
        return True
    return not SECRET_PAIRS.isdisjoint(pairwise(words))


def declares_secret(name: str) -> bool:
    """Return whether a name declares its value as secret, whatever that looks like, by its first word."""
    return name.upper().startswith(DECLARING_BEGINNINGS) and looks_secret(name)


def is_too_short(value: str) -> bool:
    """Return whether a declared secret has too few characters to be masked; a blank value is none."""
    return 0 < len(value.strip()) < SHORTEST_DECLARED


def _is_declared(name: str, value: str) -> bool:
    return len(value.strip()) >= SHORTEST_DECLARED and declares_secret(name)


def has_secret(text: str) -> bool:
    """Return whether a text seems to hold a secret: a password in an address, `token=…`, a well-known key."""
    return _KNOWN_KEY.search(text) is not None or any(_secret_parts(_colon_as_pair(text)))


def _colon_as_pair(text: str) -> str:
    """Return a text with `name: value` as `name=value`, as people write passwords down."""
    return re.sub(r"(\w): +(?=\S)", r"\1=", text)


def could_be_secret(value: str) -> bool:
    """Return whether a value can be a secret at all: long enough, and nothing that is said openly."""
    value = value.strip()
    return _could_be_password(value) and not (_is_path(value) or _is_address(value))


def _could_be_password(value: str) -> bool:
    return len(value) >= SHORTEST and not (
        _is_number(value) or value.lower() in _BOOLEANS or _is_plain_word(value)
    )


def _is_number(value: str) -> bool:
    return len(value) <= LONGEST_NUMBER and _NUMBER.fullmatch(value) is not None


def _is_plain_word(value: str) -> bool:
    return len(value) <= LONGEST_WORD and value.isascii() and value.isalpha() and value.islower()


def _is_path(value: str) -> bool:
    if _FILE_NAME.fullmatch(value):
        return True
    # One in 64 secrets in base64 starts with a slash.
    return _PATH.match(value) is not None and not any(map(_is_random, re.split(r"[/\\:.]", value)))


def _is_random(segment: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    return "=" in segment or (
        len(segment) >= SHORTEST_USER and all(any(map(is_kind, segment)) for is_kind in kinds)
    )


def _is_address(value: str) -> bool:
    # What is secret in an address is one of its parts, and counts as such.
    return _ADDRESS.fullmatch(value) is not None


def _secret_parts(value: str) -> Iterator[str]:
    """The passwords and tokens within an address or a connection string, as written there and decoded."""
    if "://" in value:
        for part in _parts_of_addresses(value):
            yield from filter(_could_be_password, _as_written_and_decoded(part))
    if "=" in value:
        for part in _parts_of_pairs(value):
            yield from filter(could_be_secret, _as_written_and_decoded(part))


def _parts_of_addresses(value: str) -> Iterator[str]:
    for word in value.split():
        for address in word.split("://")[1:]:
            user, _, password = _login_of(address).partition(":")
            # What GitHub wants in the place of a password when the user is a token.
            if password != "x-oauth-basic":
                yield password
            if len(user) >= SHORTEST_USER and any(map(str.isdigit, user)):
                yield user


def _login_of(address: str) -> str:
    """The user and the password in what follows the scheme; empty if there are none."""
    authority = _AUTHORITY.match(address)
    if authority and "@" in authority[0]:
        return authority[0].rpartition("@")[0]
    # A password may hold a slash that should have been quoted, but a port before a slash is none.
    user, _, rest = address.partition(":")
    if "@" in rest and not _PORT.match(rest) and not {"/", "?", "#"} & {*user}:
        return address.rpartition("@")[0]
    return ""


def _parts_of_pairs(value: str) -> Iterator[str]:
    for found in _PAIR.finditer(value):
        if looks_secret(found[1]):
            yield found[2].strip("'\"")


def _as_written_and_decoded(part: str) -> tuple[str, ...]:
    if "%" not in part:
        return (part,)
    # Costs milliseconds, which most environments need not spend.
    from urllib.parse import unquote

    return (part, unquote(part))


class Secret(NamedTuple):
    """A value that nobody is shown, and the name that is shown instead.

    A token in a URL is quoted, in a JSON document escaped, in a header in base64. Each spelling gives the
    secret away as surely as the value itself, so each is masked under the same name.
    """

    name: str
    value: str

    def __repr__(self) -> str:
        """Show the name without the value, which must not get into a traceback or a failed assertion."""
        return f"Secret({self.name!r})"

    def spellings(self) -> frozenset[str]:
        """All texts that give the secret away. None of them is empty or blank at its ends."""
        value = self.value.strip()
        if not value:
            return frozenset()
        written = {value, *_lines(value)}
        written.update(spelling for text in tuple(written) for spelling in _escaped(text))
        written.update(_in_base64(self.value))
        return frozenset(written)


def _lines(value: str) -> Iterator[str]:
    """The lines that count on their own: output is indented, cut and wrapped line by line."""
    lines = [line.strip() for line in _LINE_END.split(value)]
    if len(lines) > 1:
        # The armour of a key is the same for everyone.
        yield from (line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith(_ARMOUR))


def _escaped(text: str) -> Iterator[str]:
    if _NEVER_QUOTED.issuperset(text):
        return
    yield _in_json(text, ascii_only=True)
    yield _in_json(text, ascii_only=False)
    # Some encoders escape the slash too, which JSON allows.
    yield _in_json(text, ascii_only=True).replace("/", "\\/")
    yield from _quoted(text)
    yield from _without_astral(text)
    # Bytes that are no UTF-8 are surrogates in the environment, and this character in decoded output.
    yield _as_bytes(text).decode("utf-8", "replace")


def _in_json(text: str, *, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _quoted(text: str) -> Iterator[str]:
    strict = _percent(text, _NEVER_QUOTED)
    yield strict
    yield _percent(text, _NEVER_QUOTED, digits="02x")
    yield _percent(text, _NEVER_QUOTED | {"/"})
    yield _percent(text, _NOT_QUOTED_BY_BROWSERS)
    yield strict.replace("%20", "+")


def _percent(text: str, kept: frozenset[str], digits: str = "02X") -> str:
    return "".join(
        character if character in kept else "".join(f"%{byte:{digits}}" for byte in _as_bytes(character))
        for character in text
    )


def _without_astral(text: str) -> Iterator[str]:
    """Write each character beyond U+FFFF as two surrogates, as half-decoded JSON has them."""
    if max(text) > "\uffff":
        halves = text.encode("utf-16-le", "surrogatepass")
        yield "".join(chr(halves[at] | halves[at + 1] << 8) for at in range(0, len(halves), 2))


def _in_base64(value: str) -> Iterator[str]:
    # A file's last line end is encoded with it, so both forms are looked for.
    for text in {value, value.strip()}:
        if len(text) < SHORTEST_ENCODED:
            continue
        standard = binascii.b2a_base64(_as_bytes(text), newline=False).decode("ascii")
        for encoded in (standard, standard.rstrip("="), *_inside_base64(_as_bytes(text))):
            yield encoded
            yield encoded.replace("+", "-").replace("/", "_")


def _inside_base64(value: bytes) -> Iterator[str]:
    """The spellings of the value within something longer, as in `user:password`, wherever it starts there."""
    for before, first in enumerate((0, 2, 3)):
        encoded = binascii.b2a_base64(bytes(before) + value, newline=False).decode("ascii")
        # The characters at both ends depend on what stands beside the value.
        yield encoded[first : (before + len(value)) * 8 // 6]


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


class SecretRegion(NamedTuple):
    """A part of a text that is covered by secrets, each overlapping the next; named after its first."""

    start: int
    end: int
    name: str


class SecretMatches(NamedTuple):
    """The secrets in a text: whole ones, and one that the text breaks off in."""

    regions: list[SecretRegion]
    """All regions in order; a character outside of them belongs to no secret that is here in full."""

    unfinished: int
    """The position of the first secret that continues after the end of the text; else the text's length."""


class SecretFinder:
    """Finds the spellings of secrets in a text. Never changes, so it can be used by any thread.

    All spellings are looked for at once by their first few characters, which is what makes a text without
    secrets cost next to nothing; what follows is compared only where such a beginning was found.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        """Prepare the search; `names` has the name for each spelling of a secret, and must not change."""
        self._names = names
        self.shortest = min(map(len, names), default=0)
        """Characters of the shortest spelling, 0 if there is none."""

    # Both are made on use: who learns of a thousand secrets one after the other needs only the last finder.

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Finds the first beginning of a spelling in a text, from a position on if one is given."""
        return _search_for(self._by_beginning)

    @cached_property
    def _by_beginning(self) -> dict[str, tuple[str, ...]]:
        return _by_beginning(self._names)

    def find(self, text: str, *, is_over: bool = False) -> SecretMatches:
        """Find everything that is secret in this text; if it is over, also what breaks off in the middle."""
        regions: list[SecretRegion] = []
        unfinished = size = len(text)
        beginning = self.search(text)
        while beginning is not None:
            start = beginning.start()
            broken_off: SecretRegion | None = None
            # The longest comes first, so that the first one found here is the one that covers the others.
            for spelling in self._by_beginning[beginning.group()]:
                if text.startswith(spelling, start):
                    _cover(regions, SecretRegion(start, start + len(spelling), self._names[spelling]))
                    break
                if size < start + len(spelling) and spelling.startswith(text[start:]):
                    unfinished = min(unfinished, start)
                    if is_over and broken_off is None and _is_most_of(size - start, spelling):
                        broken_off = SecretRegion(start, size, self._names[spelling])
            if broken_off is not None:
                _cover(regions, broken_off)
            beginning = self.search(text, start + 1)
        return SecretMatches(regions, unfinished)

    def goes_on(self, text: str) -> bool:
        """Return whether this whole text is the beginning of a longer spelling, and enough of it."""
        for size in range(1, LONGEST_BEGINNING + 1):
            spellings = self._by_beginning.get(text[:size], ())
            if any(len(spelling) > len(text) and spelling.startswith(text) for spelling in spellings):
                return True
        return False


def detected_beginning(spelling: str) -> str:
    """As much of a spelling as makes a text look like it: never more than half, so that most stays hidden."""
    return spelling[: min(LONGEST_BEGINNING, (len(spelling) + 1) // 2)]


def _is_most_of(size: int, spelling: str) -> bool:
    return size >= LONGEST_BEGINNING and 2 * size > len(spelling)


def _by_beginning(spellings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The spellings by how they begin, longest first. No key is the beginning of another."""
    beginnings: set[str] = set()
    for beginning in sorted({detected_beginning(spelling) for spelling in spellings}, key=len):
        if not any(beginning[:size] in beginnings for size in range(1, len(beginning))):
            beginnings.add(beginning)
    grouped: dict[str, list[str]] = {}
    for spelling in sorted(spellings, key=lambda spelling: (-len(spelling), spelling)):
        for size in range(1, LONGEST_BEGINNING + 1):
            if spelling[:size] in beginnings:
                grouped.setdefault(spelling[:size], []).append(spelling)
                break
    return {beginning: tuple(group) for beginning, group in grouped.items()}


def _search_for(beginnings: Iterable[str]) -> Callable[..., re.Match[str] | None]:
    rests: dict[str, list[str]] = {}
    for beginning in sorted(beginnings):
        rests.setdefault(beginning[0], []).append(re.escape(beginning[1:]))
    if not rests:
        return _find_nothing
    # Grouped by the first character, because alternatives are tried one after the other.
    return re.compile(
        "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in rests.items())
    ).search


def _find_nothing(text: str, position: int = 0) -> None:
    return None


def _cover(regions: list[SecretRegion], found: SecretRegion) -> None:
    if not regions or found.start >= regions[-1].end:
        regions.append(found)
    elif found.end > regions[-1].end:
        regions[-1] = SecretRegion(regions[-1].start, found.end, regions[-1].name)
