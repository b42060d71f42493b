"""What counts as secret: what was declared, and what the environment holds under a name that says so.

A declared secret always counts. A variable of the environment counts when its name looks secret and its value
could be one; a password inside an address counts whatever the name. In doubt it counts: a word too many that
is masked is a nuisance, a token too many that is shown is an incident.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from coupler.secrets.secret import Secret

SHORTEST = 8
"""Characters of a value in the environment that can be a secret."""

LONGEST_WORD = 15
"""Lowercase letters that can be a plain word. Longer words are rare, and some passwords have 16 letters."""

LONGEST_NUMBER = 20
"""Characters of a number that means an amount; a longer row of digits is rather a token."""

SHORTEST_USER = 16
"""Characters of a user in an address that may be a token: many services take one in that place."""

SECRET_WORDS = frozenset(
    {"APIKEY", "AUTH", "AUTHORIZATION", "BEARER", "CONNSTR", "COOKIE", "COOKIES", "CRED", "CREDENTIAL"}
    | {"CREDENTIALS", "CREDS", "DSN", "JWT", "KEY", "KEYS", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD"}
    | {"PASSWORDS", "PAT", "PWD", "SECRET", "SECRETS", "SSHPASS", "TOKEN", "TOKENS"}
)
"""Words that make a name look secret."""

SECRET_ENDINGS = ("APIKEY", "CREDENTIALS", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "TOKEN")
"""Ends of words that do so too, as in PGPASSWORD; not KEY, which ends MONKEY."""

SECRET_PAIRS = frozenset({("CONNECTION", "STRING"), ("CONN", "STR"), ("CONN", "STRING")})
"""Words that do so when they stand together."""

HARMLESS_LAST_WORDS = frozenset(
    {"ALGORITHM", "DIR", "DIRECTORY", "FILE", "LIMIT", "METHOD", "MODE", "PATH", "PROVIDER", "SOCK"}
    | {"TTL", "TYPE"}
)
"""Last words of a name that speaks about a secret without holding it."""

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


def declared_secrets(values: Mapping[str, str]) -> list[Secret]:
    """The secrets that someone named, and what in them is secret on its own. Blank values hide nothing."""
    found = []
    for name, value in values.items():
        if value.strip():
            found.append(Secret(name, value))
        found += [Secret(name, part) for part in _secret_parts(value)]
    return found


def secrets_in_environment(environment: Mapping[str, str]) -> list[Secret]:
    """The secrets among these variables, by name so that the same environment gives the same marks."""
    found = []
    for name, value in sorted(environment.items()):
        if looks_secret(name) and could_be_secret(value):
            found.append(Secret(name, value))
        found += [Secret(name, part) for part in _secret_parts(value)]
    return found


def looks_secret(name: str) -> bool:
    """Whether the name of a variable or a field says that its value is secret."""
    words = [word.upper() for word in _WORD.findall(name)]
    if not words or words[-1] in HARMLESS_LAST_WORDS:
        return False
    if any(word in SECRET_WORDS or word.endswith(SECRET_ENDINGS) for word in words):
        return True
    return not SECRET_PAIRS.isdisjoint(pairwise(words))


def could_be_secret(value: str) -> bool:
    """Whether a value can be a secret at all: long enough, and nothing that is said openly."""
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
