"""JSON-RPC errors: one exception, and the table of reasons this layer gives.

Every error that Coupler sends has a `data.reason` that never changes, so that a peer can tell apart
what a code alone leaves open. Layers above add rows of their own to the table.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Reason(NamedTuple):
    """One row of the error table."""

    name: str
    code: int
    meaning: str


PARSE_ERROR = Reason("parse_error", -32700, "The line is not JSON in UTF-8.")
FRAME_TOO_LONG = Reason("frame_too_long", -32600, "The line is longer than the limit and was dropped.")
INVALID_REQUEST = Reason("invalid_request", -32600, "The JSON is not a JSON-RPC 2.0 message.")
BATCH_UNSUPPORTED = Reason("batch_unsupported", -32600, "A batch was sent; messages go one a line.")
METHOD_NOT_FOUND = Reason("method_not_found", -32601, "The method is unknown or was not advertised.")
INVALID_PARAMS = Reason(
    "invalid_params", -32602, "The params do not fit the method; `data.path` names the field."
)
INTERNAL_ERROR = Reason("internal_error", -32603, "Coupler itself failed; its log on stderr says where.")
CANCELLED = Reason("cancelled", -32800, "The request was cancelled by `$/cancel_request`.")
TIMED_OUT = Reason("timed_out", -32603, "The peer did not answer within the request's deadline.")
CONNECTION_CLOSED = Reason("connection_closed", -32603, "The connection ended before the answer came.")

REASONS = (
    PARSE_ERROR,
    FRAME_TOO_LONG,
    INVALID_REQUEST,
    BATCH_UNSUPPORTED,
    METHOD_NOT_FOUND,
    INVALID_PARAMS,
    INTERNAL_ERROR,
    CANCELLED,
    TIMED_OUT,
    CONNECTION_CLOSED,
)


class RpcError(Exception):
    """An error answer: one that was received, or one to be sent."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def because(cls, reason: Reason, message: str, **data: Any) -> RpcError:
        """The error for a row of the table, with what else `data` should say."""
        return cls(reason.code, message, {"reason": reason.name, **data})

    @property
    def reason(self) -> str | None:
        """The stable name in `data.reason`, if the error has one."""
        value = self.data.get("reason") if isinstance(self.data, dict) else None
        return value if isinstance(value, str) else None

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"
