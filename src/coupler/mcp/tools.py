"""Tools of MCP servers, their results and errors, and the handlers that accompany a call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from msgspec import Struct

from coupler.runtime.formatting import shortened
from coupler.schema.v1 import ContentBlock, TextContent

McpErrorKind = Literal["unknown_server", "not_started", "refused", "timed_out", "lost"]
"""Reasons for which a server cannot be used:

unknown_server: the session has none of that name.
not_started: it could not be started or reached.
refused: it answered with an error, or with something that is no answer.
timed_out: it did not answer in time.
lost: it ended, or was left, before it answered.
"""

LONGEST_NAME = 100
"""Characters of a server's or a tool's name that are shown."""


class Annotations(Struct, frozen=True):
    """The hints of a server about its tool; None where it says nothing. For people: they permit nothing."""

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
    """The result of a tool call."""

    content: tuple[ContentBlock, ...]
    structured: Any = None
    """The same as data, if the tool has it."""
    is_error: bool = False
    """True if the tool reports that it has failed; the content then says why."""

    @property
    def text(self) -> str:
        """The text in it, for a model to read."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))


class McpError(Exception):
    """A server could not be used; the message names it. Only that server's answer is lost."""

    def __init__(self, kind: McpErrorKind, server: str, message: str) -> None:
        super().__init__(message)
        self.kind: McpErrorKind = kind
        self.server = server
        self.message = message

    def __reduce__(self) -> tuple[type[McpError], tuple[Any, ...]]:
        return McpError, (self.kind, self.server, self.message)


class ElicitationReply(Struct, frozen=True):
    """The user's reply to a question of a server."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    """The values of the form's fields, if it was filled in."""


class CallHandler(Protocol):
    """Handles the progress and the questions of a server during one call.

    A server that asks says for which call only in newer versions of MCP; in older ones it is taken to mean
    the call that began last.
    """

    async def hear_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a progress notification of the server."""

    async def ask(self, message: str, schema: dict[str, Any]) -> ElicitationReply:
        """Ask the user for the fields of a form, a flat JSON Schema."""

    async def ask_url(self, message: str, url: str) -> ElicitationReply:
        """Ask the user to open a page."""


class ActiveCall:
    """One running call, with its handler and its time limit."""

    def __init__(self, handler: CallHandler) -> None:
        self.handler = handler
        self.limit: asyncio.Timeout | None = None
        self._asking: set[asyncio.Task[ElicitationReply]] = set()

    async def asked(self, question: Coroutine[Any, Any, ElicitationReply]) -> ElicitationReply:
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
            return ElicitationReply("cancel")
        finally:
            task.cancel()
            self._asking.discard(task)

    async def end(self) -> None:
        """End the call: cancel what is still asked, before anybody learns of the end."""
        for task in self._asking:
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock of the call: the time that a person takes is not the server's."""
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


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """Foreign text as one line that hides nothing and rewrites no terminal."""
    short = shortened(text, longest)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def server_label(server: str) -> str:
    """The server as messages name it."""
    return f"the MCP server `{printable(server)}`"
