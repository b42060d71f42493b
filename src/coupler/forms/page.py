"""Pages that a user may be asked to open: an address that hides nothing, at a host that is named plainly."""

from __future__ import annotations

from urllib.parse import urlsplit

LONGEST_URL = 2_048
"""Characters that every browser takes."""

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def problem_of(url: str) -> str | None:
    """Why an address cannot be given to a user; None if it can."""
    if len(url) > LONGEST_URL:
        return f"it has more than {LONGEST_URL} characters"
    if not url.isascii() or not url.isprintable() or any(character in url for character in ' \\"<>^`{|}'):
        return "it has characters that must be percent-encoded (or punycode, in the host)"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if not host:
        return "it names no host"
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOCAL_HOSTS):
        return "it must begin with https:// (http:// only for localhost)"
    if "@" in parts.netloc:
        return "it has a user name or password in it"
    return "its host is not written plainly" if "%" in parts.netloc else None
