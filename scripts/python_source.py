"""What Python source says of a class or a function: its signature, its docstring, its members.

It reads and never imports, so that the manual can be made without LangChain, and signatures stand there as
they were written; only constants stand there with their values.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from pages import ROOT

WIDTH = 100
RECORDS = frozenset({"Struct", "NamedTuple", "TypedDict"})
"""Bases whose classes are made of their fields."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Member(NamedTuple):
    """Something that a class has, as it is written where it is used."""

    name: str
    signature: str
    sentence: str


class Described(NamedTuple):
    """A class or a function."""

    name: str
    signature: str
    text: str
    """Its docstring, in paragraphs."""
    bases: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()


def described(module: str, name: str) -> Described:
    """The class or function of this name in a module of Coupler's, wherever the module has it from."""
    module, node = found(module, name)
    if isinstance(node, ast.ClassDef):
        return _class(module, node)
    return Described(node.name, _with_values(module, _signature(node)), _docstring(node))


def found(module: str, name: str) -> tuple[str, ast.ClassDef | Function]:
    """The definition, and the module that it is in. Of a function with overloads it is the last one."""
    tree = _tree(module)
    for node in reversed(tree.body):
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return module, node
    home = _imports(module).get(name)
    if home is None:
        raise LookupError(f"{module} has no class or function {name}")
    return found(*home)


def _class(module: str, node: ast.ClassDef) -> Described:
    members = {member.name: member for member in _inherited(module, node)}
    for member in _members(node):
        known = members.get(member.name)
        sentence = member.sentence or (known.sentence if known is not None else "")
        members[member.name] = member._replace(sentence=sentence)
    bases = tuple(base for base in map(_base_name, node.bases) if base not in RECORDS)
    signature = _with_values(module, _constructor(module, node))
    told = [each._replace(signature=_with_values(module, each.signature)) for each in members.values()]
    return Described(node.name, signature, _docstring(node), bases, (*told,))


def _inherited(module: str, node: ast.ClassDef) -> Iterator[Member]:
    """The members that come from other classes of Coupler's."""
    for home, definition in _own_bases(module, node):
        yield from _inherited(home, definition)
        yield from _members(definition)


def _own_bases(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """The bases that are Coupler's, each with its module."""
    for base in node.bases:
        way, _, name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base).rpartition(".")
        home = ".".join(_imports(module).get(way, ())) if way else module
        try:
            home, definition = found(home, name) if home else (home, None)
        except LookupError:
            continue
        if isinstance(definition, ast.ClassDef):
            yield home, definition


def _base_name(base: ast.expr) -> str:
    return _last_part(ast.unparse(base.value if isinstance(base, ast.Subscript) else base))


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _constructor(module: str, node: ast.ClassDef) -> str:
    for child in node.body:
        if isinstance(child, Function) and child.name == "__init__":
            return _signature(child, name=node.name, is_method=True, has_result=False)
    if any(_base_name(base) in RECORDS for base in node.bases) or _is_dataclass(node):
        return _wrapped(node.name, [_field(field) for field in _fields(node)], "")
    for home, definition in _own_bases(module, node):
        return _constructor(home, definition).replace(definition.name, node.name, 1)
    return f"{node.name}()"


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    fields = [child for child in node.body if isinstance(child, ast.AnnAssign)]
    return [field for field in fields if not ast.unparse(field.target).startswith("_")]


def _field(field: ast.AnnAssign) -> str:
    default = f" = {ast.unparse(field.value)}" if field.value is not None else ""
    return f"{ast.unparse(field.target)}: {ast.unparse(field.annotation)}{default}"


def _members(node: ast.ClassDef) -> Iterator[Member]:
    """What the class itself has, in its order: fields, then attributes, properties and methods."""
    yield from _attributes(node.body, {})
    for child in node.body:
        if not isinstance(child, Function):
            continue
        if child.name == "__init__":
            yield from _attributes(child.body, _given(child), owner="self.")
        elif not child.name.startswith("_") and not _is_left_out(child):
            yield _method(child)


def _given(function: Function) -> dict[str, str]:
    """The parameters with their types."""
    arguments = (*function.args.args, *function.args.kwonlyargs)
    return {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation is not None}


