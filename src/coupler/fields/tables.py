"""Tables of keys, made of annotated structs: one declaration for reading, the JSON Schema and the manual.

A field is declared once, on its struct:

    @table("retry", "`retry`", Short("attempts"))
    class Retry(Struct, frozen=True, kw_only=True):
        "How often and when a failed step is tried again."

        attempts: Annotated[int, Key("All attempts, the first one included.", "3", shape=COUNT)] = 1

The shape of a value follows from the type where that says enough, and stands in the `Key` where it does not.
A field without a `Key` is no key: `position` and `name` are filled in, others by whoever makes the struct. A
struct whose keys are not its fields makes itself of them in its class method `from_keys`; what its fields are
wrong together its method `problems` says.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, structs

from coupler.fields.nodes import MappingNode, Node
from coupler.fields.shapes import (
    WRONG,
    Anything,
    Boolean,
    Choice,
    Duration,
    Either,
    ListOf,
    MappingOf,
    Notes,
    Schema,
    Shape,
)
from coupler.runtime.formatting import listed, suggestion

S = TypeVar("S", bound=Struct)

OF_THE_TYPE = Anything("what the type says")
"""The shape of a key whose type says what it is."""

_LINK = re.compile(r"\[(.*?)\]\(.*?\)")


class Key(Struct, frozen=True):
    """Declares a field as a key; stands in the annotation of the field."""

    sentence: str
    """A sentence that says what the key does, for the manual and the schema."""
    example: str = ""
    """A value in YAML."""
    default: str | None = None
    """The default in words, as Markdown; None: as the field has it."""
    name: str = ""
    """The name, where it is not the field's."""
    shape: Shape = OF_THE_TYPE
    is_required: bool | None = None
    """None: if the field has no default."""
    path: tuple[str, ...] = ()
    """The field that it fills; behind the one that has its struct, if that is inlined."""


class Inline(Struct, frozen=True):
    """In the annotation of a field with a struct: the struct's keys stand among those around the field."""

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


class Short(Struct, frozen=True):
    """A struct may also be written as the value of one field, or as a value that fills none."""

    field: str | None = None
    shape: Shape = OF_THE_TYPE


class KeyRule(Protocol):
    """A rule between the keys of one mapping."""

    def check(self, node: MappingNode, notes: Notes) -> bool: ...

    def schema(self) -> Schema: ...


