"""One POST over HTTP/1.1 whose answer is read as it comes, with limits, and dropped when nobody reads on.

Only what a model's server needs: no redirects, no proxies, no connection that is used twice.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeVar
from urllib.parse import urlsplit

from coupler.providers.errors import ProviderError
from coupler.wire.frames import FrameBuffer

CONNECT_LIMIT = 30.0
"""Seconds in which a server must take the connection."""

SILENCE_LIMIT = 300.0
"""Seconds without a byte after which a server is given up."""

HEAD_LIMIT = 64 * 1024
"""Bytes of one line of the answer's head, or of a chunk's size."""

HEADERS_LIMIT = 200
"""Lines of the answer's head."""

BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of an answer."""

READ_BYTES = 64 * 1024

T = TypeVar("T")


class Answer:
    """An answer whose head was read."""

    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of the body as they come; those over 10 MiB are left out."""
        buffer = FrameBuffer()
        async for part in self._parts():
            for line in buffer.feed(part):
                if isinstance(line, bytes):
                    yield line
        for line in buffer.end():
            if isinstance(line, bytes):
                yield line

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self._parts()])

    async def _parts(self) -> AsyncIterator[bytes]:
        left = BODY_LIMIT
        source = (
            self._chunks()
            if "chunked" in self.headers.get("transfer-encoding", "").lower()
            else self._plain()
        )
        async for part in source:
            left -= len(part)
            if left < 0:
                raise ProviderError(
                    f"The server's answer is longer than {BODY_LIMIT} bytes and was given up."
                )
            yield part

    async def _plain(self) -> AsyncIterator[bytes]:
        stated = self.headers.get("content-length", "")
        left = int(stated) if stated.isdecimal() and len(stated) < 16 else None
        while left is None or left > 0:
            part = await _in_time(self._reader.read(READ_BYTES if left is None else min(READ_BYTES, left)))
            if not part:
                return
            left = None if left is None else left - len(part)
            yield part

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            size_line = await _line(self._reader)
            try:
                left = int(size_line.partition(b";")[0], 16)
            except ValueError:
                raise ProviderError("The server's answer is broken: a chunk has no size.") from None
            if left <= 0:
                return
            while left > 0:
                part = await _in_time(self._reader.read(min(READ_BYTES, left)))
                if not part:
                    raise ProviderError("The server ended its answer in the middle.")
                left -= len(part)
                yield part
            await _line(self._reader)


@asynccontextmanager
async def post(url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[Answer]:
    """Send the body and yield the answer; leaving drops the connection."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ProviderError(f"The server's address is not one of http or https: {url!r}.")
    reader, writer = await _connected(address.scheme == "https", address.hostname, address.port)
    try:
        path = address.path + (f"?{address.query}" if address.query else "")
        writer.write(_head(path or "/", address.netloc.rpartition("@")[2], headers, len(body)) + body)
        await _in_time(writer.drain())
        yield await _answer(reader)
    except ConnectionError as error:
        raise ProviderError(
            f"The connection to the server broke: {str(error) or type(error).__name__}."
        ) from None
    finally:
        writer.close()
        with suppress(OSError, asyncio.CancelledError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


async def _connected(
    is_secure: bool, host: str, port: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if is_secure else None
    number = port or (443 if is_secure else 80)
    try:
        async with asyncio.timeout(CONNECT_LIMIT):
            return await asyncio.open_connection(host, number, ssl=context, limit=HEAD_LIMIT)
    except TimeoutError:
        raise ProviderError(f"The server {host}:{number} did not take a connection in time.") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ProviderError(
            f"The server {host}:{number} cannot be reached: {reason}. Is it running?"
        ) from None


def _head(path: str, host: str, headers: Mapping[str, str], length: int) -> bytes:
    lines = {
        "Host": host,
        "Content-Type": "application/json",
        "Content-Length": str(length),
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **headers,
    }
    for name, value in lines.items():
        if any(sign in f"{name}{value}" for sign in "\r\n\0"):
            raise ProviderError(f"The header {name!r} holds a line break.")
    told = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{told}\r\n".encode("latin-1", "replace")


async def _answer(reader: asyncio.StreamReader) -> Answer:
    status_line = (await _line(reader)).split(b" ", 2)
    if len(status_line) < 2 or not status_line[0].startswith(b"HTTP/") or not status_line[1].isdigit():
        raise ProviderError("The server's answer is not one of HTTP.")
    headers: dict[str, str] = {}
    for _ in range(HEADERS_LIMIT):
        line = await _line(reader)
        if not line:
            return Answer(int(status_line[1]), headers, reader)
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ProviderError("The server's answer has too many headers.")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return (await _in_time(reader.readuntil(b"\n"))).rstrip(b"\r\n")
    except asyncio.IncompleteReadError:
        raise ProviderError("The server ended its answer in the middle.") from None
    except asyncio.LimitOverrunError:
        raise ProviderError("The server's answer has a line that is too long.") from None


async def _in_time(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(SILENCE_LIMIT):
            return await work
    except TimeoutError:
        raise ProviderError(f"The server was silent for {SILENCE_LIMIT:g} s and was given up.") from None
