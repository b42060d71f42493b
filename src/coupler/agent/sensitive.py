"""Whether something asks for a secret: what a user types into a form passes clients, models and logs."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

WORDS = frozenset(
    {
        *("password", "passwd", "pwd", "passphrase", "passcode", "secret", "token", "credential", "apikey"),
        *("otp", "cvv", "cvc", "pin", "ssn"),
    }
)
PAIRS = frozenset(
    (
        "api key",
        "access key",
        "private key",
        "secret key",
        "signing key",
        "encryption key",
        "ssh key",
        "license key",
        "recovery code",
        "security code",
        "verification code",
        "backup code",
        "seed phrase",
        "recovery phrase",
        "card number",
    )
)
INSIDE = ("password", "passwd", "passphrase", "apikey", "authtoken", "accesstoken", "privatekey")
"""What is a secret even as a part of a word."""

COUNTED = frozenset({"token", "credential", "secret"})
"""Words that a number counts: `max_tokens` is no secret."""

_WANTED = re.compile(r"\b(?:your|enter|type|paste|provide|supply|input)\b([^.!?\n]{0,60})", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether a name, such as `apiKey` or `db_password`, is that of a secret."""
    words = _words(name)
    return (
        any(word in WORDS for word in words)
        or any(f"{first} {second}" in PAIRS for first, second in pairwise(words))
        or any(part in "".join(words) for part in INSIDE)
    )


def names_secret_number(name: str) -> bool:
    """The same for a number, which is more often a count of tokens than one of them."""
    return names_secret(" ".join(word for word in _words(name) if word not in COUNTED))


def ends_in_secret(name: str) -> bool:
    """Whether the last words of a name are a secret's: `access_token` is one, `token_type` is not."""
    words = _words(name)
    return bool(words) and (names_secret(words[-1]) or " ".join(words[-2:]) in PAIRS)


def asks_for_secret(text: str) -> bool:
    """Whether a sentence wants the user to give a secret away: "Enter your API key"."""
    return any(names_secret(match[1]) for match in _WANTED.finditer(_plain(text)))


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", _plain(name))
    words = re.findall(r"[^\W_]+", apart.casefold())
    # Plurals are secrets as well.
    return [word[:-1] if word.endswith("s") and word[:-1] in WORDS else word for word in words]


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)
