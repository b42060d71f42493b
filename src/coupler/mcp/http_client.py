"""The transport to a server at an address: streamable HTTP, and the older SSE.

Imports the `mcp` package: to be imported on use. No answer can fill the memory, and a redirect leads nowhere
but to the same host, so that headers go to nobody else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from coupler.schema.v1 import McpServerHttp, McpServerSse

LONGEST_ANSWER = 10 * 1024 * 1024
"""Bytes of an answer that is no stream of events, as of a line from a child process."""

LONGEST_EVENT = LONGEST_ANSWER

TIMEOUT = httpx2.Timeout(30.0, read=None)
"""Seconds to connect and to send; the caller limits the time for an answer."""


class HttpServer:
    """The transport to one server, as the `mcp` package takes it; entered once."""

    def __init__(self, server: McpServerHttp | McpServerSse) -> None:
        self._server = server
        self._refused = ""

    def exit_reason(self) -> str:
        """Return why the rest of an answer was refused, which the `mcp` package does not pass on.

        Else "".
        """
        return self._refused

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        """Open the connection: two streams of messages."""
        url = checked_url(self._server.url)
        if isinstance(self._server, McpServerSse):
            async with sse_client(url, httpx_client_factory=self._client) as streams:
                yield streams
            return
        async with (
            self._client() as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST_EVENT) as streams,
        ):
            yield streams

    def _client(
        self, headers: object = None, timeout: object = None, auth: object = None
    ) -> httpx2.AsyncClient:
        """A client with this server's headers; what the package would set is set here."""
        given = [(header.name, header.value) for header in self._server.headers]
        return httpx2.AsyncClient(
            headers=[("Accept-Encoding", "identity"), *given],
            timeout=TIMEOUT,
            event_hooks={"response": [self._limit]},
        )

    async def _limit(self, response: httpx2.Response) -> None:
        """Limit the length of an answer, and refuse what grows when it is unpacked."""
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise httpx2.DecodingError("the answer is compressed, which was not asked for")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Limited(response.stream, self._refuse)

    def _refuse(self, reason: str) -> None:
        self._refused = f": {reason}"


def checked_url(url: str) -> str:
    """Return the address if it is one; it is not repeated, because it may have a password in it."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise ValueError("its address cannot be read: write https://host/path") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError("its address must begin with https:// or http:// and name a host")
    return url


class _Limited(httpx2.AsyncByteStream):
    """Ends an answer that is too long, and reports why."""

    def __init__(self, stream: Any, refuse: Callable[[str], None]) -> None:
        self._stream = stream
        self._refuse = refuse

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._stream:
            length += len(chunk)
            if length > LONGEST_ANSWER:
                self._refuse("the answer is longer than 10 MiB")
                raise httpx2.ReadError("the answer is longer than 10 MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