class Table:
    """The keys of one kind of mapping, and which go together; a mapping is read into the struct."""

    def __init__(
        self,
        name: str,
        title: str,
        keys: Sequence[Key],
        rules: Sequence[KeyRule] = (),
        sentence: str = "",
        struct: type[Struct] | None = None,
        words: str = "",
    ) -> None:
        self.name = name
        """Name in the JSON Schema."""
        self.title = title
        """Title in sentences: "a retry"."""
        self.keys = (*keys,)
        self.rules = (*rules,)
        self.sentence = sentence
        """A sentence that says what the mapping is for."""
        self.struct = struct
        """None: it is read as a dict."""
        self.elsewhere: Mapping[str, str] = {}
        """Keys of other tables that people write into this one, and the titles of those."""
        self.names = tuple(key.name for key in keys)
        self.words = words or f"a mapping with {_some(self.names)}"
        self._keys = {key.name: key for key in keys}

    def is_like(self, node: Node) -> bool:
        return isinstance(node, MappingNode)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        """Read a mapping; returns the struct, or `WRONG`."""
        values = self.values(node, key, notes)
        return WRONG if values is WRONG else self.make(values, node, key, notes)

    def values(self, node: Node, key: str, notes: Notes) -> Any:
        """Read the values of a mapping by their keys; returns a dict, or `WRONG`."""
        if not isinstance(node, MappingNode):
            return notes.unfit(node, key, f"must be {self.words}, not {node.words}")
        read = {
            name: self._keys[name].shape.read(value, name, notes)
            if name in self._keys
            else notes.unknown(node, name, self.title, partial(self._advice, name, notes))
            for name, value in node.values.items()
        }
        is_whole = self._has_all(node, notes)
        fits = [rule.check(node, notes) for rule in self.rules]
        if not is_whole or not all(fits) or any(value is WRONG for value in read.values()):
            return WRONG
        return read

    def make(self, values: Mapping[str, Any], node: Node, key: str, notes: Notes, **given: Any) -> Any:
        """Make the struct of what was read, and of fields that are given beside it."""
        if self.struct is None:
            return values
        inlined: dict[str, dict[str, Any]] = {field: {} for field in _inlined(self.struct)}
        for name, value in values.items():
            *outer, field = self._keys[name].path
            (inlined[outer[0]] if outer else given)[field] = value
        for field, inner in inlined.items():
            if (whole := given.get(field)) is not None:
                given[field] = structs.replace(whole, **inner) if inner else whole
            else:
                given[field] = _made(_inlined(self.struct)[field], inner, node, given.get("id", key), notes)
        return _made(self.struct, given, node, key, notes)

    def _advice(self, name: str, notes: Notes) -> str:
        return self._place_for(name, notes) or suggestion(name, self.names, self.names)

    def _place_for(self, name: str, notes: Notes) -> str | None:
        """Return a hint for a key of another language, or one that belongs elsewhere, if there is one."""
        if meant := notes.meant(name, self.names):
            return f"did you mean {meant}?"
        if around := next((key.name for key in self.keys if name in _names_inside(key.shape)), None):
            return f"write it inside of `{around}`"
        return f"it belongs to {self.elsewhere[name]}" if name in self.elsewhere else notes.advice(name)

    def _has_all(self, node: MappingNode, notes: Notes) -> bool:
        missing = [key.name for key in self.keys if key.is_required and key.name not in node.values]
        advice = [self._advice(name, notes) for name in node.values if missing and name not in self.names]
        for name in missing:
            # A key that is only misspelled is told by that.
            if not any(each.startswith("did") and f"`{name}`" in each for each in advice):
                notes.wrong(node, f"{self.title} needs `{name}`")
        return not missing

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"}

    def own_schema(self) -> Schema:
        """Return the definition that `schema` refers to."""
        required = [key.name for key in self.keys if key.is_required]
        whole: Schema = {"type": "object"}
        if self.sentence:
            whole["description"] = self.sentence
        whole["properties"] = {key.name: _described(key) for key in self.keys}
        if required:
            whole["required"] = required
        if self.rules:
            whole["allOf"] = [rule.schema() for rule in self.rules]
        return {**whole, "additionalProperties": False}


class _ShortForm(Struct, frozen=True):
    """The shape of a value that stands for a whole table."""

    plain: Shape
    field: str | None
    table: Table

    @property
    def words(self) -> str:
        return self.plain.words

    def is_like(self, node: Node) -> bool:
        return self.plain.is_like(node)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        value = self.plain.read(node, key, notes)
        if value is WRONG or self.table.struct is None:
            return value
        return _made(self.table.struct, {} if self.field is None else {self.field: value}, node, key, notes)

    def schema(self) -> Schema:
        return self.plain.schema()


class _Declared(NamedTuple):
    """The arguments of `table` for a struct."""

    name: str
    title: str
    marks: tuple[KeyRule | Short, ...]
    without: tuple[str, ...]
    words: str


_fields = cache(structs.fields)

_DECLARED: dict[type[Struct], _Declared] = {}


def table(
    name: str, title: str, *marks: KeyRule | Short, without: Sequence[str] = (), words: str = ""
) -> Callable[[type[S]], type[S]]:
    """Declare that a struct is a table of keys, with its rules and short forms.

    The first line of the class's docstring is its sentence. Fields that are `without` are no keys of it.
    """

    def declare(struct: type[S]) -> type[S]:
        _DECLARED[struct] = _Declared(name, title, marks, (*without,), words)
        return struct

    return declare


@cache
def table_of(struct: type[Struct]) -> Table:
    """Return the table of a struct."""
    declared = _DECLARED[struct]
    rules = [mark for mark in declared.marks if not isinstance(mark, Short)]
    keys = [key for key in keys_of(struct) if key.path[0] not in declared.without]
    return Table(declared.name, declared.title, keys, rules, _sentence(struct), struct, declared.words)


