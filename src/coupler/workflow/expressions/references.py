"""The names that a template uses, for checking it before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jinja2 import nodes

Names = tuple[str | int, ...]


class Reference(NamedTuple):
    """A name and what is taken of it, as in `steps.diff.stdout`, up to where it is only known at run time."""

    names: Names
    line: int
    """Of the template, from 1."""
    guarded: bool = False
    """Whether it may be undefined: it stands before `is defined` or `default(…)`."""


def references(template: str) -> list[Reference]:
    """All of a text with `{{ }}`, in its order; none if it cannot be read."""
    from coupler.workflow.expressions.template import ParseError, is_plain, parse

    try:
        return [] if is_plain(template) else _references(*parse(template).body)
    except ParseError:
        return []


def references_of_expression(expression: str) -> list[Reference]:
    """All of a bare expression, in its order; none if it cannot be read."""
    from coupler.workflow.expressions.template import ParseError, parse_expression

    try:
        return _references(parse_expression(expression))
    except ParseError:
        return []


def _references(*parsed: nodes.Node) -> list[Reference]:
    """Names that the template itself gives to something are none of the run's."""
    from jinja2 import nodes

    own = {"range"}
    for node in parsed:
        own.update(name.name for name in node.find_all(nodes.Name) if name.ctx == "store")
        if isinstance(node, nodes.For) or node.find(nodes.For):
            own.add("loop")
    found = (reference for node in parsed for reference in _found(node, False))
    return [reference for reference in found if reference.names[0] not in own]


def _found(node: nodes.Node, guarded: bool) -> Iterator[Reference]:
    from jinja2 import nodes

    match node:
        case nodes.Name(ctx="load"):
            yield Reference((node.name,), node.lineno, guarded)
        case nodes.Getattr() | nodes.Getitem():
            yield from _path(node, guarded)
        case nodes.Call(node=nodes.Getattr() as method):
            # What is called is a method, and no part of the value.
            yield from _found(method.node, guarded)
            yield from _all_found([*node.args, *node.kwargs])
        case nodes.Filter(name="default" | "d", node=nodes.Node() as value):
            yield from _found(value, True)
            yield from _all_found([*node.args, *node.kwargs])
        case nodes.Test(name="defined" | "undefined"):
            yield from _found(node.node, True)
        case _:
            yield from _all_found(node.iter_child_nodes())


def _all_found(inner: Iterator[nodes.Node] | list[nodes.Node]) -> Iterator[Reference]:
    for node in inner:
        yield from _found(node, False)


def _path(node: nodes.Getattr | nodes.Getitem, guarded: bool) -> Iterator[Reference]:
    """The reference that ends here, and those of the keys that are expressions themselves."""
    from jinja2 import nodes

    names: list[str | int] = []
    keys: list[nodes.Node] = []
    inner: nodes.Node = node
    while isinstance(inner, nodes.Getattr | nodes.Getitem):
        match inner:
            case nodes.Getattr():
                names.insert(0, inner.attr)
            case nodes.Getitem(arg=nodes.Const(value=str() | int() as key)):
                names.insert(0, key)
            case nodes.Getitem():
                names.clear()
                keys.append(inner.arg)
        inner = inner.node
    if isinstance(inner, nodes.Name):
        yield Reference((inner.name, *names), inner.lineno, guarded)
    else:
        yield from _found(inner, guarded)
    yield from _all_found(keys)
