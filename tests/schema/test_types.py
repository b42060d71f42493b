"""The generated types: names, defaults, tags and what they look like on the wire."""

from __future__ import annotations

import copy
import json
import pickle
import types
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET, Struct

from coupler.schema import unstable, v1
from coupler.schema.base import Unknown
from schema.conformance import definitions
from tables import table

STRUCTS = {
    f"{module.__name__}.{name}": kind
    for module in (v1, unstable)
    for name, kind in vars(module).items()
    if name in module.__all__ and isinstance(kind, type) and issubclass(kind, Struct)
}
# Definitions that became one Struct; a config option's two Structs also have the fields that both share.
STRAIGHT = [
    name
    for name, node in definitions().items()
    if "properties" in node
    and f"{v1.__name__}.{name}" in STRUCTS
    and name not in ("SessionConfigSelect", "SessionConfigBoolean")
]
UNIONS = {
    name: kind for name, kind in vars(v1).items() if name in v1.__all__ and isinstance(kind, types.UnionType)
}
TAGGED = {name for name, node in definitions().items() if "discriminator" in node}
DEFAULTS = [
    (name, key, member["default"])
    for name, node in definitions().items()
    for key, member in node.get("properties", {}).items()
    if "default" in member
]


def wire_name(kind: type[Struct], python: str) -> str:
    return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))[python]


@table("name", sorted(STRAIGHT))
def test_a_struct_has_exactly_the_schema_s_fields(name: str) -> None:
    node, kind = definitions()[name], STRUCTS[f"{v1.__name__}.{name}"]
    assert set(kind.__struct_encode_fields__) == set(node["properties"])
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    assert required == set(node.get("required", ()))


@table(("name", "key", "default"), DEFAULTS)
def test_a_default_of_the_schema_is_a_typed_default(name: str, key: str, default: Any) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(getattr(v1, name))}
    field = fields[key]
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    assert not isinstance(default, dict) or not default or isinstance(value, Struct)
    assert json.loads(msgspec.json.encode(value)) == default


@table("name", sorted(TAGGED))
def test_a_union_has_a_struct_for_each_tag(name: str) -> None:
    node = definitions()[name]
    field = node["discriminator"]["propertyName"]
    wanted = {option["properties"][field]["const"] for option in node["oneOf"]}
    options = get_args(UNIONS[name])
    assert {option.__struct_config__.tag for option in options} == wanted
    assert {option.__struct_config__.tag_field for option in options} == {field}


@table(
    "name",
    [
        name
        for name, node in definitions().items()
        if all("const" in option for option in node.get("oneOf", [{}]))
    ],
)
def test_a_closed_enumeration_is_a_literal(name: str) -> None:
    assert list(get_args(getattr(v1, name))) == [option["const"] for option in definitions()[name]["oneOf"]]


@table("name", ["NoticeSeverity", "CompactionStatus", "SessionConfigOptionCategory", "SessionId"])
def test_an_open_enumeration_and_an_id_are_strings(name: str) -> None:
    assert getattr(v1, name) is str


@table("name", sorted(STRUCTS))
def test_a_struct_is_frozen_and_maps_its_names(name: str) -> None:
    kind = STRUCTS[name]
    assert kind.__struct_config__.frozen
    for python in kind.__struct_fields__:
        expected = (
            "_meta"
            if python == "meta"
            else python.split("_")[0] + "".join(word.capitalize() for word in python.split("_")[1:])
        )
        assert wire_name(kind, python) == expected


def test_required_fields_come_first_and_the_rest_by_keyword_or_position() -> None:
    call = v1.ToolCall("c", "Edit", status="completed", meta={"a": 1})
    assert (call.kind, call.status, call.content, call.meta) == ("other", "completed", UNSET, {"a": 1})
    assert v1.ToolCallUpdate("c").kind is UNSET
    with pytest.raises(TypeError):
        v1.ToolCall("c")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        call.title = "no"  # type: ignore[misc]


def test_capabilities_need_no_check_for_none() -> None:
    request = v1.InitializeRequest(1)
    assert request.client_capabilities.fs.read_text_file is False
    assert unstable.InitializeResponse(1).agent_capabilities.session_capabilities.fork is UNSET


def test_the_tool_call_of_a_permission_request_has_no_tag() -> None:
    request = v1.RequestPermissionRequest("s", v1.PermissionToolCall("c"), [])
    assert msgspec.json.encode(request) == b'{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[]}'
    assert v1.PermissionToolCall.__struct_fields__ == v1.ToolCallUpdate.__struct_fields__


def test_chunks_share_a_base() -> None:
    chunk = v1.AgentThoughtChunk(v1.TextContent("hm"), "m1")
    assert isinstance(chunk, v1.ContentChunk)
    assert msgspec.to_builtins(chunk) == {
        "sessionUpdate": "agent_thought_chunk",
        "content": {"type": "text", "text": "hm"},
        "messageId": "m1",
    }


def test_drafts_extend_what_is_stable() -> None:
    answer = unstable.PromptResponse("end_turn", usage=unstable.Usage(3, 2, 1))
    assert isinstance(answer, v1.PromptResponse)
    assert msgspec.to_builtins(answer) == {
        "stopReason": "end_turn",
        "usage": {"totalTokens": 3, "inputTokens": 2, "outputTokens": 1},
    }


def test_an_elicitation_cannot_be_built_without_a_scope() -> None:
    schema = v1.ElicitationSchema()
    with pytest.raises(ValueError, match="sessionId or a requestId"):
        v1.CreateFormElicitationRequest("m", schema)
    assert v1.CreateFormElicitationRequest("m", schema, request_id=None).request_id is None


def test_options_cannot_be_mixed_with_groups() -> None:
    option, group = v1.SessionConfigSelectOption("a", "A"), v1.SessionConfigSelectGroup("g", "G", [])
    with pytest.raises(ValueError, match="options or groups"):
        v1.SessionConfigSelect("i", "n", "a", [option, group])


def test_an_unknown_value_is_sent_on_as_it_came() -> None:
    raw = {"type": "video", "deep": [{"x": None}], "n": 1.5}
    unknown = Unknown("video", raw)
    assert unknown.tag == "video"
    assert msgspec.json.encode([unknown]) == msgspec.json.encode([raw])
    assert msgspec.json.decode(msgspec.json.encode(v1.Content(unknown))) == {
        "type": "content",
        "content": raw,
    }
    assert repr(unknown) == f"Unknown('video', {raw!r})"


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_an_unknown_value_can_be_copied(duplicate: Any) -> None:
    original = v1.OtherPropertySchema("date", {"type": "date"})
    twin = duplicate(original)
    assert (type(twin), twin.tag, twin) == (v1.OtherPropertySchema, "date", original)
