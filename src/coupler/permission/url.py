"""Addresses, and patterns of them such as `https://*.example.com/docs/*`.

An address that two programs may read differently (a user's name, a backslash, letters of other scripts in the
host, dots in the path, a number for a host) is never allowed by a pattern; denied it is by the host that it
looks like.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from coupler.permission.match import Match, glob

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?=.*[a-z])[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]!$&'()*+,;=%@-]+")
_ESCAPED_STEERING = re.compile(r"%(?:2e|2f|5c|00|25)", re.IGNORECASE)


class Url(Struct, frozen=True):
    """An address as it is judged."""

    text: str
    scheme: str
    host: str
    port: int | None
    path: str
    query: str = ""
    doubt: str | None = None

    @classmethod
    def parse(cls, text: str) -> Url:
        """Reads any text; what is wrong with it is its doubt."""
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
    """A scheme, a host or all hosts below one, a port, and a glob for the path and query."""

    scheme: str
    host: str
    port: int | None
    has_port: bool
    path: str

    @classmethod
    def parse(cls, text: str) -> UrlPattern:
        """Raises ValueError with what is wrong, and how to write it."""
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
        """Whether an address is for certain one of these."""
        if url.doubt is not None or (url.scheme, url.port) != (self.scheme, self.port):
            return False
        return self._is_host(url.host) and glob(self.path).match(url.path + url.query) is not None

    def touches(self, url: Url) -> Match:
        """Whether an address leads there, however it is written; unsafe and safe transport are the same."""
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
    """What may be read in two ways."""
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
