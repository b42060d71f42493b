"""Decodes and encodes JSON-RPC messages and errors, one frame each.

The envelope is decoded here, params and results stay raw until somebody knows their type. A frame that is no
message becomes a `Malformed` that says what to answer and to which id, however broken it is. Every error that
Coupler sends has a `data.reason` that never changes, so that a peer can tell apart what a code alone leaves
open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from coupler.wire.frames import KEPT_BYTES, Frame, Oversized

MAX_DEPTH = 200
"""Levels of nested objects and arrays; a deeper message is refused before anything recurses into it."""

MAX_VALUES = 250_000
"""JSON values in a message; one with more is refused before any of them is decoded."""

MAX_REPAIRED_SURROGATES = 100_000
"""Escaped surrogates in a line that is repaired because one of them has no partner."""

MAX_ERROR_TEXT = 16 * 1024
"""Characters of a text in an error that Coupler sends: what is quoted there may come from the peer."""

ABSENT = Raw(b"")
NULL = Raw(b"null")

MessageKind = Literal["request", "notification", "response", "unknown"]


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The members of a JSON-RPC message, values undecoded."""

    jsonrpc: str | msgspec.UnsetType = msgspec.UNSET
    id: Raw = ABSENT
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class Malformed(NamedTuple):
    """A frame that is no valid message: its kind and id as far as readable, and the error to answer."""

    kind: MessageKind
    id: Raw
    error: RpcError


class ErrorReason(NamedTuple):
    """One row of the table of errors; layers above add rows of their own."""

    name: str
    code: int
    meaning: str


PARSE_ERROR = ErrorReason("parse_error", -32700, "The line is not JSON in UTF-8.")
FRAME_TOO_LONG = ErrorReason("frame_too_long", -32600, "The line is longer than the limit and was dropped.")
TOO_MANY_VALUES = ErrorReason("too_many_values", -32600, "The JSON has more values than the limit.")
INVALID_REQUEST = ErrorReason("invalid_request", -32600, "The JSON is not a JSON-RPC 2.0 message.")
BATCH_UNSUPPORTED = ErrorReason("batch_unsupported", -32600, "A batch was sent; messages go one a line.")
METHOD_NOT_FOUND = ErrorReason("method_not_found", -32601, "The method is unknown or was not advertised.")
INVALID_PARAMS = ErrorReason(
    "invalid_params", -32602, "The params do not fit the method; `data.path` names the field."
)
TOO_MANY_REQUESTS = ErrorReason(
    "too_many_requests",
    -32603,
    "Too many requests wait for their answers; send it again when some have come.",
)
INTERNAL_ERROR = ErrorReason("internal_error", -32603, "Coupler itself failed; its log on stderr says where.")
CANCELLED = ErrorReason("cancelled", -32800, "The request was cancelled by `$/cancel_request`.")
TIMED_OUT = ErrorReason("timed_out", -32603, "The peer did not answer within the request's deadline.")
CONNECTION_CLOSED = ErrorReason("connection_closed", -32603, "The connection ended before the answer came.")
ANSWERS_UNREAD = ErrorReason(
    "answers_unread",
    -32603,
    "The other side left too many answers unread for too long; the connection ended.",
)

REASONS = (
    PARSE_ERROR,
    FRAME_TOO_LONG,
    TOO_MANY_VALUES,
    INVALID_REQUEST,
    BATCH_UNSUPPORTED,
    METHOD_NOT_FOUND,
    INVALID_PARAMS,
    TOO_MANY_REQUESTS,
    INTERNAL_ERROR,
    CANCELLED,
    TIMED_OUT,
    CONNECTION_CLOSED,
    ANSWERS_UNREAD,
)


