"""Generate the types of `coupler.schema` from ACP's published JSON Schema.

    python scripts/generate_schema.py [--from DIR] [--check]

`--from DIR` first copies a release (`schema/v1` of the npm package @agentclientprotocol/sdk) into the
package, stripped of its prose. The rest is made from those copies: the Structs of `v1.py`, the drafts that
Coupler uses in `unstable.py`, and the leniency table `markers.py`. `--check` writes nothing and fails on a
difference.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "coupler" / "schema"
COPIES = {"schema.json": "acp-v1.json", "schema.unstable.json": "acp-v1-unstable.json"}
LINE_LENGTH = 110

Node = dict[str, Any]

# The hand rules, for what the schema leaves open, are the tables from here to UNUSED_FIELDS.

# Variants without a definition of their own, or that share one. The tag "" is a union's untagged variant,
# "*" its open one, which keeps every tag that the schema does not know.
VARIANT_NAMES = {
    ("SessionUpdate", "user_message_chunk"): "UserMessageChunk",
    ("SessionUpdate", "agent_message_chunk"): "AgentMessageChunk",
    ("SessionUpdate", "agent_thought_chunk"): "AgentThoughtChunk",
    ("RequestPermissionOutcome", "cancelled"): "CancelledPermissionOutcome",
    ("SetSessionConfigOptionRequest", "boolean"): "SetSessionConfigBooleanRequest",
    ("SetSessionConfigOptionRequest", ""): "SetSessionConfigSelectRequest",
    ("CreateElicitationRequest", "form"): "CreateFormElicitationRequest",
    ("CreateElicitationRequest", "url"): "CreateUrlElicitationRequest",
    ("CreateElicitationRequest", "*"): "OtherElicitationRequest",
    ("CreateElicitationResponse", "accept"): "AcceptElicitationResponse",
    ("CreateElicitationResponse", "decline"): "DeclineElicitationResponse",
    ("CreateElicitationResponse", "cancel"): "CancelElicitationResponse",
    ("CreateElicitationResponse", "*"): "OtherElicitationResponse",
    ("ElicitationPropertySchema", "*"): "OtherPropertySchema",
    ("MultiSelectItems", "*"): "OtherMultiSelectItems",
    ("StateUpdate", "*"): "OtherStateUpdate",
}
# A definition that several variants share becomes their base class.
SHARED = {"ContentChunk"}
# A definition that is tagged in a union and stands untagged elsewhere becomes two Structs.
UNTAGGED_NAMES = {"ToolCallUpdate": "PermissionToolCall"}
# A list of either one Struct or another becomes a list of the mixin that both inherit.
ITEM_MIXINS = {"SessionConfigSelectOptions": "SessionConfigSelectItem"}
# Mixins, hand-written in base.py, with a rule over several fields.
CHECKED_BY = {
    "CreateFormElicitationRequest": ["Scoped"],
    "CreateUrlElicitationRequest": ["Scoped"],
    "SessionConfigSelect": ["UniformOptions"],
}
# Defaults that only the specification's text gives.
DEFAULTS = {("ToolCall", "kind"): '"other"', ("ToolCall", "status"): '"pending"'}

# Definitions that a frame carries outside of any method's params and result.
ENVELOPE_PARTS = ["Error", "RequestId"]

# What Coupler uses of the unstable schema: definitions, further fields, further variants.
UNSTABLE_DEFINITIONS = ["ForkSessionRequest", "ForkSessionResponse", "SessionNotification"]
UNSTABLE_FIELDS = {
    "PromptResponse": ["usage"],
    "ClientCapabilities": ["plan", "subagents"],
    "SessionCapabilities": ["fork"],
    "AgentCapabilities": ["sessionCapabilities"],
    "InitializeRequest": ["clientCapabilities"],
    "InitializeResponse": ["agentCapabilities"],
}
UNSTABLE_VARIANTS = {"SessionUpdate": ["plan_update", "plan_removed", "subagent_update"]}
UNUSED_FIELDS = {("ForkSessionRequest", "systemPrompt")}

PROSE = {"$schema", "description", "title", "x-docs-ignore"}


def copies_of(release: Path) -> dict[str, str]:
    return {
        copy: one_definition_a_line(strip(json.loads((release / original).read_text(encoding="utf-8"))))
        for original, copy in COPIES.items()
    }


def strip(node: Any, *, keys_are_names: bool = False) -> Any:
    if isinstance(node, list):
        return [strip(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: strip(value, keys_are_names=key in ("properties", "$defs") and not keys_are_names)
        for key, value in node.items()
        if keys_are_names or key not in PROSE
    }


def one_definition_a_line(schema: Node) -> str:
    definitions = sorted(schema.pop("$defs").items())
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(node)}" for name, node in definitions)
    return f'{{"$defs": {{\n{lines}\n}},\n{json.dumps(schema)[1:-1]}}}\n'


MARKERS = {
    "x-deserialize-default-on-error": "DEFAULT_ON_ERROR",
    "x-deserialize-skip-invalid-items": "SKIP_INVALID_ITEMS",
    "x-deserialize-default-on-null": "DEFAULT_ON_NULL",
}


class Member(NamedTuple):
    node: Node
    required: bool

    def markers(self) -> list[str]:
        return [flag for marker, flag in MARKERS.items() if self.node.get(marker)]


class Variant(NamedTuple):
    union: str
    name: str
    tag_field: str | None
    tag: str
    node: Node


class Schema:
    """The definitions of one stripped copy, and the questions the writer asks about them."""

    def __init__(self, copy: str) -> None:
        self.definitions: dict[str, Node] = json.loads(copy)["$defs"]
        self.untagged = {variant.name: variant for variant in self._variants_without_tag()}

    def messages(self) -> list[str]:
        return [name for name, node in self.definitions.items() if "x-method" in node]

    def members(self, node: Node, *, parts: bool = True) -> dict[str, Member]:
        """The fields of an object. Those that stand in alternative parts of it (`anyOf`) are optional."""
        found = {}
        for name, member in node.get("properties", {}).items():
            found[name] = Member(member, name in node.get("required", ()))
        if target := referenced(node):
            found |= self.members(self.definitions[target])
        for part in node.get("anyOf", ()) if parts else ():
            for name, member in self.members(part).items():
                found.setdefault(name, member._replace(required=False))
        return found

    def variants(self, union: str) -> Iterator[Variant]:
        for option in alternatives(self.definitions[union]):
            tag_field, tag = None, ""
            for name, member in option.get("properties", {}).items():
                if "const" in member or "not" in option:
                    tag_field, tag = name, member.get("const", "*")
            name = VARIANT_NAMES.get((union, tag)) or str(referenced(option))
            yield Variant(union, name, tag_field, tag, option)

    def _variants_without_tag(self) -> Iterator[Variant]:
        for union, node in self.definitions.items():
            if is_union(node):
                yield from (variant for variant in self.variants(union) if not variant.tag_field)
        for union, mixin in ITEM_MIXINS.items():
            for option in alternatives(self.definitions[union]):
                yield Variant(mixin, str(referenced(option["items"])), None, "", option["items"])


def referenced(node: Node) -> str | None:
    """The definition that a node consists of, if it is a reference, bare or wrapped in `allOf`."""
    if "$ref" in node:
        return str(node["$ref"]).removeprefix("#/$defs/")
    return referenced(node["allOf"][0]) if "allOf" in node else None


def alternatives(node: Node) -> list[Node]:
    return list(node.get("oneOf") or node.get("anyOf") or ())


def is_union(node: Node) -> bool:
    options = alternatives(node)
    return len(options) > 1 and all(referenced(option) or "required" in option for option in options)


SCALARS = {"string": "str", "boolean": "bool", "number": "float", "null": "None"}
INTEGERS = {"uint16": "Uint16", "uint32": "Uint32", "uint64": "Uint64", "int32": "Int32", "int64": "Int64"}


class Module:
    """One generated module. A definition is written when it is first asked for, below what it needs."""

    def __init__(self, schema: Schema, stable: Module | None = None) -> None:
        self.schema = schema
        self.stable = stable
        self.names: list[str] = []
        self.blocks: list[str] = []
        self.markers: dict[str, dict[str, list[str]]] = {}

    def refer(self, definition: str) -> str:
        """Write a definition unless it is there; the answer is its name in this module."""
        name = UNTAGGED_NAMES.get(definition, definition)
        if self.stable and name in self.stable.names and not self._differs(definition):
            return f"v1.{name}"
        if name not in self.names:
            self._define(name, definition, self.schema.definitions[definition])
        return name

    def _differs(self, name: str) -> bool:
        return name in UNSTABLE_DEFINITIONS or name in UNSTABLE_FIELDS or name in UNSTABLE_VARIANTS

    def _define(self, name: str, definition: str, node: Node) -> None:
        options = alternatives(node)
        if self.stable and name in UNSTABLE_FIELDS:
            fields = self.schema.members(node)
            self._struct(name, {field: fields[field] for field in UNSTABLE_FIELDS[name]}, [f"v1.{name}"])
        elif definition in ITEM_MIXINS:
            self._mixin(ITEM_MIXINS[definition])
            for option in options:
                self._annotation(option)
            self._alias(name, f"Sequence[{ITEM_MIXINS[definition]}]")
        elif is_union(node):
            self._union(name, node)
        elif any("const" in option for option in options):
            self._enumeration(name, options)
        elif definition in self.schema.untagged:
            self._variant(self.schema.untagged[definition])
        elif node.get("type") == "object":
            self._struct(name, self.schema.members(node))
        else:
            self._alias(name, self._annotation(node))

    def _enumeration(self, name: str, options: list[Node]) -> None:
        if all("const" in option for option in options):
            self._alias(name, "Literal", [json.dumps(option["const"]) for option in options])
        else:
            self._alias(name, self._annotation(options[-1]))

    def _union(self, name: str, node: Node) -> None:
        wanted = UNSTABLE_VARIANTS.get(name) if self.stable else None
        variants = [variant for variant in self.schema.variants(name) if not wanted or variant.tag in wanted]
        if "discriminator" not in node:
            self._mixin(name)
        written = [self._variant(variant) for variant in variants]
        if "discriminator" in node:
            self._union_alias(name, [f"v1.{name}", *written] if wanted else written)

    def _variant(self, variant: Variant) -> str:
        union = self.schema.definitions.get(variant.union, {})
        mixins = [] if "discriminator" in union else [variant.union]
        definition = referenced(variant.node)
        if variant.name in self.names:
            return variant.name
        if variant.tag == "*":
            self._class(variant.name, ["Unknown", *mixins], ["__slots__ = ()"])
            return variant.name
        fields = self.schema.members(union, parts=False) | self.schema.members(variant.node)
        fields.pop(variant.tag_field or "", None)
        bases = [self.refer(str(definition))] if definition in SHARED else []
        self._struct(variant.name, {} if bases else fields, bases, mixins, variant)
        return variant.name

    def _struct(
        self,
        name: str,
        fields: dict[str, Member],
        bases: Sequence[str] = (),
        mixins: Sequence[str] = (),
        variant: Variant | None = None,
    ) -> None:
        bases = bases or ["Extensible" if "_meta" in fields else "Message"]
        mixins = [*mixins, *CHECKED_BY.get(name, ())]
        tag = []
        if variant and variant.tag_field:
            tag = [f"tag_field={json.dumps(variant.tag_field)}", f"tag={json.dumps(variant.tag)}"]
        own = {wire: member for wire, member in fields.items() if not self._is_left_out(name, wire, member)}
        required_first = sorted(own.items(), key=lambda item: not item[1].required)
        lines = [self._field(name, wire, member) for wire, member in required_first]
        self.markers[name] = {wire: member.markers() for wire, member in own.items() if member.markers()}
        self._class(name, [*bases, *mixins, "frozen=True", *tag], lines)

    def _is_left_out(self, owner: str, wire: str, member: Member) -> bool:
        if wire == "_meta" and member.markers() != ["DEFAULT_ON_ERROR"]:
            raise SystemExit(f"{owner}: _meta is no longer marked as the decoder takes it to be everywhere")
        return wire == "_meta" or (owner, wire) in UNUSED_FIELDS

    def _field(self, owner: str, wire: str, member: Member) -> str:
        python = re.sub(r"[A-Z]", lambda capital: f"_{capital[0].lower()}", wire)
        kind = self._annotation(member.node)
        if member.required:
            return f"{python}: {kind}"
        default = DEFAULTS.get((owner, wire)) or self._default(member.node, kind)
        if default == "UNSET" and kind != "Any":
            value, null, _ = kind.partition(" | None")
            kind = f"{value} | UnsetType{null}"
        return f"{python}: {kind} = {default}"

    def _default(self, node: Node, kind: str) -> str:
        if "default" not in node:
            return "UNSET"
        value = node["default"]
        if isinstance(value, dict | list) and not referenced(node):
            return f"field(default_factory={type(value).__name__})"
        if isinstance(value, dict):
            return f"{kind}()"
        return repr(value) if isinstance(value, bool) else json.dumps(value)

    def _annotation(self, node: Node) -> str:
        if target := referenced(node):
            return self.refer(target)
        if "anyOf" in node:
            options = [self._annotation(option) for option in node["anyOf"]]
            return " | ".join(sorted(options, key="None".__eq__))
        kinds = node.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return " | ".join(self._plain(kind, node) for kind in kinds) or "Any"

    def _plain(self, kind: str, node: Node) -> str:
        if kind == "array":
            return f"Sequence[{self._annotation(node['items'])}]"
        if kind == "object":
            values = node["additionalProperties"]
            return f"Mapping[str, {'Any' if values is True else self._annotation(values)}]"
        if kind == "integer":
            return INTEGERS[node["format"]]
        return "NonEmptyString" if node.get("minLength") == 1 else SCALARS[kind]

    # Layout, as the formatter has it.

    def _class(self, name: str, arguments: Sequence[str], lines: Sequence[str]) -> None:
        self.names.append(name)
        body = "\n".join(f"    {line}" for line in lines or ["pass"])
        self.blocks.append(f"\n\n{wrapped(f'class {name}', '()', arguments)}:\n{body}\n\n\n")

    def _mixin(self, name: str) -> None:
        if name not in self.names:
            self.names.append(name)
            self.blocks.append(f"\n\nclass {name}:\n    __slots__ = ()\n\n\n")

    def _alias(self, name: str, target: str, items: Sequence[str] = ()) -> None:
        self.names.append(name)
        self.blocks.append(wrapped(f"{name}: TypeAlias = {target}", "[]", items) + "\n")

    def _union_alias(self, name: str, options: Sequence[str]) -> None:
        """msgspec takes only Structs; to a type checker the variants of a newer peer belong to it too."""
        self.names.append(name)
        checked = either(f"{name}: TypeAlias", [*options, "Unknown"], "    ")
        self.blocks.append(f"\nif TYPE_CHECKING:\n{checked}\nelse:\n{either(name, options, '    ')}\n\n")

    def source(self, header: str) -> str:
        body = re.sub(r"\n{4,}", "\n\n\n", "".join(self.blocks)).strip("\n")
        gap = "\n\n\n" if body.startswith("class") else "\n\n"
        exported = "".join(f"    {json.dumps(name)},\n" for name in sorted(self.names))
        return f"{header}\n__all__ = [\n{exported}]{gap}{body}\n"


def wrapped(head: str, brackets: str, items: Sequence[str]) -> str:
    line = f"{head}{brackets[0]}{', '.join(items)}{brackets[1]}" if items else head
    if len(line) < LINE_LENGTH:
        return line
    return "\n".join([f"{head}{brackets[0]}", *(f"    {item}," for item in items), brackets[1]])


def either(head: str, options: Sequence[str], indent: str) -> str:
    line = f"{indent}{head} = {' | '.join(options)}"
    if len(line) <= LINE_LENGTH:
        return line
    inner = " | ".join(options)
    if len(indent) + 4 + len(inner) > LINE_LENGTH:
        inner = f"\n{indent}    | ".join(options)
    return f"{indent}{head} = (\n{indent}    {inner}\n{indent})"


NOTICE = "Made by scripts/generate_schema.py: do not edit."


def modules_from(copies: dict[str, str]) -> dict[str, str]:
    stable = Module(Schema(copies["acp-v1.json"]))
    for name in [*stable.schema.messages(), *ENVELOPE_PARTS]:
        stable.refer(name)
    unstable = Module(Schema(copies["acp-v1-unstable.json"]), stable)
    for name in [*UNSTABLE_DEFINITIONS, *UNSTABLE_FIELDS]:
        unstable.refer(name)
    return {
        "v1.py": stable.source(V1_HEADER),
        "unstable.py": unstable.source(UNSTABLE_HEADER),
        "markers.py": MARKERS_HEADER + marker_table(stable.markers, unstable.markers),
    }


V1_HEADER = f'''"""The stable types of ACP version 1. {NOTICE}"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from coupler.schema.base import (
    Extensible,
    Int32,
    Int64,
    Message,
    NonEmptyString,
    Scoped,
    Uint16,
    Uint32,
    Uint64,
    UniformOptions,
    Unknown,
)
'''

UNSTABLE_HEADER = f'''"""The drafts of ACP version 1 that Coupler uses. {NOTICE}"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import UNSET, UnsetType

from coupler.schema import v1
from coupler.schema.base import Extensible, Uint64, Unknown
'''

MARKERS_HEADER = f'''"""How leniently each field is read, by Struct and wire name. {NOTICE}

