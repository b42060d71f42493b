"""Decodes JSON into typed messages: strictly if it can be done, else by ACP's rules of leniency.

Nearly every message passes the strict decoder, in about a microsecond. What does not, and what is so long
that its lists have to be counted, is read by `coupler.schema.lenient`, which is imported only then.

msgspec picks a variant of a union by its tag and refuses an untagged Struct beside tagged ones. Unions with
untagged or open variants are mixin classes instead, and `_CHOOSERS` picks their Struct. A known tag binds:
the rest must then be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec import DecodeError, Raw, Struct, convert
from msgspec.json import Decoder
from msgspec.json import decode as decode_plain

from coupler.schema import unstable, v1
from coupler.schema.base import MAX_ITEMS, DecodingError, Unknown

__all__ = ["DecodingError", "Role", "decode"]

Role: TypeAlias = Literal["agent", "client"]

Variant: TypeAlias = type[Struct] | Unknown
VariantChooser: TypeAlias = Callable[[dict[str, Any]], Variant]

T = TypeVar("T")

# A long integer, broken UTF-8 and deep nesting each fail in a way of their own.
_FAILURES = (DecodeError, UnicodeDecodeError, RecursionError)


def decode(kind: type[T], raw: bytes | Raw, role: Role) -> T:
    """Read `raw` as `kind`, as the side `role` that received it; raises DecodingError.

    An agent is strict where the schema is. A client keeps what a newer agent may send: unknown strings of an
    enumeration stay as they are, unknown variants become `Unknown`.
    """
    # Only a long message can have long lists; the lenient reader counts their items and bounds the work.
    if len(raw) <= 2 * MAX_ITEMS or bytes(raw).count(b",") < MAX_ITEMS:
        try:
            return cast(T, _decoders[kind](raw))
        except _FAILURES:
            pass  # read again below, so that the error raised there has no second one in its context
    from coupler.schema.lenient import read_leniently

    return read_leniently(kind, _parse(raw), role)


def _parse(raw: bytes | Raw) -> Any:
    if not bytes(raw).strip():
        return None
    try:
        return decode_plain(raw)
    except _FAILURES as error:
        raise DecodingError("", f"cannot be read as JSON: {error}") from None


class _Decoders(dict[Any, Callable[[bytes | Raw], Any]]):
    """The strict decoder of each type, made when it is first needed."""

    def __missing__(self, kind: Any) -> Callable[[bytes | Raw], Any]:
        decoder = self[kind] = Decoder(kind, dec_hook=resolve_mixin).decode
        return decoder


_decoders = _Decoders()


def resolve_mixin(mixin: type, value: object) -> object:
    """The strict decoder's hook: `value` as one of the mixin's Structs."""
    chosen = choose_variant(mixin, value)
    return chosen if isinstance(chosen, Unknown) else convert(value, chosen, dec_hook=resolve_mixin)


def choose_variant(mixin: type, value: object) -> Variant:
    """The Struct that `value` is to be read as, or `value` itself where any tag may come."""
    if not isinstance(value, dict):
        raise DecodingError.expected("an object", value)
    return _CHOOSERS[mixin](value)


def _by_tag(
    field: str,
    tagged: dict[str, type[Struct]],
    *,
    unknown: type[Unknown] | None = None,
    untagged: type[Struct] | None = None,
) -> VariantChooser:
    """A chooser that looks at one field; `unknown` takes any other tag, `untagged` an object without it."""

    def chooser(value: dict[str, Any]) -> Variant:
        tag = value.get(field)
        if isinstance(tag, str) and tag in tagged:
            return tagged[tag]
        if isinstance(tag, str) and unknown:
            return unknown(tag, value)
        if untagged:
            return untagged
        raise (
            DecodingError.expected("a string", tag, field) if field in value else DecodingError.missing(field)
        )

    return chooser


def _resource(value: dict[str, Any]) -> Variant:
    return v1.TextResourceContents if "text" in value else v1.BlobResourceContents


def _select_item(value: dict[str, Any]) -> Variant:
    return v1.SessionConfigSelectOption if "value" in value else v1.SessionConfigSelectGroup


def _config_value(value: dict[str, Any]) -> Variant:
    """Choose the request by its value: a string is an id whatever `type` says, a boolean needs its type."""
    if value.get("type") == "boolean" and not isinstance(value.get("value"), str):
        return v1.SetSessionConfigBooleanRequest
    return v1.SetSessionConfigSelectRequest


_CHOOSERS: dict[type, VariantChooser] = {
    v1.EmbeddedResourceResource: _resource,
    v1.SessionConfigSelectItem: _select_item,
    v1.SetSessionConfigOptionRequest: _config_value,
    v1.McpServer: _by_tag(
        "type", {"http": v1.McpServerHttp, "sse": v1.McpServerSse}, untagged=v1.McpServerStdio
    ),
    v1.AuthMethod: _by_tag("type", {"terminal": v1.AuthMethodTerminal}, untagged=v1.AuthMethodAgent),
    v1.MultiSelectItems: _by_tag(
        "type",
        {"string": v1.StringMultiSelectItems},
        unknown=v1.OtherMultiSelectItems,
        untagged=v1.TitledMultiSelectItems,
    ),
    v1.ElicitationPropertySchema: _by_tag(
        "type",
        {
            "string": v1.StringPropertySchema,
            "number": v1.NumberPropertySchema,
            "integer": v1.IntegerPropertySchema,
            "boolean": v1.BooleanPropertySchema,
            "array": v1.MultiSelectPropertySchema,
        },
        unknown=v1.OtherPropertySchema,
    ),
    v1.CreateElicitationRequest: _by_tag(
        "mode",
        {"form": v1.CreateFormElicitationRequest, "url": v1.CreateUrlElicitationRequest},
        unknown=v1.OtherElicitationRequest,
    ),
    v1.CreateElicitationResponse: _by_tag(
        "action",
        {
            "accept": v1.AcceptElicitationResponse,
            "decline": v1.DeclineElicitationResponse,
            "cancel": v1.CancelElicitationResponse,
        },
        unknown=v1.OtherElicitationResponse,
    ),
    unstable.StateUpdate: _by_tag(
        "state",
        {
            "running": unstable.RunningStateUpdate,
            "idle": unstable.IdleStateUpdate,
            "requires_action": unstable.RequiresActionStateUpdate,
            "unknown": unstable.UnknownStateUpdate,
        },
        unknown=unstable.OtherStateUpdate,
    ),
}
