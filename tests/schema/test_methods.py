"""The table of methods against the schema, and the gates that capabilities open."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coupler.schema import unstable, v1
from coupler.schema.decoding import decode
from coupler.schema.methods import METHODS, UNSTABLE_METHODS, method_for, offers
from schema.conformance import definitions
from tables import table

MESSAGES = [(name, node) for name, node in definitions().items() if "x-method" in node]


@table(("name", "node"), MESSAGES, ids=[name for name, _ in MESSAGES])
def test_every_stable_message_of_the_schema_is_in_the_table(name: str, node: dict[str, Any]) -> None:
    method = METHODS[node["x-method"]]
    assert method.direction == {"protocol": "both"}.get(node["x-side"], node["x-side"])
    assert not method.unstable
    assert (method.result if name.endswith("Response") else method.params) is getattr(v1, name)
    assert (method.result is None) == (
        not any(other["x-method"] == method.name and kind.endswith("Response") for kind, other in MESSAGES)
    )


def test_the_table_has_nothing_but_the_schema_s_methods() -> None:
    stable = {name for name, method in METHODS.items() if not method.unstable}
    assert stable == {node["x-method"] for _, node in MESSAGES}
    assert {name for name in METHODS if name not in stable} == {"session/fork"}
    assert all(name == method.name for name, method in METHODS.items())


def test_the_unstable_table_differs_where_drafts_are_carried() -> None:
    different = {name for name in UNSTABLE_METHODS if UNSTABLE_METHODS[name] != METHODS[name]}
    assert different == {"initialize", "session/prompt", "session/update"}
    assert issubclass(unstable.InitializeRequest, v1.InitializeRequest)
    assert issubclass(unstable.PromptResponse, v1.PromptResponse)


@table("name", sorted(METHODS))
def test_a_method_is_found_by_its_params(name: str) -> None:
    assert method_for(METHODS[name].params) is METHODS[name]


@table(
    ("params", "name", "gate"),
    [
        (v1.CreateFormElicitationRequest, "elicitation/create", "elicitation.form"),
        (v1.CreateUrlElicitationRequest, "elicitation/create", "elicitation.url"),
        (v1.SetSessionConfigBooleanRequest, "session/set_config_option", None),
        (unstable.InitializeRequest, "initialize", None),
        (unstable.SessionNotification, "session/update", None),
    ],
)
def test_a_variant_of_params_finds_its_method(params: type, name: str, gate: str | None) -> None:
    assert (method_for(params).name, method_for(params).gate) == (name, gate)


def test_a_type_that_is_nobody_s_params_has_no_method() -> None:
    with pytest.raises(LookupError, match="TextContent"):
        method_for(v1.TextContent)


def test_only_files_and_terminals_have_a_deadline() -> None:
    limited = {name for name, method in METHODS.items() if method.deadline is not None}
    everything = {name for name in METHODS if name.startswith(("fs/", "terminal/"))}
    assert limited == everything - {"terminal/wait_for_exit"}
    assert {METHODS[name].deadline for name in limited} == {30}


@table(
    ("gate", "sent", "is_open"),
    [
        ("fs.readTextFile", {}, False),
        ("fs.readTextFile", {"fs": {}}, False),
        ("fs.readTextFile", {"fs": {"readTextFile": False}}, False),
        ("fs.readTextFile", {"fs": {"readTextFile": True}}, True),
        ("fs.writeTextFile", {"fs": {"readTextFile": True}}, False),
        ("fs.writeTextFile", {"fs": {"writeTextFile": True}}, True),
        ("terminal", {"terminal": True}, True),
        ("terminal", {"terminal": "yes"}, False),
        ("elicitation", {}, False),
        ("elicitation", {"elicitation": {}}, False),
        ("elicitation", {"elicitation": {"form": None, "url": None}}, False),
        ("elicitation", {"elicitation": {"url": {}}}, True),
        ("elicitation.form", {"elicitation": None}, False),
        ("elicitation.form", {"elicitation": {"url": {}}}, False),
        ("elicitation.form", {"elicitation": {"form": {}}}, True),
        ("elicitation.url", {"elicitation": {"url": {"_meta": None}}}, True),
        ("session.compaction", {"session": {"compaction": {}}}, True),
        ("session.notices", {"session": {"notices": None}}, False),
        ("session.configOptions.boolean", {"session": {"configOptions": {"boolean": {}}}}, True),
        ("plan", {"plan": {}}, True),
        ("subagents", {"plan": {}}, False),
        (None, {}, True),
    ],
)
def test_a_client_opens_the_gates_it_advertised(
    gate: str | None, sent: dict[str, Any], is_open: bool
) -> None:
    capabilities = decode(unstable.ClientCapabilities, msgspec.json.encode(sent), "agent")
    assert offers(capabilities, gate) is is_open


@table(
    ("gate", "sent", "is_open"),
    [
        ("loadSession", {}, False),
        ("loadSession", {"loadSession": True}, True),
        ("auth.logout", {"auth": {}}, False),
        ("auth.logout", {"auth": {"logout": {}}}, True),
        ("sessionCapabilities.list", {}, False),
        ("sessionCapabilities.list", {"sessionCapabilities": {"list": None}}, False),
        ("sessionCapabilities.list", {"sessionCapabilities": {"list": {}}}, True),
        ("sessionCapabilities.resume", {"sessionCapabilities": {"list": {}}}, False),
        ("sessionCapabilities.fork", {"sessionCapabilities": {"fork": {}}}, True),
        ("promptCapabilities.embeddedContext", {"promptCapabilities": {"embeddedContext": True}}, True),
        ("mcpCapabilities.http", {"mcpCapabilities": {"sse": True}}, False),
    ],
)
def test_an_agent_opens_the_gates_it_advertised(gate: str, sent: dict[str, Any], is_open: bool) -> None:
    capabilities = decode(unstable.AgentCapabilities, msgspec.json.encode(sent), "client")
    assert offers(capabilities, gate) is is_open


def test_a_draft_s_gate_is_closed_in_stable_capabilities() -> None:
    capabilities = decode(v1.AgentCapabilities, b'{"sessionCapabilities": {"fork": {}}}', "client")
    assert not offers(capabilities, "sessionCapabilities.fork")


@table("name", [name for name, method in METHODS.items() if method.gate])
def test_every_gate_leads_to_a_capability_of_the_side_that_handles_it(name: str) -> None:
    method = METHODS[name]
    kind: Any = unstable.ClientCapabilities if method.direction == "client" else unstable.AgentCapabilities
    for part in str(method.gate).split("."):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        assert part in fields
        kind = next(
            (
                option
                for option in getattr(fields[part], "__args__", [fields[part]])
                if isinstance(option, type) and issubclass(option, msgspec.Struct)
            ),
            bool,
        )
