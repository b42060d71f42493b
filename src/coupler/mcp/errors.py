"""What can go wrong with an MCP server. It costs that server's answer, never the session."""

from __future__ import annotations

from typing import Any, Literal

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
