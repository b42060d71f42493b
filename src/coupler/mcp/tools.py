"""Tools as MCP servers describe them, what they return, and who is with a call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from msgspec import Struct

from coupler.schema.v1 import ContentBlock, TextContent


class Annotations(Struct, frozen=True):
    """What a server claims of its tool; None where it says nothing. For people: it permits nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Tool(Struct, frozen=True):
    """One tool of one server."""

    server: str
    name: str
    description: str
    input_schema: dict[str, Any]
    """The JSON Schema of its arguments."""
    title: str | None = None
    annotations: Annotations = Annotations()


class ToolResult(Struct, frozen=True):
    """What a tool has returned."""

    content: tuple[ContentBlock, ...]
    structured: Any = None
    """The same as data, if the tool has it."""
    is_error: bool = False
    """Whether the tool says that it has failed; the content then says why."""

    @property
    def text(self) -> str:
        """The text in it, for a model to read."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))


# Who is with a call while a server works on it: hears how far it is, and answers what the server asks.
#
# A server that asks says for which call only in newer versions of MCP; in older ones it is taken to mean the
# call that began last. While somebody is asked, the server's time stands still.


class Reply(Struct, frozen=True):
    """What became of a question."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    """The values of the form's fields, if it was filled in."""


class Attendant(Protocol):
    """Who is with one call."""

    async def hear_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """The server tells how far it is."""

    async def ask(self, message: str, schema: dict[str, Any]) -> Reply:
        """The server asks for the fields of a form, a flat JSON Schema."""

    async def ask_url(self, message: str, url: str) -> Reply:
        """The server asks to have a page opened."""


class Attended:
    """One running call, with who attends it and how long it may take."""

    def __init__(self, attendant: Attendant) -> None:
        self.attendant = attendant
        self.limit: asyncio.Timeout | None = None
        self._asking: set[asyncio.Task[Reply]] = set()

    async def asked(self, question: Coroutine[Any, Any, Reply]) -> Reply:
        """Ask something that ends with the call at the latest; it is cancelled then."""
        task = asyncio.get_running_loop().create_task(question)
        self._asking.add(task)
        try:
            with self.paused():
                return await task
        except asyncio.CancelledError:
            asker = asyncio.current_task()
            if asker is not None and asker.cancelling():
                raise
            return Reply("cancel")
        finally:
            task.cancel()
            self._asking.discard(task)

    async def end(self) -> None:
        """The call has ended: take back what is still asked, before anybody learns of the end."""
        for task in self._asking:
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time that a person takes is not the server's."""
        limit = self.limit
        ends = limit.when() if limit is not None and not limit.expired() else None
        if limit is None or ends is None:
            yield
            return
        now = asyncio.get_running_loop().time
        left = ends - now()
        limit.reschedule(None)
        try:
            yield
        finally:
            if not limit.expired():
                limit.reschedule(now() + left)


# What can go wrong with an MCP server. It costs that server's answer, never the session.


McpErrorKind = Literal["unknown_server", "not_started", "refused", "timed_out", "lost"]
"""
unknown_server: the session has none of that name.
not_started: it could not be started or reached.
refused: it answered with an error, or with something that is no answer.
timed_out: it did not answer in time.
lost: it ended, or was left, before it answered.
"""

LONGEST_NAME = 100
"""Characters of a server's or a tool's name that are shown."""


class McpError(Exception):
    """A server could not be used; the message names it."""

    def __init__(self, kind: McpErrorKind, server: str, message: str) -> None:
        super().__init__(message)
        self.kind: McpErrorKind = kind
        self.server = server
        self.message = message

    def __reduce__(self) -> tuple[type[McpError], tuple[Any, ...]]:
        return McpError, (self.kind, self.server, self.message)


def shown(text: str, longest: int = LONGEST_NAME) -> str:
    """A stranger's name or words, as one line that hides nothing and rewrites no terminal."""
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def named(server: str) -> str:
    """The server, as sentences begin."""
    return f"the MCP server `{shown(server)}`"