`_meta` is not listed: it is DEFAULT_ON_ERROR in every Struct.
"""

from __future__ import annotations

from coupler.schema.base import DEFAULT_ON_ERROR, DEFAULT_ON_NULL, SKIP_INVALID_ITEMS, Leniency

MARKERS: dict[str, dict[str, Leniency]] = '''


def marker_table(*tables: dict[str, dict[str, list[str]]]) -> str:
    """One table for both modules: an unstable Struct of the same name only adds fields."""
    merged: dict[str, dict[str, list[str]]] = {}
    for table in tables:
        for struct, fields in table.items():
            merged[struct] = merged.get(struct, {}) | fields
    lines = ["{"]
    for struct, fields in sorted(merged.items()):
        if fields:
            lines.append(f"    {json.dumps(struct)}: {{")
            lines += [f"        {json.dumps(name)}: {' | '.join(flags)}," for name, flags in fields.items()]
            lines.append("    },")
    return "\n".join([*lines, "}"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the types of coupler.schema.")
    parser.add_argument("--from", dest="release", type=Path, help="directory with schema.json of a release")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file on disk differs")
    options = parser.parse_args()
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.*")}
    copies = (
        copies_of(options.release) if options.release else {name: on_disk[name] for name in COPIES.values()}
    )
    wanted = copies | modules_from(copies)
    stale = [name for name, content in wanted.items() if on_disk.get(name) != content]
    if stale and options.check:
        print("out of date:", ", ".join(stale))
        return 1
    for name in stale:
        (PACKAGE / name).write_text(wanted[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
