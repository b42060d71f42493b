"""Which addresses may be asked: those of the public network.

What a model wants to fetch may be written by whoever wrote the last page. So services of this machine and of
its network, which trust who can reach them, are not asked, unless a rule of the user names their very host. A
name is resolved once, and the connection goes to the addresses that were looked at: a name that means another
one a moment later is of no use.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urldefrag

from coupler.coder.web.errors import FetchError
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    import httpx

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST = 2000
"""Characters of an address."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def parsed(text: str) -> httpx.URL:
    """The address, checked as far as that needs no network, without what stands behind `#`."""
    # Imported on use, here and below: it takes a while, and most sessions fetch nothing.
    import httpx

    text = urldefrag(text.strip()).url
    if len(text) > LONGEST or not text.isprintable():
        raise FetchError(f"an address is one line of up to {LONGEST} characters")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise FetchError(f"{text[:200]!r} is not an address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise FetchError(f"{text[:200]!r} is not an address: it begins with https:// or http:// and a host")
    if url.userinfo:
        raise FetchError("the address names a user: leave out what stands before the @")
    return url


def refuse_unless_public(host: str) -> None:
    """Refuse a host that is not public for certain, without asking the network."""
    if (address := _literal(host)) is not None:
        _refuse_private(host, [address])
    elif host == "localhost" or host.endswith(".localhost"):
        raise FetchError(_refusal(host, "this machine"))


async def resolved(host: str, port: int, *, may_be_private: bool) -> list[str]:
    """The addresses of a host. Raises if it has none, or one that may not be asked."""
    try:
        found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FetchError(f"the host {host} was not found: {why}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    if not may_be_private:
        _refuse_private(host, map(ipaddress.ip_address, addresses))
    return addresses


def is_public(address: IpAddress) -> bool:
    """Whether anybody could ask it; what carries another address is as public as that one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _refuse_private(host: str, addresses: Iterable[IpAddress]) -> None:
    private = next((address for address in addresses if not is_public(address)), None)
    if private is not None:
        where = "not public" if host.strip("[]") == str(private) else f"{private}, which is not public"
        raise FetchError(_refusal(host, where))


def _refusal(host: str, where: str) -> str:
    return (
        f"{host} is {where}, and is not asked unless a rule names it. If the user wants that, they can add "
        f'"fetch(http://{host}/*)", with the port if there is one, to permissions.allow in their coupler.toml'
    )
