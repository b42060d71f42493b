"""Limits what a model's server can make its client hold: the bytes of an answer, and those of one event.

The providers' packages hold an answer whole until it can be read, and an event until it ends. Nearly all of
them ask by httpx or httpx2, so the limits are a hook of these clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from coupler.langchain.errors import AnswerTooLongError

if TYPE_CHECKING:
    import httpx
    from langchain_core.language_models import BaseChatModel

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of an answer, unpacked."""

MOST_PACKED = 1024 * 1024
"""Bytes that an answer may have more before it is unpacked than after that."""

LARGEST_EVENT = 16 * 1024 * 1024
"""Bytes of one event of a stream: an image may be one."""

MOST_LINES = 256
"""Lines of one event: the packages copy all of it for each."""

MOST_EVENTS = 250_000
"""Events of a stream, empty ones and comments too: each costs time, however few its bytes are."""

ENCODINGS = ("gzip", "deflate")
"""Compressions that are asked for and read: of others a few bytes may unpack to all memory."""

CLIENTS = ("root_async_client", "_async_client", "async_client")
"""Attributes of LangChain's classes that hold a provider's client."""

MOST_WRAPPERS = 4
"""Clients of a provider's package around that of httpx."""


def limit_responses(model: BaseChatModel) -> None:
    """Limit the answers that a model's client takes, if it is one of httpx or httpx2."""
    for name in CLIENTS:
        client: Any = getattr(model, name, None)
        for _ in range(MOST_WRAPPERS):
            hooks = getattr(client, "event_hooks", None)
            if hooks is not None:
                _limit_client(client, hooks)
                break
            client = getattr(client, "_client", None)


def limiting_arguments() -> dict[str, Any]:
    """Return arguments of httpx by which a client limits its answers from the start."""
    return {
        "event_hooks": {"response": [limit_response]},
        "headers": {"accept-encoding": ", ".join(ENCODINGS)},
    }


def _limit_client(client: Any, hooks: dict[str, list[Any]]) -> None:
    if limit_response not in hooks["response"]:  # LangChain shares its clients
        client.event_hooks = {**hooks, "response": [*hooks["response"], limit_response]}
        client.headers["accept-encoding"] = ", ".join(ENCODINGS)


async def limit_response(response: httpx.Response) -> None:
    """Have an answer raise AnswerTooLongError where it is over a limit, however it is read."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *ENCODINGS):
        raise AnswerTooLongError(f"it is packed with {encoding[:50]!r}, which is not read")
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    read, read_packed = response.aiter_bytes, response.aiter_raw
    size = 0

    async def limited_packed(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        packed = 0
        async for chunk in read_packed(chunk_size):
            packed += len(chunk)
            # What follows the end of packed data unpacks to nothing, and is held.
            if packed > size + MOST_PACKED:
                raise AnswerTooLongError("it goes on after the end of its packed data")
            yield chunk

    async def limited(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        nonlocal size
        event = _OpenEvent()
        async for chunk in read(chunk_size):
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise AnswerTooLongError(f"it is over {LARGEST_ANSWER:,} bytes")
            if is_stream:
                event.take(chunk)
            yield chunk

    if encoding in ENCODINGS:
        response.aiter_raw = limited_packed  # type: ignore[method-assign]
    response.aiter_bytes = limited  # type: ignore[method-assign]


class _OpenEvent:
    """Counts the bytes and the lines of the event that has not ended, and the events before it."""

    def __init__(self) -> None:
        self._size = self._lines = self._ended = 0
        self._ends_line = False

    def take(self, chunk: bytes) -> None:
        """Count a piece of the stream; raises AnswerTooLongError if an event in it is over a limit."""
        text = chunk.replace(b"\r", b"") if b"\n" in chunk else chunk.replace(b"\r", b"\n")
        if self._ends_line and text.startswith(b"\n"):
            self._size = self._lines = 0
        first, *others = text.split(b"\n\n")
        self._ended += len(others)
        if self._ended > MOST_EVENTS:
            raise AnswerTooLongError(f"it has more than {MOST_EVENTS:,} events")
        self._add(first)
        for event in others:
            self._size = self._lines = 0
            self._add(event)
        self._ends_line = text.endswith(b"\n")

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        self._lines += part.count(b"\n")
        if self._size > LARGEST_EVENT:
            raise AnswerTooLongError(f"an event of it is over {LARGEST_EVENT:,} bytes")
        if self._lines > MOST_LINES:
            raise AnswerTooLongError(f"an event of it is over {MOST_LINES} lines")
