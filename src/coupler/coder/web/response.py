"""One request and its answer: bounded in size and time, and sent to the addresses that were looked at."""

from __future__ import annotations

import asyncio
import urllib.request
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from coupler.__about__ import __version__
from coupler.coder.web.address import resolved
from coupler.coder.web.errors import FetchError
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    import httpx

LARGEST = 5 * 1024 * 1024
"""Bytes of an answer that are read, unpacked."""

TIME = 30.0
"""Seconds for one request, from the name's resolution to the last byte."""

MOST_ADDRESSES = 4
"""Addresses of a host that are tried."""

HEADERS = {
    "User-Agent": f"Coupler/{__version__}",
    "Accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Response(Struct, frozen=True, kw_only=True):
    """What a server has answered."""

    status: int
    reason: str
    media_type: str
    """As in `text/html`; empty if it does not say."""
    charset: str | None
    location: str | None
    """Where it sends us, if it does."""
    size: int | None
    """Bytes that it announces."""
    body: bytes
    is_cut: bool


async def request(url: httpx.URL, *, may_be_private: bool) -> Response:
    """Ask for an address. Raises `FetchError` if there is no answer, or the address may not be asked."""
    import httpx

    try:
        async with asyncio.timeout(TIME), _answer(url, may_be_private=may_be_private) as answer:
            return await _read(answer)
    except TimeoutError:
        raise FetchError(f"{url.host} did not answer within {TIME:g} s") from None
    except httpx.HTTPError as error:
        raise FetchError(f"{url} could not be fetched: {str(error) or type(error).__name__}") from None


@asynccontextmanager
async def _answer(url: httpx.URL, *, may_be_private: bool) -> AsyncIterator[httpx.Response]:
    """The answer, of which nothing but the head is read."""
    import httpx

    proxy = _proxy_for(url)
    # Nothing of the surroundings goes along: no cookies, and no passwords of ~/.netrc.
    context = await in_thread(lambda: httpx.create_ssl_context(trust_env=True))
    async with httpx.AsyncClient(verify=context, proxy=proxy, trust_env=False, timeout=TIME) as client:
        if proxy is not None:
            await _refuse_if_private(url, may_be_private=may_be_private)
            sent = client.build_request("GET", url, headers=HEADERS)
            answer = await client.send(sent, stream=True)
        else:
            port = url.port or (443 if url.scheme == "https" else 80)
            addresses = await resolved(url.host, port, may_be_private=may_be_private)
            answer = await _send(client, url, addresses[:MOST_ADDRESSES])
        try:
            yield answer
        finally:
            await answer.aclose()


async def _send(client: httpx.AsyncClient, url: httpx.URL, addresses: Sequence[str]) -> httpx.Response:
    """Ask the first of the addresses that can be reached, in the name of the host."""
    import httpx

    headers = {**HEADERS, "Host": url.netloc.decode("ascii")}
    for number, address in enumerate(addresses, 1):
        sent = client.build_request(
            "GET",
            url.copy_with(host=address),
            headers=headers,
            extensions={"sni_hostname": url.raw_host.decode()},
        )
        try:
            return await client.send(sent, stream=True)
        except httpx.ConnectError:
            if number == len(addresses):
                raise
    raise FetchError(f"the host {url.host} has no address")


async def _refuse_if_private(url: httpx.URL, *, may_be_private: bool) -> None:
    """A proxy resolves names by itself; what can be known here of the host is looked at nevertheless."""
    try:
        await resolved(url.host, 0, may_be_private=may_be_private)
    except FetchError as error:
        if "was not found" not in str(error):
            raise


async def _read(answer: httpx.Response) -> Response:
    body, is_cut = b"", False
    if answer.status_code not in REDIRECTS:
        body, is_cut = await _body(answer)
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    announced = answer.headers.get("content-length", "")
    return Response(
        status=answer.status_code,
        reason=answer.reason_phrase,
        media_type=media_type,
        charset=answer.charset_encoding,
        location=answer.headers.get("location") if answer.status_code in REDIRECTS else None,
        size=int(announced) if announced.isdecimal() else None,
        body=body,
        is_cut=is_cut,
    )


async def _body(answer: httpx.Response) -> tuple[bytes, bool]:
    """What was sent, unpacked here: a small answer may unpack to one that fills the memory."""
    unpacked = bytearray()
    unpacker = _unpacker(answer.headers.get("content-encoding", ""))
    async for chunk in answer.aiter_raw():
        try:
            unpacked += chunk if unpacker is None else unpacker.decompress(chunk, LARGEST + 1 - len(unpacked))
        except zlib.error as error:
            raise FetchError(f"what the server sends cannot be unpacked: {error}") from None
        if len(unpacked) > LARGEST:
            return bytes(unpacked[:LARGEST]), True
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
    """The proxy that the environment names for this address."""
    if urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)