def variant_of(
    struct: type[Struct], name: str, title: str, sentence: str, only: Sequence[str], **changed: Key
) -> Table:
    """Return a table for the same struct with some of its keys, or with other words about them."""
    keys = {key.name: key for key in keys_of(struct)}
    for each, key in changed.items():
        key = structs.replace(key, name=each)
        keys[each] = _bound(key, keys[each].path, keys[each].shape, NODEFAULT if key.is_required else UNSET)
    return Table(name, title, [keys[each] for each in only], (), sentence, struct)


def shape_of(type: Any) -> Shape:
    """Return the shape of a type; raises TypeError for one that says too little."""
    hint, marks = _unwrapped(type)
    for mark in marks:
        if isinstance(mark, Key) and mark.shape is not OF_THE_TYPE:
            return mark.shape
        if hasattr(mark, "is_like"):
            shape: Shape = mark
            return shape
    if get_origin(hint) in (Union, types.UnionType):
        shapes = [
            shape_of(each) for each in get_args(hint) if each not in (types.NoneType, msgspec.UnsetType)
        ]
        return shapes[0] if len(shapes) == 1 else Either((*shapes,))
    if get_origin(hint) is Literal:
        return Choice.of(*get_args(hint))
    if hint is bool:
        return Boolean()
    if hint in _DECLARED:
        shorts = [mark for mark in _DECLARED[hint].marks if isinstance(mark, Short)]
        return form_of(hint, table_of(hint), *shorts)
    raise TypeError(f"the type {hint} does not say what its values are: give a shape")


def tables_in(*shapes: Shape) -> dict[str, Table]:
    """Return the tables that shapes are made of, by their names."""
    tables: dict[str, Table] = {}
    for shape in shapes:
        match shape:
            case Table():
                found = {shape.name: shape, **tables_in(*(key.shape for key in shape.keys))}
            case Either():
                found = tables_in(*shape.shapes)
            case ListOf() | MappingOf():
                found = tables_in(shape.item)
            case _:
                found = {}
        tables |= {name: each for name, each in found.items() if name not in tables}
    return tables


def form_of(struct: type[Struct], table: Table, *shorts: Short) -> Shape:
    """Return the shape of a table of a struct that may also be written short."""
    fields = {key.path[-1]: key.shape for key in table.keys}
    forms = [
        _ShortForm(
            fields[short.field or ""] if short.shape is OF_THE_TYPE else short.shape, short.field, table
        )
        for short in shorts
    ]
    return Either((*forms, table)) if forms else table


@cache
def keys_of(struct: type[Struct]) -> tuple[Key, ...]:
    """Return the keys of a struct, its own before those of its bases; each knows its shape and its field."""
    fields = {field.name: field for field in _fields(struct)}
    return tuple(key for name in _own_first(struct) for key in _keys_in(fields[name]))


def _own_first(struct: type[Struct]) -> Iterator[str]:
    classes = [each for each in struct.__mro__ if issubclass(each, Struct) and each is not Struct]
    for each, *bases in (classes[number:] for number in range(len(classes))):
        inherited = {name for base in bases for name in base.__struct_fields__}
        yield from (name for name in each.__struct_fields__ if name not in inherited)


def _keys_in(field: structs.FieldInfo) -> Iterator[Key]:
    default = UNSET if field.default_factory is not NODEFAULT else field.default
    keys = [mark for mark in _unwrapped(field.type)[1] if isinstance(mark, Key)]
    for number, key in enumerate(keys):
        path = key.name if number and key.name else field.name
        shape = shape_of(field.type) if key.shape is OF_THE_TYPE else key.shape
        yield _bound(key, (path,), shape, default)
    if inline := _inline_in(field.type):
        inner = {key.path[0]: key for key in keys_of(_struct_in(field.type))}
        for name in inline.only or inner:
            if name not in inline.without:
                yield structs.replace(inner[name], path=(field.name, name))


