"""Whether a message is what the published schema says, strictly: nothing is repaired and nothing forgiven."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from coupler.inspect.trace import Entry, Exchange, Trace
from coupler.schema.base import DecodingError, Unknown
from coupler.schema.decoding import resolve
from coupler.schema.methods import METHODS

ENVELOPE = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
ERROR = frozenset({"code", "message", "data"})


class Problem(NamedTuple):
    """Something in a message that the schema does not allow, or does not know."""

    path: str
    text: str
    is_stray_key: bool = False
    is_draft: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def problems(entry: Entry, trace: Trace | None = None) -> list[Problem]:
    """What is wrong with a message. An answer is judged by the method of its request, found in the trace."""
    message = entry.message
    found = [Problem("$", f"unknown key {key!r}", is_stray_key=True) for key in message.keys() - ENVELOPE]
    if message.get("jsonrpc") != "2.0":
        found.append(Problem("jsonrpc", 'must be "2.0"'))
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


def _request_of(answer: Entry, trace: Trace | None) -> Exchange | None:
    asker = "client" if answer.sender == "agent" else "agent"
    exchanges = trace.exchanges(sender=asker) if trace is not None else []  # type: ignore[arg-type]
    return next((exchange for exchange in exchanges if exchange.answer is answer), None)


def _error_problems(error: Any) -> list[Problem]:
    if not isinstance(error, dict):
        return [Problem("error", "must be an object")]
    found = [Problem("error", f"unknown key {key!r}", is_stray_key=True) for key in error.keys() - ERROR]
    if type(error.get("code")) is not int:
        found.append(Problem("error.code", "must be an integer"))
    if not isinstance(error.get("message"), str):
        found.append(Problem("error.message", "must be a string"))
    return found


def _compared(kind: type[Any], value: Any, path: str) -> list[Problem]:
    try:
        decoded = msgspec.convert(value, kind, dec_hook=resolve)
    except (msgspec.ValidationError, DecodingError, RecursionError) as error:
        return [Problem(path, str(error))]
    return list(_stray_keys(decoded, value, path))


def _stray_keys(decoded: Any, value: Any, path: str) -> list[Problem]:
    """Keys that the schema does not have, wherever it describes the object."""
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
        Problem(path, f"unknown key {key!r}", is_stray_key=True, is_draft=_is_draft(type(decoded), key))
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
