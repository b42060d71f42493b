"""Holds a trace: every line that two peers wrote, with its time, in the order in which it was seen.

It keeps lines as they were, also those that are no JSON, and offers them as messages: requests with their
answers, notifications, updates. On disk it is NDJSON, described in docs/recording.md. `schema_problems`
validates a message by the published schema; `external_lines` reads the recordings of other tools.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from coupler.runtime.logs import open_private
from coupler.schema.base import DecodingError, Unknown
from coupler.schema.decoding import resolve_mixin
from coupler.schema.methods import METHODS

if TYPE_CHECKING:
    from coupler.redaction.sources import Secret


Side: TypeAlias = Literal["client", "agent"]

FORMAT = "coupler.trace"
FORMAT_VERSION = 1

ACPX_JOURNAL = "acpx.session.journal."
CONDUCTOR_EVENTS = frozenset({"request", "response", "notification"})

ENVELOPE_KEYS = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
ERROR_KEYS = frozenset({"code", "message", "data"})

JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}
"""Names of types in the messages of msgspec, with those of JSON."""

# Codes of JSON-RPC and ACP, taken from the protocol and not from Coupler's own code: the conformance kit uses
# them, and judges Coupler too.
PARSE_ERROR = -32700
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

CANCELLED = -32800
AUTH_REQUIRED = -32000
NOT_FOUND = -32002

SentLine: TypeAlias = tuple[Side, float, bytes]


class TraceError(Exception):
    """The file is no trace."""


class TraceEntry:
    """One line, without its line end. `number` is its position in the trace, `at` its time in seconds."""

    def __init__(self, number: int, at: float, sender: Side, line: bytes) -> None:
        self.number = number
        self.at = at
        self.sender = sender
        self.line = line

    @cached_property
    def message(self) -> dict[str, Any]:
        """The JSON object in the line; empty if it holds none."""
        try:
            message = msgspec.json.decode(self.line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        return message if isinstance(message, dict) else {}

    @property
    def method(self) -> str | None:
        method = self.message.get("method")
        return method if isinstance(method, str) else None

    @property
    def params(self) -> Any:
        return self.message.get("params")

    @property
    def is_request(self) -> bool:
        return self.method is not None and "id" in self.message

    @property
    def is_notification(self) -> bool:
        return self.method is not None and "id" not in self.message

    @property
    def is_answer(self) -> bool:
        return "method" not in self.message and ("result" in self.message or "error" in self.message)

    def encode(self) -> bytes:
        """Return the entry as one line of a trace's file."""
        return msgspec.json.encode({"at": round(self.at, 6), "from": self.sender, **content_of(self.line)})


class TraceUpdate(NamedTuple):
    """A `session/update`."""

    entry: TraceEntry
    session: Any
    body: dict[str, Any]

    @property
    def kind(self) -> Any:
        return self.body.get("sessionUpdate")


class TraceExchange:
    """A request and its answer, if there is one."""

    def __init__(self, request: TraceEntry, answer: TraceEntry | None = None) -> None:
        self.request = request
        self.answer = answer

    @property
    def method(self) -> str:
        return self.request.method or ""

    @property
    def params(self) -> dict[str, Any]:
        params = self.request.params
        return params if isinstance(params, dict) else {}

    @property
    def result(self) -> Any:
        """The result; None while there is none. An agent's `null` counts as an empty object."""
        if self.answer is None or "result" not in self.answer.message:
            return None
        return {} if (result := self.answer.message["result"]) is None else result

    @property
    def error(self) -> dict[str, Any] | None:
        error = self.answer.message.get("error") if self.answer is not None else None
        return error if isinstance(error, dict) else None