def _attributes(body: list[ast.stmt], given: dict[str, str], owner: str = "") -> Iterator[Member]:
    """Attributes that have a type or words of their own, or are what was given under that name."""
    for place, child in enumerate(body):
        if not isinstance(child, ast.AnnAssign | ast.Assign):
            continue
        target = ast.unparse(child.target if isinstance(child, ast.AnnAssign) else child.targets[0])
        name = target.removeprefix(owner)
        sentence = _words_behind(body, place)
        if not target.startswith(owner) or not re.fullmatch("[a-z][a-z_0-9]*", name):
            continue
        if isinstance(child, ast.AnnAssign):
            annotation = ast.unparse(child.annotation)
            if sentence or not annotation.startswith("Final"):  # that is what the constructor was given
                yield Member(name, f"{name}: {annotation}", sentence)
        elif name in given and ast.unparse(child.value) == name:
            yield Member(name, f"{name}: {given[name]}", sentence)
        elif sentence:
            yield Member(name, name, sentence)


def _words_behind(body: list[ast.stmt], place: int) -> str:
    behind = body[place + 1] if place + 1 < len(body) else None
    if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
        return _joined(str(behind.value.value))
    return ""


def _is_left_out(function: Function) -> bool:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(name == "overload" or name.endswith(".setter") for name in decorators)


def _method(function: Function) -> Member:
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    sentence = _joined(_docstring(function))
    if decorators & {"property", "cached_property"}:
        result = ast.unparse(function.returns) if function.returns is not None else "Any"
        return Member(function.name, f"{function.name}: {result}", sentence)
    is_static = "staticmethod" in decorators
    return Member(function.name, _signature(function, is_method=not is_static, width=10_000), sentence)


def _signature(
    function: Function,
    *,
    name: str | None = None,
    is_method: bool = False,
    has_result: bool = True,
    width: int = WIDTH,
) -> str:
    parameters = _parameters(function.args)[1 if is_method else 0 :]
    result = f" -> {ast.unparse(function.returns)}" if has_result and function.returns is not None else ""
    return _wrapped(f"{_manner(function)}{name or function.name}", parameters, result, width)


def _manner(function: Function) -> str:
    """The word by which it is used."""
    decorators = {_last_part(ast.unparse(decorator)) for decorator in function.decorator_list}
    if "asynccontextmanager" in decorators:
        return "async with "
    return "await " if isinstance(function, ast.AsyncFunctionDef) else ""


def _parameters(arguments: ast.arguments) -> list[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    written = [_parameter(*pair) for pair in zip(plain, [*defaults, *arguments.defaults], strict=True)]
    if arguments.vararg is not None:
        written.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        written.append("*")
    written += [_parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        written.append(f"**{_parameter(arguments.kwarg, None)}")
    return written


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation is not None else ""
    equals = " = " if annotation else "="
    value = f"{equals}{ast.unparse(default)}" if default is not None else ""
    return f"{argument.arg}{annotation}{value}"


def _wrapped(head: str, parameters: list[str], result: str, width: int = WIDTH) -> str:
    line = f"{head}({', '.join(parameters)}){result}"
    if len(line) <= width:
        return line
    return "\n".join([f"{head}(", *(f"    {parameter}," for parameter in parameters), f"){result}"])


def _with_values(module: str, signature: str) -> str:
    """The signature with numbers and texts in the place of the constants that stand for them."""
    return re.sub(r"(?<== )[A-Z][A-Z_]+\b", lambda name: _value(module, name[0]), signature)


def _value(module: str, name: str) -> str:
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.unparse(node.value)
    home = _imports(module).get(name)
    return name if home is None else _value(*home)


def _docstring(node: ast.ClassDef | Function) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "")


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@cache
def _tree(module: str) -> ast.Module:
    place = ROOT / "src" / module.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Names that the module has from others of Coupler's: the module and the name there."""
    homes: dict[str, tuple[str, str]] = {}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coupler"):
            homes |= {each.asname or each.name: (str(node.module), each.name) for each in node.names}
    return homes
