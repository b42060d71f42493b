"""Checks complete JSON-RPC frames against ACP's own JSON Schema, for the tests of every layer.

`check_frame` raises AssertionError with a reason. What the schema says nothing about (extension methods,
other `$/…` notifications) is checked as JSON-RPC only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from jsonschema import Draft202012Validator, FormatChecker

Side = Literal["agent", "client"]
Frame = dict[str, Any]
Id = str | int | None

_RANGES = {
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_ENVELOPE = {"jsonrpc", "id", "method", "params", "result", "error"}


def check_frame(
    frame: Frame, *, sent_by: Side, method_of: Mapping[Id, str] | None = None, unstable: bool = False
) -> None:
    """Check one frame. `method_of` gives the method of each request that `sent_by` has to answer."""
    assert isinstance(frame, dict), f"a frame is an object: {frame!r}"
    assert frame.get("jsonrpc") == "2.0", f"jsonrpc is not 2.0: {frame!r}"
    assert not frame.keys() - _ENVELOPE, (
        f"keys that JSON-RPC does not know: {sorted(frame.keys() - _ENVELOPE)}"
    )
    if "id" in frame:
        assert frame["id"] is None or type(frame["id"]) in (int, str), f"not an id: {frame['id']!r}"
    if "method" in frame:
        _check_call(frame, sent_by, unstable)
    else:
        _check_answer(frame, sent_by, method_of or {}, unstable)


def check_definition(name: str, value: object, *, unstable: bool = False) -> None:
    """Check a value against one definition of the schema."""
    problems = [
        f"{error.json_path}: {error.message[:300]}" for error in _validator(name, unstable).iter_errors(value)
    ]
    assert not problems, f"not a {name}: {'; '.join(problems)}"


def definitions(*, unstable: bool = False) -> dict[str, Any]:
    return dict(_schema(unstable)["$defs"])


def _check_call(frame: Frame, sent_by: Side, unstable: bool) -> None:
    method, is_request = frame["method"], "id" in frame
    assert isinstance(method, str), f"not a method: {method!r}"
    assert not frame.keys() & {"result", "error"}, f"both a call and an answer: {frame!r}"
    params = frame.get("params", {})
    if _is_extension(method):
        assert isinstance(params, dict | list), f"params of {method} are neither an object nor an array"
        assert not (method.startswith("$/") and is_request), f"{method} can only be a notification"
        return
    name = _calls(unstable).get((_other(sent_by), method, is_request))
    kind = "request" if is_request else "notification"
    assert name, f"no {kind} {method} is sent by the {sent_by}"
    check_definition(name, params, unstable=unstable)


def _check_answer(frame: Frame, sent_by: Side, method_of: Mapping[Id, str], unstable: bool) -> None:
    assert "id" in frame, f"neither a call nor an answer: {frame!r}"
    assert ("result" in frame) != ("error" in frame), f"an answer has a result or an error: {frame!r}"
    if "error" in frame:
        check_definition("Error", frame["error"], unstable=unstable)
        assert frame["id"] is None or frame["id"] in method_of, f"answers nothing: {frame['id']!r}"
        return
    assert frame["id"] in method_of, f"answers nothing: {frame['id']!r}"
    method = method_of[frame["id"]]
    if not _is_extension(method):
        name = _results(unstable).get((sent_by, method))
        assert name, f"{method} is not answered by the {sent_by}"
        check_definition(name, frame["result"], unstable=unstable)


def _is_extension(method: str) -> bool:
    return method.startswith("_") or (method.startswith("$/") and method != "$/cancel_request")


def _other(side: Side) -> Side:
    return "client" if side == "agent" else "agent"


@cache
def _schema(unstable: bool) -> dict[str, Any]:
    name = "acp-v1-unstable.json" if unstable else "acp-v1.json"
    schema: dict[str, Any] = json.loads(files("coupler.schema").joinpath(name).read_text(encoding="utf-8"))
    return schema


@cache
def _validator(name: str, unstable: bool) -> Draft202012Validator:
    schema = {"$ref": f"#/$defs/{name}", "$defs": _schema(unstable)["$defs"]}
    return Draft202012Validator(schema, format_checker=_formats())


@cache
def _formats() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, (lowest, highest) in _RANGES.items():
        checker.checks(name)(
            lambda value, lowest=lowest, highest=highest: (
                not isinstance(value, int) or lowest <= value <= highest
            )
        )
    return checker


@cache
def _calls(unstable: bool) -> dict[tuple[str, str, bool], str]:
    """The definition of the params by the side that handles them, the method, and whether it is a request."""
    found: dict[tuple[str, str, bool], str] = {}
    for name, node in _schema(unstable)["$defs"].items():
        if "x-method" in node and not name.endswith("Response"):
            sides = ["agent", "client"] if node["x-side"] == "protocol" else [node["x-side"]]
            found |= {(side, node["x-method"], name.endswith("Request")): name for side in sides}
    return found


@cache
def _results(unstable: bool) -> dict[tuple[str, str], str]:
    return {
        (node["x-side"], node["x-method"]): name
        for name, node in _schema(unstable)["$defs"].items()
        if "x-method" in node and name.endswith("Response")
    }
