"""What holds for all messages, tried on many."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coupler.schema import unstable, v1
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.lenient import read_leniently
from coupler.schema.methods import METHODS, UNSTABLE_METHODS
from schema.conformance import check_definition
from schema.samples import BOTH, Role
from schema.strategies import JSON, values

settings.register_profile(
    "schema", max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
PROFILE = settings.get_profile("schema")

MESSAGES: dict[str, Any] = {
    f"{'unstable ' if kind.__module__ == unstable.__name__ else ''}{kind.__name__}": kind
    for method in [*METHODS.values(), *UNSTABLE_METHODS.values()]
    for kind in (method.params, method.result)
    if kind
}
every_message = pytest.mark.parametrize("name", sorted(MESSAGES))
both_roles = pytest.mark.parametrize("role", BOTH)


def check(kind: type, value: object) -> None:
    check_definition(kind.__name__, value, unstable=kind.__module__ == unstable.__name__)


@both_roles
@given(name=st.sampled_from(sorted(MESSAGES)), value=JSON)
@settings(PROFILE, max_examples=300)
def test_any_json_is_read_or_refused_with_a_decoding_error(role: Role, name: str, value: object) -> None:
    try:
        decode(MESSAGES[name], msgspec.json.encode(value), role)
    except DecodingError as error:
        assert isinstance(error.path, str)


@both_roles
@given(raw=st.binary(max_size=40))
@settings(PROFILE)
def test_any_bytes_are_read_or_refused_with_a_decoding_error(role: Role, raw: bytes) -> None:
    try:
        decode(v1.ListSessionsRequest, raw, role)
    except DecodingError as error:
        assert error.path in ("", "cwd", "cursor")


@every_message
@given(data=st.data())
@settings(PROFILE)
def test_what_is_built_is_valid_and_comes_back_equal(name: str, data: st.DataObject) -> None:
    kind = MESSAGES[name]
    value = data.draw(values(kind))
    raw = msgspec.json.encode(value)
    check(kind, json.loads(raw))
    for role in BOTH:
        assert decode(kind, raw, role) == value
        assert read_leniently(kind, msgspec.json.decode(raw), role) == value


@every_message
@given(data=st.data())
@settings(PROFILE)
def test_a_damaged_message_is_refused_or_what_is_kept_of_it_is_valid(name: str, data: st.DataObject) -> None:
    kind = MESSAGES[name]
    damaged = damage(msgspec.to_builtins(data.draw(values(kind))), data)
    raw = msgspec.json.encode(damaged)
    try:
        kept = decode(kind, raw, "agent")
    except DecodingError:
        return
    check(kind, json.loads(msgspec.json.encode(kept)))
    assert decode(kind, msgspec.json.encode(kept), "agent") == kept
    decode(kind, raw, "client")  # a client takes all that an agent takes


def damage(value: Any, data: st.DataObject) -> Any:
    """The value with one part of it replaced by any JSON, or taken away."""
    if not value or not isinstance(value, dict | list) or data.draw(st.integers(0, 3)) == 0:
        return data.draw(JSON)
    value = value.copy()
    key = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    if isinstance(value, dict) and data.draw(st.booleans()):
        del value[key]
    else:
        value[key] = damage(value[key], data)
    return value
