"""Which Struct a JSON object is, where a union has untagged or open variants.

msgspec picks a variant by its tag and refuses an untagged Struct beside tagged ones. Such unions are mixin
classes instead, and the table below picks their Struct. A known tag binds: the rest must then be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct, convert

from coupler.schema import unstable, v1
from coupler.schema.errors import DecodingError
from coupler.schema.unknown import Unknown

Choice: TypeAlias = type[Struct] | Unknown
Chooser: TypeAlias = Callable[[dict[str, Any]], Choice]


def resolve(mixin: type, value: object) -> object:
    """The strict decoder's hook: `value` as one of the mixin's Structs."""
    chosen = choose(mixin, value)
    return chosen if isinstance(chosen, Unknown) else convert(value, chosen, dec_hook=resolve)


def choose(mixin: type, value: object) -> Choice:
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
) -> Chooser:
    def chooser(value: dict[str, Any]) -> Choice:
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


def _resource(value: dict[str, Any]) -> Choice:
    return v1.TextResourceContents if "text" in value else v1.BlobResourceContents


def _select_item(value: dict[str, Any]) -> Choice:
    return v1.SessionConfigSelectOption if "value" in value else v1.SessionConfigSelectGroup


def _config_value(value: dict[str, Any]) -> Choice:
    """A string is an id whatever `type` says; only a boolean needs its type."""
    if value.get("type") == "boolean" and not isinstance(value.get("value"), str):
        return v1.SetSessionConfigBooleanRequest
    return v1.SetSessionConfigSelectRequest


_CHOOSERS: dict[type, Chooser] = {
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