def _bound(key: Key, path: tuple[str, ...], shape: Shape, default: Any) -> Key:
    is_required = default is NODEFAULT if key.is_required is None else key.is_required
    return structs.replace(
        key,
        name=key.name or path[-1],
        path=path,
        shape=shape if key.shape is OF_THE_TYPE else key.shape,
        default=_default_words(shape, default) if key.default is None else key.default,
        is_required=is_required,
    )


def _default_words(shape: Shape, default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"`{default:g}s`" if isinstance(shape, Duration) else f"{default:g}"
    return f"`{default}`" if isinstance(default, str) and default else ""


def marks_of(hint: Any) -> list[Any]:
    """Return what annotates a type."""
    return _unwrapped(hint)[1]


def _unwrapped(hint: Any) -> tuple[Any, list[Any]]:
    """Return a type without what annotates it, and that."""
    marks: list[Any] = []
    while get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        marks += more
    return hint, marks


def _inline_in(hint: Any) -> Inline | None:
    return next((mark for mark in _unwrapped(hint)[1] if isinstance(mark, Inline)), None)


def _struct_in(hint: Any) -> type[Struct]:
    struct: type[Struct] = _unwrapped(hint)[0]
    return struct


@cache
def _inlined(struct: type[Struct]) -> Mapping[str, type[Struct]]:
    """Return the fields whose structs are inlined."""
    return {field.name: _struct_in(field.type) for field in _fields(struct) if _inline_in(field.type)}


@cache
def _given(struct: type[Struct]) -> tuple[str, ...]:
    """Return the fields of a struct that no key fills."""
    keyed = {key.path[0] for key in keys_of(struct)}
    return tuple(name for name in struct.__struct_fields__ if name not in keyed)


def _made(struct: type[Struct], fields: dict[str, Any], node: Node, name: str, notes: Notes) -> Any:
    for field in _given(struct):
        if field not in fields and (value := notes.given(field, node, name)) is not UNSET:
            fields[field] = value
    from_keys = getattr(struct, "from_keys", None)
    made = struct(**fields) if from_keys is None else from_keys(fields)
    notes.made(made, node)
    return made


def _sentence(struct: type[Struct]) -> str:
    return (struct.__doc__ or "").strip().partition("\n")[0]


def _names_inside(shape: Shape) -> tuple[str, ...]:
    """The keys of a mapping that a shape may be."""
    shapes: tuple[Shape, ...] = getattr(shape, "shapes", (shape,))
    return tuple(name for each in shapes if isinstance(each, Table) for name in each.names)


def _described(key: Key) -> Schema:
    sentence = _LINK.sub(r"\1", key.sentence).replace("`", "")
    return {"description": sentence, **key.shape.schema()}


def _some(names: Sequence[str]) -> str:
    return listed(names) if len(names) < 7 else f"{listed(names[:5])} …"


class OneOf(Struct, frozen=True):
    """Exactly one of these keys, or at most one."""

    names: tuple[str, ...]
    is_needed: bool = True

    def check(self, node: MappingNode, notes: Notes) -> bool:
        given = [name for name in self.names if name in node.values]
        if len(given) > 1:
            notes.wrong(node.key(given[1]), f"either {' or '.join(f'`{name}`' for name in given)}, not both")
            return False
        if not given and self.is_needed:
            notes.wrong(node, f"{' or '.join(f'`{name}`' for name in self.names)} is needed here")
            return False
        return True

    def schema(self) -> Schema:
        if self.is_needed:
            return {"oneOf": [{"required": [name]} for name in self.names]}
        return {"not": {"required": [*self.names]}}


class Needs(Struct, frozen=True):
    """A key that means something only beside another one."""

    name: str
    other: str

    def check(self, node: MappingNode, notes: Notes) -> bool:
        if self.name in node.values and self.other not in node.values:
            notes.wrong(node.key(self.name), f"`{self.name}` goes with `{self.other}`, which is not here")
            return False
        return True

    def schema(self) -> Schema:
        return {"dependentRequired": {self.name: [self.other]}}