class Trace:
    """The lines of a recorded conversation, indexed as they are added."""

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.entries: list[TraceEntry] = []
        self.stray_answers: list[TraceEntry] = []
        self.stdout = ""
        self.stderr = ""
        self.exit_code: int | None = None
        self.unreadable = ""
        """Why no message of the agent's could be read, if a scripted client found that out."""
        self.missing = 0
        """Lines that the recorder had to leave out."""
        self._exchanges: list[TraceExchange] = []
        self._open: dict[tuple[Side, str], TraceExchange] = {}

    @classmethod
    def of(cls, exchange: TraceExchange) -> Trace:
        """Return a trace of nothing but a request and its answer."""
        trace = cls()
        trace.entries = [entry for entry in (exchange.request, exchange.answer) if entry is not None]
        trace._exchanges = [exchange]
        return trace

    def append(self, at: float, sender: Side, line: bytes) -> TraceEntry:
        """Add a line. An answer is matched with its request, or is stray."""
        entry = TraceEntry(len(self.entries), at, sender, line)
        self.entries.append(entry)
        if entry.is_request:
            exchange = TraceExchange(entry)
            self._exchanges.append(exchange)
            self._open[sender, id_key(entry.message["id"])] = exchange
        elif entry.is_answer:
            self._join(entry)
        return entry

    def exchanges(self, method: str | None = None, sender: Side = "client") -> list[TraceExchange]:
        """Return the requests of one side, with their answers."""
        return [
            exchange
            for exchange in self._exchanges
            if exchange.request.sender == sender and method in (None, exchange.method)
        ]

    def notifications(self, method: str | None = None, sender: Side = "agent") -> list[TraceEntry]:
        """Return the notifications of one side."""
        return [
            entry
            for entry in self.entries
            if entry.sender == sender and entry.is_notification and method in (None, entry.method)
        ]

    def updates(self, session: str | None = None, *kinds: str) -> list[TraceUpdate]:
        """Return the agent's updates, of one session and of some kinds, or all of them."""
        found: list[TraceUpdate] = []
        for entry in self.notifications("session/update"):
            params = entry.params if isinstance(entry.params, dict) else {}
            body = params.get("update")
            update = TraceUpdate(entry, params.get("sessionId"), body if isinstance(body, dict) else {})
            if session in (None, update.session) and (not kinds or update.kind in kinds):
                found.append(update)
        return found

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """The capabilities that the client advertised."""
        return _object(self.exchanges("initialize"), lambda exchange: exchange.params, "clientCapabilities")

    @property
    def agent_capabilities(self) -> dict[str, Any]:
        """The capabilities that the agent advertised."""
        return _object(self.exchanges("initialize"), lambda exchange: exchange.result, "agentCapabilities")

    @property
    def agent_version(self) -> int | None:
        """The version of the protocol that the agent chose; None while it has chosen none."""
        for exchange in self.exchanges("initialize"):
            version = exchange.result.get("protocolVersion") if isinstance(exchange.result, dict) else None
            if type(version) is int:
                return version
        return None

    def header(self) -> bytes:
        """Return the first line of a trace's file."""
        return msgspec.json.encode({"format": FORMAT, "version": FORMAT_VERSION, "label": self.label})

    def save(self, path: Path, secrets: Iterable[Secret] = ()) -> None:
        """Write it as NDJSON, masking these secrets and those of the environment and the user's settings."""
        content = b"".join(line + b"\n" for line in self._lines(secrets))
        with open(path, "wb", opener=open_private) as file:
            file.write(content)

    @classmethod
    def load(cls, path: Path) -> Trace:
        """Read a file of `save`, of `coupler record` or of another tool; raises TraceError."""
        trace = cls(path.name)
        try:
            # Only at line feeds: a carriage return may stand in a frame.
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}") from None
        if (foreign := external_lines(lines[:-1])) is not None:
            for sender, at, frame in foreign:
                trace.append(at, sender, frame)
            return trace
        # What follows the last line end was cut off when the writer was killed.
        for number, line in enumerate(lines[:-1], 1):
            try:
                trace._take(line)
            except (msgspec.DecodeError, KeyError, ValueError, TypeError) as error:
                raise TraceError(f"{path}:{number} is no line of a trace: {error}") from None
        if not trace.entries:
            raise TraceError(f"{path} holds no frames; `docs/recording.md` describes the format")
        return trace

    def _join(self, answer: TraceEntry) -> None:
        asker: Side = "client" if answer.sender == "agent" else "agent"
        exchange = self._open.pop((asker, id_key(answer.message.get("id"))), None)
        if exchange is None:
            self.stray_answers.append(answer)
        else:
            exchange.answer = answer

    def _lines(self, secrets: Iterable[Secret]) -> Iterator[bytes]:
        # Imported on use: it stands on what is here.
        from coupler.recording.masking import TraceMasker

        screen = TraceMasker(self.entries, secrets)
        yield self.header()
        for entry in self.entries:
            yield TraceEntry(entry.number, entry.at, entry.sender, screen.line(entry)).encode()
        if self.stdout:
            yield msgspec.json.encode({"stdout": screen.mask(self.stdout)})
        if self.stderr:
            yield msgspec.json.encode({"stderr": screen.mask(self.stderr)})
        if self.exit_code is not None:
            yield msgspec.json.encode({"exit": self.exit_code})

    def _take(self, line: bytes) -> None:
        value = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "format" in value:
            self.label = msgspec.json.decode(value.get("label", b'""'), type=str)
        elif "exit" in value:
            self.exit_code = msgspec.json.decode(value["exit"], type=int)
        elif "stdout" in value:
            self.stdout += msgspec.json.decode(value["stdout"], type=str)
        elif "stderr" in value:
            self.stderr += msgspec.json.decode(value["stderr"], type=str)
        elif "missing" in value:
            self.missing += msgspec.json.decode(value["missing"], type=int)
        elif "end" in value:
            msgspec.json.decode(value["end"], type=Side)
        else:
            self.append(
                msgspec.json.decode(value["at"], type=float),
                msgspec.json.decode(value["from"], type=Side),
                _line_of(value),
            )


