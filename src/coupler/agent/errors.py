"""The errors an agent answers with: their reasons, their exceptions, and the whole table of reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coupler.redaction.known_secrets import masked_beginning
from coupler.runtime.exceptions import exception_text, only_cause
from coupler.runtime.extras import MissingExtraError
from coupler.schema.decoding import DecodingError
from coupler.store.errors import CursorError, HeldError, StoreError
from coupler.wire import messages as wire
from coupler.wire.messages import ErrorReason, RpcError

NOT_INITIALIZED = ErrorReason("not_initialized", -32600, "Something was called before `initialize`.")
ALREADY_INITIALIZED = ErrorReason("already_initialized", -32600, "`initialize` was called a second time.")
TOO_MANY_SESSIONS = ErrorReason(
    "too_many_sessions", -32600, "The client has too many sessions open; close some."
)
SESSION_BUSY = ErrorReason("session_busy", -32600, "The session has a running turn; cancel it or wait.")
SESSION_HELD = ErrorReason(
    "session_held", -32600, "Another process has the session open; `data.pid` names it."
)
UNKNOWN_SESSION = ErrorReason("unknown_session", -32002, "No such session here; `data.sessionId` names it.")
AUTH_REQUIRED = ErrorReason("auth_required", -32000, "The agent wants the user to log in first.")
AGENT_FAILED = ErrorReason("agent_failed", -32603, "The agent's own code raised; the session lives on.")
TARGET_FAILED = ErrorReason(
    "target_failed", -32603, "The agent could not be loaded; stderr has the traceback."
)
NOT_OFFERED = ErrorReason("not_offered", -32603, "The agent wanted something that the client does not offer.")
CONFIG_WRONG = ErrorReason(
    "config_wrong", -32603, "A `coupler.toml` is wrong; the message names file and line."
)
STORE_FAILED = ErrorReason("store_failed", -32603, "The session could not be stored; the message says why.")
SHUTTING_DOWN = ErrorReason("shutting_down", -32600, "The agent is ending and takes no more work.")

LONGEST_MESSAGE = 8 * 1024
"""Characters of an exception that a client gets to see."""

NOT_ENTERED = (
    "What `from_conn_string(…)` returns is a context manager, and must be entered: make the saver or store "
    'from a connection instead, as AsyncSqliteSaver(aiosqlite.connect("agent.db")) in '
    "`async def make(session)`, and call serve(factory=make)"
)
_ADVICE = (
    ("GeneratorContextManager", NOT_ENTERED),
    (
        "no running event loop",
        "A module is imported before there is one: make this in `async def make(session)`, which returns the "
        "agent, and call serve(factory=make)",
    ),
)
"""Advice on what goes wrong when an agent is made, by words of errors that do not say what to do."""

REASONS = (
    *wire.REASONS,
    NOT_INITIALIZED,
    ALREADY_INITIALIZED,
    TOO_MANY_SESSIONS,
    SESSION_BUSY,
    SESSION_HELD,
    UNKNOWN_SESSION,
    AUTH_REQUIRED,
    AGENT_FAILED,
    TARGET_FAILED,
    NOT_OFFERED,
    CONFIG_WRONG,
    STORE_FAILED,
    SHUTTING_DOWN,
)


class AuthRequiredError(RpcError):
    """Raised by an agent's code that cannot go on before the user has logged in; say how in the message."""

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Note what is wrong; `data` goes into that of the error."""
        super().__init__(AUTH_REQUIRED.code, message, {"reason": AUTH_REQUIRED.name, **(data or {})})


class NotPermittedError(PermissionError):
    """Raised by an action in the block of a tool call that was not permitted."""


class TurnFailedError(RpcError):
    """Raised by an agent's code whose turn cannot be answered, for a reason that lies outside of the code."""

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(AGENT_FAILED.code, message, {"reason": AGENT_FAILED.name, **data})


class EditorError(RpcError):
    """The client refused a request, or its answer does not fit the schema."""


def describe(error: BaseException) -> str:
    """Return the type and the message of an exception, with a limited length; of a group, of its causes."""
    text = exception_text(error, is_typed=not isinstance(only_cause(error), MissingExtraError))
    if len(text) > LONGEST_MESSAGE:
        text = f"{masked_beginning(text, LONGEST_MESSAGE)}… ({len(text)} characters)"
    return text


def describe_making(error: BaseException) -> str:
    """Describe an exception of code that makes an agent, with what to do if another package does not say."""
    told = describe(error)
    advice = next((advice for words, advice in _ADVICE if words in told), None)
    return told if advice is None else f"{told.rstrip('.')}. {advice}"


def agent_failed(error: BaseException, description: str | None = None) -> RpcError:
    """Make the error answer for an exception of the agent's code.

    An RpcError that the code raises itself is answered unchanged. An error that came from the client is not:
    its refusal of a file would look like ours of the prompt. What a task group has wrapped counts as itself.
    """
    error = only_cause(error)
    if isinstance(error, RpcError) and not isinstance(error, EditorError):
        return error if error.reason is not None else _with_reason(error)
    return RpcError.because(AGENT_FAILED, description or describe(error))


def _with_reason(error: RpcError) -> RpcError:
    data = error.data if isinstance(error.data, dict) else {} if error.data is None else {"data": error.data}
    return RpcError(error.code, error.message, {**data, "reason": AGENT_FAILED.name})


def unknown_session(session_id: str) -> RpcError:
    """The refusal of a call for a session that is not open here."""
    message = f"there is no session {session_id!r}: create one with session/new"
    return RpcError.because(UNKNOWN_SESSION, message, sessionId=session_id)


def session_busy(session_id: str) -> RpcError:
    """The refusal of what cannot be done while a turn runs."""
    message = "the session has a running turn: wait for its answer or send session/cancel"
    return RpcError.because(SESSION_BUSY, message, sessionId=session_id)


def store_failed(error: StoreError) -> RpcError:
    """Make the error answer for an error of the store."""
    match error:
        case HeldError():
            return RpcError.because(SESSION_HELD, str(error), pid=error.pid)
        case CursorError():
            return RpcError.because(wire.INVALID_PARAMS, str(error), path="cursor")
    return RpcError.because(STORE_FAILED, str(error), kind=error.kind)


def invalid_params(method: str, error: DecodingError) -> RpcError:
    """The refusal of params that do not fit, naming the field."""
    return RpcError.because(wire.INVALID_PARAMS, f"{method}: {error}", path=error.path)
