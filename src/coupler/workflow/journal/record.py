"""How happenings are written down: in the store, and as lines of JSON for programs.

What programs write may hold bytes that are no text (surrogates, as `surrogateescape` makes them), and an
agent's JSON may hold numbers of any size: both come back as they were.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec

from coupler.store.runs import RunEntry
from coupler.workflow.journal.happenings import AnyHappening, Happening, Logged

_AS_JSON = b"\xc1"
"""The one byte that no MessagePack begins with: what follows is JSON, for what MessagePack cannot hold."""

_encoder = msgspec.msgpack.Encoder()


def packed(value: Any) -> bytes:
    """A happening, or a value of JSON, for the store."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return _AS_JSON + json.dumps(msgspec.to_builtins(value)).encode()


def unpacked(body: bytes) -> Any:
    """A value that was packed."""
    return json.loads(body[1:]) if body[:1] == _AS_JSON else msgspec.msgpack.decode(body)


def happening_in(body: bytes) -> AnyHappening:
    """A happening that was packed; raises msgspec.ValidationError or ValueError for anything else."""
    if body[:1] == _AS_JSON:
        happening: AnyHappening = msgspec.convert(json.loads(body[1:]), AnyHappening)
        return happening
    return _decoder().decode(body)


def logged_in(entry: RunEntry) -> Logged:
    """An entry of the store as followers get it."""
    return Logged(entry.seq, entry.at / 1000, happening_in(entry.body))


def kind_of(happening: Happening) -> str:
    """What a happening is called where it is written down."""
    tag = type(happening).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def as_line(logged: Logged) -> str:
    """A line of JSON without its end: the number, the time, and the happening's own fields beside them."""
    fields = {"seq": logged.seq, "at": logged.at, **msgspec.to_builtins(logged.happening)}
    try:
        return msgspec.json.encode(fields).decode()
    except (UnicodeEncodeError, OverflowError):
        # Half a surrogate pair is escaped, which is JSON.
        return json.dumps(fields, separators=(",", ":"))


@cache
def _decoder() -> msgspec.msgpack.Decoder[AnyHappening]:
    return msgspec.msgpack.Decoder(AnyHappening)