def id_key(id: Any) -> str:
    """Return an id as text that tells 1 from "1"."""
    return repr(id)


def _object(exchanges: list[TraceExchange], part: Any, name: str) -> dict[str, Any]:
    for exchange in exchanges:
        value = part(exchange)
        found = value.get(name) if isinstance(value, dict) else None
        if isinstance(found, dict):
            return found
    return {}


def content_of(line: bytes) -> dict[str, Any]:
    """Return a line as JSON exactly as it was written; other lines as text, or else as base64."""
    try:
        msgspec.json.decode(line)
        return {"frame": msgspec.Raw(line)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return {"text": line.decode()}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(line).decode()}


def _line_of(value: dict[str, msgspec.Raw]) -> bytes:
    if "frame" in value:
        return bytes(value["frame"])
    if "text" in value:
        return msgspec.json.decode(value["text"], type=str).encode()
    return base64.b64decode(msgspec.json.decode(value["bytes"], type=str))


def external_lines(lines: list[bytes]) -> list[SentLine] | None:
    """Read a recording of acpx or of the Rust conductor as lines; None if it is neither.

    An acpx stream has one message a line, and lines of its own between them that carry a `schema`. Nothing
    says who sent a message: its method does, and an answer belongs to the open request with its id. The
    conductor names both ends of every message; only what the client and its neighbour said is read.
    """
    first = _object_in(next((line for line in lines if line.strip()), b"")) or {}
    read: Callable[[list[dict[str, Any]]], list[SentLine]]
    if first.get("jsonrpc") == "2.0" or str(first.get("schema")).startswith(ACPX_JOURNAL):
        read = _acpx
    elif first.get("type") in CONDUCTOR_EVENTS and {"ts", "from", "to"} <= first.keys():
        read = _conductor
    else:
        return None
    objects = [_object_in(line) for line in lines if line.strip()]
    return read([value for value in objects if value is not None]) or None


def _acpx(messages: list[dict[str, Any]]) -> list[SentLine]:
    sent: list[SentLine] = []
    open_requests: list[tuple[Side, str, str]] = []
    for message in messages:
        if "jsonrpc" not in message:
            continue  # a line of acpx's own
        method = message.get("method")
        if isinstance(method, str):
            sender = _sender_of(method)
            if "id" in message:
                open_requests.append((sender, id_key(message["id"]), method))
        else:
            sender = _answerer(message, open_requests)
        sent.append((sender, 0.0, msgspec.json.encode(message)))
    return sent


def _sender_of(method: str) -> Side:
    known = METHODS.get(method)
    return "agent" if known is not None and known.direction == "client" else "client"


def _answerer(answer: dict[str, Any], open_requests: list[tuple[Side, str, str]]) -> Side:
    """Find who sent an answer: both sides count their own ids, so two requests may fit.

    The result tells which.
    """
    key = id_key(answer.get("id"))
    waiting = [request for request in reversed(open_requests) if request[1] == key]
    fitting = [request for request in waiting if _fits(answer, request[2])]
    if not waiting:
        return "agent"
    request = (fitting or waiting)[0]
    open_requests.remove(request)
    return "agent" if request[0] == "client" else "client"


def _fits(answer: dict[str, Any], method: str) -> bool:
    known = METHODS.get(method)
    if "result" not in answer or known is None or known.result is None:
        return True
    try:
        msgspec.convert(answer["result"] or {}, known.result, dec_hook=resolve_mixin)
    except (msgspec.ValidationError, DecodingError, RecursionError):
        return False
    return True


def _conductor(events: list[dict[str, Any]]) -> list[SentLine]:
    sent: list[SentLine] = []
    for event in events:
        ends = [str(event.get(name)).lower() for name in ("from", "to")]
        if "client" not in ends or event.get("protocol") == "mcp":
            continue
        message: dict[str, Any] = {"jsonrpc": "2.0"}
        message |= {name: event[name] for name in ("id", "method", "params") if event.get(name) is not None}
        if event.get("type") == "response":
            message["error" if event.get("is_error") else "result"] = event.get("payload")
        at = event.get("ts")
        sender: Side = "client" if ends[0] == "client" else "agent"
        sent.append((sender, float(at) if isinstance(at, int | float) else 0.0, msgspec.json.encode(message)))
    return sent


