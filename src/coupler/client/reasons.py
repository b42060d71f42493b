"""The client's rows of the error table: why it did not do what an agent asked."""

from __future__ import annotations

from coupler.wire.messages import Reason

RESOURCE_NOT_FOUND = Reason("resource_not_found", -32002, "There is no such file, or no such terminal.")
OUTSIDE_ROOTS = Reason(
    "outside_roots", -32602, "The path is not, or not for certain, in the session's directories."
)
UNSUITABLE_FILE = Reason(
    "unsuitable_file", -32602, "It is no UTF-8 text, too large, or not a file of the ordinary kind."
)
FILE_FAILED = Reason("file_failed", -32603, "The system could not read or write the file.")
SPAWN_FAILED = Reason("spawn_failed", -32603, "The command could not be started.")
TOO_MANY_TERMINALS = Reason("too_many_terminals", -32603, "The session must release a terminal first.")
SESSION_ENDED = Reason("session_ended", -32600, "The session is being closed: it gets nothing more.")

REASONS = (
    RESOURCE_NOT_FOUND,
    OUTSIDE_ROOTS,
    UNSUITABLE_FILE,
    FILE_FAILED,
    SPAWN_FAILED,
    TOO_MANY_TERMINALS,
    SESSION_ENDED,
)