class RpcError(Exception):
    """An error answer: one that was received, or one to be sent."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def because(cls, reason: ErrorReason, message: str, **data: Any) -> RpcError:
        """The error for a row of the table, with what else `data` should say; long texts are cut."""
        told = {key: _cut(value) if isinstance(value, str) else value for key, value in data.items()}
        return cls(reason.code, _cut(message), {"reason": reason.name, **told})

    @property
    def reason(self) -> str | None:
        """The stable name in `data.reason`, if the error has one."""
        value = self.data.get("reason") if isinstance(self.data, dict) else None
        return value if isinstance(value, str) else None

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class _ErrorMember(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: Any = None


_decoder = msgspec.json.Decoder(Envelope)
_error_decoder = msgspec.json.Decoder(_ErrorMember)
_raw_decoder = msgspec.json.Decoder(Raw)
_encoder = msgspec.json.Encoder()

# What msgspec can raise for a line that somebody else wrote.
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


_INTEGER = re.compile(rb"-?\d+")

# A surrogate with whole pairs of backslashes before it; the second group is its partner. The repeats here and
# below are possessive, and a string without an end reaches to the end of the line: matching must take linear
# time and constant memory, whatever a peer wrote.
_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*+)\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})|[89a-fA-F][0-9a-fA-F]{2})"
)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]:,]|[^\s{}\[\]:,"]++', re.DOTALL)
_ID_AT_THE_END = re.compile(
    rb'[{,]\s*+"id"\s*+:\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d++|null)\s*+\}\s*+\Z', re.DOTALL
)
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[]{},"'))
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_CHANGE = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_SHORT = 2 * MAX_DEPTH
"""Bytes of a line that can neither nest too deep nor have too many values; nearly all lines are as short."""

_SCANNED = 64 * 1024
"""Bytes of a broken line that are searched for its id, besides its last ones; and of one step of a scan."""


def parse(frame: Frame, limit: int) -> Envelope | Malformed:
    """Parse the message in a frame. Never raises, whatever the frame holds."""
    if isinstance(frame, Oversized):
        message = f"the line is longer than {limit} bytes and was dropped"
        return _malformed(frame, RpcError.because(FRAME_TOO_LONG, message, limit=limit))
    problem = None if frame.isascii() else _encoding_problem(frame)
    if problem is None and len(frame) > _SHORT:
        problem = structure_problem(frame)
    if problem is not None:
        return _malformed(frame, problem)
    try:
        envelope = _decoder.decode(frame)
    except _FAILURES:
        try:
            envelope = _decoder.decode(replace_lone_surrogates(frame))
        except _FAILURES as failure:
            return _not_an_envelope(frame, failure)
        envelope = _with_exact_id(envelope, frame)
    return envelope if _is_well_formed(envelope) else _explain(envelope)


def parse_error(raw: Raw) -> RpcError:
    """Read the `error` member of a response, tolerant of a peer that got its shape wrong."""
    try:
        error = _error_decoder.decode(raw)
    except _FAILURES:
        return RpcError(-32603, f"the peer answered with an error of its own shape: {bytes(raw)[:200]!r}")
    return RpcError(error.code, error.message, error.data)


def is_id(raw: Raw) -> bool:
    """True for the ids that JSON-RPC and ACP allow: null, an integer or a string."""
    text = bytes(raw)
    return text.isdigit() or text.startswith(b'"') or text == b"null" or _INTEGER.fullmatch(text) is not None


def structure_problem(line: bytes) -> RpcError | None:
    """Refuse a line that nests too deep or has too many values, before anything decodes it."""
    if len(line) <= _SHORT:
        return None
    opened = line.count(b"[") + line.count(b"{")
    may_be_long = len(line) > MAX_VALUES and opened + line.count(b",") > MAX_VALUES
    if opened <= MAX_DEPTH and not may_be_long:
        return None
    brackets: list[bytes] = []
    values = 1
    for part in _structure(line):
        # A value is the first one in its brackets, or has a comma before it.
        values += part.count(b",") + part.count(b"[") + part.count(b"{")
        if values > MAX_VALUES:
            message = f"the JSON has more than {MAX_VALUES} values: send less at once"
            return RpcError.because(TOO_MANY_VALUES, message, limit=MAX_VALUES)
        brackets.append(part.translate(None, _NO_BRACKETS))
    changes = memoryview(b"".join(brackets).translate(_DEPTH_CHANGE)).cast("b")
    if max(accumulate(changes), default=0) > MAX_DEPTH:
        return RpcError.because(PARSE_ERROR, f"the JSON nests deeper than {MAX_DEPTH} levels")
    return None


def replace_lone_surrogates(line: bytes) -> bytes:
    """The line with every `\\ud8xx` that has no partner as U+FFFD.

    Node writes one when a stream cuts an emoji in two. The text is damaged, the message is not. A line with
    very many of them is left as it is.
    """
    if not 0 < line.count(rb"\ud") + line.count(rb"\uD") <= MAX_REPAIRED_SURROGATES:
        return line
    return _SURROGATE.sub(lambda match: match[0] if match[2] else match[1] + rb"\ufffd", line)


def encode(value: Any) -> bytes:
    """Encode as JSON on one line; text that UTF-8 cannot hold is replaced, never raised about."""
    try:
        line = _encoder.encode(value)
    except UnicodeEncodeError:
        line = _encoder.encode(_clean(msgspec.to_builtins(value, enc_hook=_decode_raw)))
    # Only a raw member that came pretty-printed from elsewhere can bring a line end along.
    return msgspec.json.format(line, indent=-1) if b"\n" in line else line


def encode_text(text: str) -> bytes:
    """Encode a text as JSON, in which line ends are escaped anyway."""
    try:
        return _encoder.encode(text)
    except UnicodeEncodeError:
        return encode(text)


def notification(method: str, params: Any) -> bytes:
    """Encode a notification as a line."""
    return b"%b%b}\n" % (_notification_head(method), encode(params))


@cache
def _notification_head(method: str) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":' % encode(method)


def request(id: int, method: str, params: Any) -> bytes:
    """Encode a request as a line."""
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}\n' % (id, encode(method), encode(params))


def response(id: Raw, result: Any) -> bytes:
    """Encode the result of a request as a line; no result is an empty object."""
    body = b"{}" if result is None else encode(result)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (bytes(id), body)


def error_response(id: Raw, error: RpcError) -> bytes:
    """Encode the error that a request is answered with as a line."""
    member: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        member["data"] = error.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (bytes(id), encode(member))


def _encoding_problem(line: bytes) -> RpcError | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return RpcError.because(PARSE_ERROR, f"the line is not UTF-8 (byte {error.start})")
    return None


def _structure(line: bytes) -> Iterator[bytes]:
    """The brackets and commas of a line outside of its strings, in parts."""
    unescaped = line.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two quotes with nothing left between them change nothing about what is inside a string and what is not.
    structure = unescaped.translate(None, _NO_STRUCTURE).replace(b'""', b"")
    is_inside = False
    for start in range(0, len(structure), _SCANNED):
        pieces = structure[start : start + _SCANNED].split(b'"')
        yield b"".join(pieces[is_inside::2])
        is_inside ^= len(pieces) % 2 == 0


def _with_exact_id(envelope: Envelope, frame: bytes) -> Envelope:
    """Return the repaired message with the id as its sender wrote it and will compare it."""
    written = _top_level_members(frame[:_SCANNED], len(frame) > _SCANNED).get(b'"id"', b"")
    return msgspec.structs.replace(envelope, id=Raw(written)) if written.startswith(b'"') else envelope


def _is_well_formed(envelope: Envelope) -> bool:
    if envelope.method is msgspec.UNSET:
        # Peers exist that leave `jsonrpc` out of answers; what they mean is plain.
        return bool(envelope.id) and bool(envelope.result or envelope.error)
    return envelope.jsonrpc == "2.0" and (not envelope.id or is_id(envelope.id))


def _explain(envelope: Envelope) -> Malformed:
    echo = envelope.id if envelope.id and is_id(envelope.id) else NULL
    if envelope.method is msgspec.UNSET:
        kind: MessageKind = "response" if envelope.result or envelope.error else "unknown"
        problem = "the message has no method"
    else:
        kind = "request" if envelope.id else "notification"
        wrong_version = envelope.jsonrpc != "2.0"
        problem = '`jsonrpc` must be "2.0"' if wrong_version else "`id` must be an integer, a string or null"
    return Malformed(kind, echo, RpcError.because(INVALID_REQUEST, problem))


def _not_an_envelope(line: bytes, failure: Exception) -> Malformed:
    # A value of a wrong type ends the decoding: the rest of the line was not looked at yet.
    syntax = _syntax_error(line) if isinstance(failure, msgspec.ValidationError) else failure
    if syntax is not None:
        return _malformed(line, RpcError.because(PARSE_ERROR, f"the line is not JSON: {syntax}"))
    if line.startswith(b"["):
        message = "batches are not supported: send each message on a line of its own"
        return Malformed("unknown", NULL, RpcError.because(BATCH_UNSUPPORTED, message))
    message = f"the JSON is not a JSON-RPC message: {failure}"
    return _malformed(line, RpcError.because(INVALID_REQUEST, message))


def _syntax_error(line: bytes) -> Exception | None:
    try:
        _raw_decoder.decode(replace_lone_surrogates(line))
    except _FAILURES as failure:
        return failure
    return None


def _malformed(frame: Frame, error: RpcError) -> Malformed:
    """Scan what is left of a message for its id, so that whoever waits for the answer gets one."""
    head, tail = frame if isinstance(frame, Oversized) else (frame[:_SCANNED], frame[-KEPT_BYTES:])
    is_cut = head != frame
    members = _top_level_members(head, is_cut)
    written = members.get(b'"id"', b"")
    if not written and is_cut and (match := _ID_AT_THE_END.search(tail)):
        written = match[1]
    if b'"result"' in members or b'"error"' in members:
        kind: MessageKind = "response"
    elif b'"method"' in members and (written or not is_cut):
        kind = "request" if written else "notification"
    else:
        kind = "unknown"
    return Malformed(kind, Raw(written) if _can_be_echoed(written) else NULL, error)


def _can_be_echoed(id: bytes) -> bool:
    """Return whether what a broken line has for an id is one, and JSON."""
    try:
        id.decode()
    except UnicodeDecodeError:
        return False
    return _syntax_error(id) is None and is_id(Raw(id))


def _top_level_members(line: bytes, is_cut: bool) -> dict[bytes, bytes]:
    """Keys of the outermost object with their values (of objects only the bracket), without recursion.

    The value at the end of a line that was cut is empty: nobody knows how it went on.
    """
    members: dict[bytes, bytes] = {}
    depth = 0
    key, awaits_value = b"", False
    for match in _TOKEN.finditer(line):
        token = match[0]
        if depth == 1 and awaits_value and token not in b"}],":
            members[key] = b"" if is_cut and match.end() == len(line) else token
            awaits_value = False
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth = max(depth - 1, 0)
            if depth == 0 and members:
                break
        elif depth == 1 and token == b":":
            awaits_value = True
        elif depth == 1 and not awaits_value:
            key = token
    return members


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ERROR_TEXT else f"{text[:MAX_ERROR_TEXT]}…"


def _decode_raw(value: Any) -> Any:
    if isinstance(value, Raw):
        return msgspec.json.decode(replace_lone_surrogates(bytes(value)))
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
