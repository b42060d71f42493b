"""Requests addresses of the web within bounds: of time, of size, and of the hosts that may be asked.

A host that is not public is asked only if the caller says so, and the connection goes to the addresses that
were looked at. Nothing of the surroundings goes along: no cookies, and no passwords of `~/.netrc`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
import urllib.request
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import urldefrag

from msgspec import Struct

from coupler.__about__ import __version__
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    import httpx


LARGEST_RESPONSE = 5 * 1024 * 1024
"""Bytes of an answer that are read, unpacked."""

RESPONSE_TIME = 30.0
"""Seconds for one request, from the name's resolution to the last byte."""

MOST_ADDRESSES = 4
"""Addresses of a host that are tried."""

HEADERS = {
    "User-Agent": f"Coupler/{__version__}",
    "Accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
"""Headers of a request that has none of these itself."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_URL = 2000
"""Characters of an address."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


_CHARSETS = re.compile(
    r"utf[-_]?(?:8|16|32)(?:[-_](?:le|be|sig))?|(?:us[-_])?ascii|latin[-_]?\d+|iso[-_]?8859[-_]\d+|iso[-_]2022[-_]\w+"
    r"|(?:cp|windows[-_]?)\d{3,4}|koi8[-_][rut]|gb2312|gbk|gb18030|big5(?:[-_]?hkscs)?|shift[-_]jis(?:[-_]\w+)?"
    r"|euc[-_]\w+|mac[-_]?\w+|tis[-_]620",
    re.IGNORECASE,
)
"""Pattern of encodings that are accepted: Python has others, some of which take very long."""


class FetchError(ValueError):
    """The address may not be requested, did not answer, or answered with what is no text."""


class HostNotFoundError(FetchError):
    """The host of an address has no address."""


class PrivateHostError(FetchError):
    """The host is not public, and nobody has said that it may be asked."""


class FetchResponse(Struct, frozen=True, kw_only=True):
    """The response of a server."""

    status: int
    reason: str
    media_type: str
    """As in `text/html`; empty if it does not say."""
    charset: str | None
    location: str | None
    """The address of a redirect, if it is one."""
    size: int | None
    """Bytes that it announces."""
    body: bytes
    is_cut: bool
    headers: Mapping[str, str]
    """By their names in small letters; of several with one name the values are joined by commas."""


class Sent(NamedTuple):
    """A request as it is sent to a server."""

    method: str
    headers: Mapping[str, str]
    content: bytes | None
    seconds: float | None
    """Limits the whole exchange; None: nothing but a connection that is not made."""
    most_bytes: int


async def request_once(
    url: httpx.URL,
    *,
    may_be_private: bool,
    method: str = "GET",
    headers: Mapping[str, str] = MappingProxyType({}),
    content: bytes | None = None,
    seconds: float | None = RESPONSE_TIME,
    most_bytes: int = LARGEST_RESPONSE,
) -> FetchResponse:
    """Request an address once. Raises `FetchError` if there is no answer, or it may not be requested."""
    import httpx

    merged = httpx.Headers(HEADERS)
    merged.update(headers)
    sent = Sent(method, merged, content, seconds, most_bytes)
    try:
        async with (
            asyncio.timeout(seconds),
            _answer(url, sent, may_be_private=may_be_private) as answer,
        ):
            return await _read(answer, most_bytes)
    except TimeoutError:
        raise FetchError(f"{url.host} did not answer within {seconds:g} s") from None
    except httpx.HTTPError as error:
        raise FetchError(f"{url} could not be fetched: {str(error) or type(error).__name__}") from None


_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that name certificates to trust."""


@lru_cache(maxsize=1)
def _ssl_context(*certificates: str | None) -> ssl.SSLContext:
    """Read the trusted certificates, which takes a tenth of a second; again if others are named."""
    import httpx

    return httpx.create_ssl_context(trust_env=True)


@asynccontextmanager
async def _answer(url: httpx.URL, sent: Sent, *, may_be_private: bool) -> AsyncIterator[httpx.Response]:
    """Read the head of the response, and nothing else."""
    import httpx

    proxy = _proxy_for(url)
    # Nothing of the surroundings goes along: no cookies, and no passwords of ~/.netrc.
    context = await in_thread(lambda: _ssl_context(*map(os.environ.get, _CERTIFICATES)))
    timeout = httpx.Timeout(sent.seconds, connect=RESPONSE_TIME)
    async with httpx.AsyncClient(verify=context, proxy=proxy, trust_env=False, timeout=timeout) as client:
        if proxy is not None:
            await _refuse_if_private(url, may_be_private=may_be_private)
            request = client.build_request(sent.method, url, headers=sent.headers, content=sent.content)
            answer = await client.send(request, stream=True)
        else:
            port = url.port or (443 if url.scheme == "https" else 80)
            addresses = await resolved_addresses(url.host, port, may_be_private=may_be_private)
            answer = await _send(client, url, sent, addresses[:MOST_ADDRESSES])
        try:
            yield answer
        finally:
            await answer.aclose()


async def _send(
    client: httpx.AsyncClient, url: httpx.URL, sent: Sent, addresses: Sequence[str]
) -> httpx.Response:
    """Send the request to the first address of the host that can be reached."""
    import httpx

    headers = {**sent.headers, "Host": url.netloc.decode("ascii")}
    for number, address in enumerate(addresses, 1):
        request = client.build_request(
            sent.method,
            url.copy_with(host=address),
            headers=headers,
            content=sent.content,
            extensions={"sni_hostname": url.raw_host.decode()},
        )
        try:
            return await client.send(request, stream=True)
        except httpx.ConnectError:
            if number == len(addresses):
                raise
    raise FetchError(f"the host {url.host} has no address")


async def _refuse_if_private(url: httpx.URL, *, may_be_private: bool) -> None:
    """Refuse a host that is known here as private, although a proxy resolves names by itself."""
    try:
        await resolved_addresses(url.host, 0, may_be_private=may_be_private)
    except HostNotFoundError:
        return  # the proxy may know it


async def _read(answer: httpx.Response, most_bytes: int) -> FetchResponse:
    body, is_cut = b"", False
    location = answer.headers.get("location") if answer.status_code in REDIRECTS else None
    if location is None:
        body, is_cut = await _body(answer, most_bytes)
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    announced = answer.headers.get("content-length", "")
    return FetchResponse(
        status=answer.status_code,
        reason=answer.reason_phrase,
        media_type=media_type,
        charset=answer.charset_encoding,
        location=location,
        size=int(announced) if announced.isdecimal() else None,
        body=body,
        is_cut=is_cut,
        headers={name.lower(): value for name, value in answer.headers.items()},
    )


async def _body(answer: httpx.Response, most_bytes: int) -> tuple[bytes, bool]:
    """Read the body and unpack it within a limit: a small response may unpack to a huge one."""
    unpacked = bytearray()
    unpacker = _unpacker(answer.headers.get("content-encoding", ""))
    async for chunk in answer.aiter_raw():
        try:
            unpacked += (
                chunk if unpacker is None else unpacker.decompress(chunk, most_bytes + 1 - len(unpacked))
            )
        except zlib.error as error:
            raise FetchError(f"what the server sends cannot be unpacked: {error}") from None
        if len(unpacked) > most_bytes:
            return bytes(unpacked[:most_bytes]), True
        if unpacker is not None and unpacker.eof:
            break  # what follows is no part of it, and would be held
    return bytes(unpacked), False


def _unpacker(encoding: str) -> zlib._Decompress | None:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(wbits=47)  # which of the two it is, it says itself
        case other:
            raise FetchError(f"the server packs its answer with {other[:50]!r}, which it was not asked for")


def _proxy_for(url: httpx.URL) -> str | None:
    """The proxy that the environment names for this address; none for this machine, which it cannot mean."""
    literal = _literal(url.host)
    is_here = _is_local(url.host) if literal is None else literal.is_loopback
    if is_here or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def parsed_url(text: str) -> httpx.URL:
    """The address, checked as far as that needs no network, without what stands behind `#`."""
    # Imported on use, here and below: it takes a while, and most sessions fetch nothing.
    import httpx

    text = urldefrag(text.strip()).url
    if len(text) > LONGEST_URL or not text.isprintable():
        raise FetchError(f"an address is one line of up to {LONGEST_URL} characters")
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
        _refuse_private_addresses(host, [address])
    elif _is_local(host):
        raise PrivateHostError(_address_refusal(host, "this machine"))


async def resolved_addresses(host: str, port: int, *, may_be_private: bool) -> list[str]:
    """Resolve the addresses of a host. Raises if it has none, or one that may not be requested.

    What a model wants to fetch may be written by whoever wrote the last page. So services of this machine and
    of its network, which trust who can reach them, are not asked, unless a rule of the user names their very
    host. A name is resolved once, and the connection goes to the addresses that were looked at: a name that
    means another one a moment later is of no use.
    """
    try:
        found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise HostNotFoundError(f"the host {host} was not found: {why}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    if not may_be_private:
        _refuse_private_addresses(host, map(ipaddress.ip_address, addresses))
    return addresses


def is_public(address: IpAddress) -> bool:
    """True if the address is public; one that embeds another is as public as that."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _is_local(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _refuse_private_addresses(host: str, addresses: Iterable[IpAddress]) -> None:
    private = next((address for address in addresses if not is_public(address)), None)
    if private is not None:
        where = "not public" if host.strip("[]") == str(private) else f"{private}, which is not public"
        raise PrivateHostError(_address_refusal(host, where))


def _address_refusal(host: str, where: str) -> str:
    return (
        f"{host} is {where}, and is not asked unless a rule names it. If the user wants that, they can add "
        f'"fetch(http://{host}/*)", with the port if there is one, to permissions.allow in their coupler.toml'
    )


def is_text_encoding(name: str) -> bool:
    """True for an encoding of text that Python knows, and that decodes as fast as it reads."""
    if _CHARSETS.fullmatch(name) is None:
        return False
    try:
        b"".decode(name)
    except LookupError:
        return False
    return True