def _object_in(line: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class SchemaProblem(NamedTuple):
    """A part of a message that the schema does not allow, or does not know."""

    path: str
    text: str
    is_stray_key: bool = False
    is_draft: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def schema_problems(entry: TraceEntry, trace: Trace | None = None) -> list[SchemaProblem]:
    """Validate a message strictly: nothing is repaired or forgiven.

    An answer is judged by the method of its request, found in the trace.
    """
    message = entry.message
    found = [
        SchemaProblem("$", f"unknown key {_quoted(key)}", is_stray_key=True)
        for key in message.keys() - ENVELOPE_KEYS
    ]
    if message.get("jsonrpc") != "2.0":
        found.append(SchemaProblem("jsonrpc", 'must be "2.0"'))
    if entry.method is not None:
        kind = METHODS[entry.method].params if entry.method in METHODS else None
        return found + (_compared(kind, message.get("params", {}), "params") if kind is not None else [])
    if "error" in message:
        return found + _error_problems(message["error"])
    exchange = _request_of(entry, trace)
    method = METHODS.get(exchange.method) if exchange is not None else None
    if method is None or method.result is None:
        return found
    return found + _compared(method.result, message.get("result"), "result")


def _request_of(answer: TraceEntry, trace: Trace | None) -> TraceExchange | None:
    asker = "client" if answer.sender == "agent" else "agent"
    exchanges = trace.exchanges(sender=asker) if trace is not None else []  # type: ignore[arg-type]
    return next((exchange for exchange in exchanges if exchange.answer is answer), None)


def _error_problems(error: Any) -> list[SchemaProblem]:
    if not isinstance(error, dict):
        return [SchemaProblem("error", "must be an object")]
    found = [
        SchemaProblem("error", f"unknown key {_quoted(key)}", is_stray_key=True)
        for key in error.keys() - ERROR_KEYS
    ]
    if type(error.get("code")) is not int:
        found.append(SchemaProblem("error.code", "must be an integer"))
    if not isinstance(error.get("message"), str):
        found.append(SchemaProblem("error.message", "must be a string"))
    return found


def _compared(kind: type[Any], value: Any, path: str) -> list[SchemaProblem]:
    try:
        decoded = msgspec.convert(value, kind, dec_hook=resolve_mixin)
    except (msgspec.ValidationError, DecodingError, RecursionError) as error:
        return [SchemaProblem(path, _in_terms_of_json(str(error)))]
    return list(_stray_keys(decoded, value, path))


def _in_terms_of_json(text: str) -> str:
    """Name types as JSON does, not as Python: whoever reads it may write in any language."""
    return re.sub(
        r"`(\w+)( \| null)?`", lambda match: f"`{JSON_TYPES.get(match[1], match[1])}{match[2] or ''}`", text
    )


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _stray_keys(decoded: Any, value: Any, path: str) -> list[SchemaProblem]:
    """Find keys that the schema does not have, wherever it describes the object."""
    if isinstance(decoded, Unknown) or not isinstance(value, dict | list):
        return []
    if isinstance(value, list):
        pairs = zip(decoded, value, strict=False) if isinstance(decoded, list | tuple) else ()
        return [p for index, (d, v) in enumerate(pairs) for p in _stray_keys(d, v, f"{path}[{index}]")]
    if not isinstance(decoded, Struct):
        return []
    names = dict(zip(decoded.__struct_encode_fields__, decoded.__struct_fields__, strict=True))
    tag = decoded.__struct_config__.tag_field
    found = [
        SchemaProblem(
            path, f"unknown key {_quoted(key)}", is_stray_key=True, is_draft=_is_draft(type(decoded), key)
        )
        for key in value
        if key not in names and key not in ("_meta", tag)
    ]
    for key, name in names.items():
        part = getattr(decoded, name)
        if key in value and key != "_meta" and part is not UNSET:
            found += _stray_keys(part, value[key], f"{path}.{key}")
    return found


def _is_draft(kind: type[Struct], key: str) -> bool:
    definition = _draft_definitions().get(kind.__name__, {})
    return key in definition.get("properties", {})


@cache
def _draft_definitions() -> dict[str, Any]:
    text = files("coupler.schema").joinpath("acp-v1-unstable.json").read_bytes()
    definitions: dict[str, Any] = msgspec.json.decode(text)["$defs"]
    return definitions
