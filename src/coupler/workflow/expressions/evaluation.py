"""Parses templates and expressions with Jinja2, and evaluates them node by node.

There are `{{ }}`, `{% if %}`, `{% for %}`, `{% set %}`, `{% with %}` and `{% raw %}`. Nothing includes other
templates or defines macros, and there are no comments: `${#name}` of a shell is text. Nothing is compiled to
Python, so that an expression reaches values and the filters, tests and methods of this language, and nothing
else; and so that every operation and every round of a loop is counted.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache, partial
from itertools import islice, pairwise
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.lexer import Lexer, Token, TokenStream
from jinja2.parser import Parser

from coupler.workflow.expressions.filters import FILTERS, TESTS, Group, path_names
from coupler.workflow.expressions.values import (
    LIST_METHODS,
    MAPPING_METHODS,
    MOST_BITS,
    TEXT_METHODS,
    Bounds,
    EvaluationError,
    Method,
    MissingNameError,
    Unknown,
    compare,
    iterable,
    join_texts,
    kind_of,
    negate,
    number_range,
    operate,
)

MOST_TOKENS = 10_000
"""Most words and signs inside of all tags of one template."""
LONGEST_TEMPLATE = 1024 * 1024
"""Most characters of a template."""


class ParseError(Exception):
    """A template that cannot be parsed."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True)
class Template:
    """A template's parts, and the text of each `{{ }}` for sentences about it."""

    body: list[nodes.Node]
    sources: dict[int, str]
    whole: nodes.Expr | None
    """The expression of a template that is exactly one `{{ }}`."""

    def source_of(self, node: nodes.Node) -> str:
        return self.sources.get(id(node), "…")


class _CountTokens(Extension):
    """Ends the reading of a template that is too long, before it takes long."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for number, token in enumerate(stream):
            if number > MOST_TOKENS:
                raise TemplateSyntaxError("it is too long: split it into steps", token.lineno)
            yield token


_LITERALS = {
    "float": re.compile(
        r"(?<!\.)(?:\d+_)*+\d++(?:(?:\.(?:\d+_)*+\d++)?e[+\-]?(?:\d+_)*+\d++|\.(?:\d+_)*+\d++)", re.IGNORECASE
    ),
    "integer": re.compile(
        r"0b(?:_?[01])++|0o(?:_?[0-7])++|0x(?:_?[\da-f])++|[1-9](?:_?\d)*+|0(?:_?0)*+", re.IGNORECASE
    ),
    "string": re.compile(r"""'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+\"""", re.DOTALL),
}
"""Jinja2's patterns of literals, made possessive: they need up to a kilobyte for each character otherwise."""


class _Environment(Environment):
    @cached_property
    def lexer(self) -> Lexer:
        lexer = Lexer(self)
        for rules in lexer.rules.values():
            rules[:] = [
                rule._replace(pattern=_LITERALS.get(str(rule.tokens), rule.pattern)) for rule in rules
            ]
        return lexer


_ENVIRONMENT = _Environment(
    extensions=[_CountTokens],
    # Nobody can write this into a file: comments would take `${#name}` of a shell apart.
    comment_start_string="\0{#",
    comment_end_string="#}\0",
    keep_trailing_newline=True,
    autoescape=False,
    optimized=False,
)

_NUMBER_TOO_LONG = f"a number has more than {MOST_BITS:,} bits: calculate with smaller ones"
_MANY_DIGITS = re.compile(r"\d[\d_]{4300}")
"""Matches what Python makes no number of."""
_BRACES = re.compile(r"\s*(\$?\{\{)")
_SIGN = re.compile(r"""(?:unexpected(?: char)?|got|ends before) (["'`])(.)\1""")
"""Matches the sign at which Jinja2 gives up, in its message."""
_OPEN_QUOTE = "a quote is opened and not closed: write the same quote at the end of the text"
_ADVICE = {
    "&": "write `and`, not `&&`",
    "|": "write `or`, not `||`",
    "!": "write `not`, not `!`",
    "=": "write `==` to compare two values",
    "?": "write `a if condition else b`, not `condition ? a : b`",
    "'": _OPEN_QUOTE,
    '"': _OPEN_QUOTE,
}
"""Advice about signs of other languages, by the sign."""

_STATEMENTS = (nodes.Output, nodes.If, nodes.For, nodes.Assign, nodes.With)
_EXPRESSIONS = (
    nodes.TemplateData,
    nodes.Const,
    nodes.Tuple,
    nodes.List,
    nodes.Dict,
    nodes.Pair,
    nodes.Name,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.Call,
    nodes.Keyword,
    nodes.Filter,
    nodes.Test,
    nodes.CondExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.Concat,
    nodes.BinExpr,
    nodes.UnaryExpr,
)


@lru_cache(maxsize=1024)
def parse(template: str) -> Template:
    """Parse a text with `{{ }}` and `{% %}`; raises ParseError."""
    with _problems(template, is_template=True):
        _check_length(template)
        parsed = _ENVIRONMENT.parse(template)
        _check(parsed)
        sources = _sources(template, parsed)
    return Template(parsed.body, sources, _whole(template, parsed))


@lru_cache(maxsize=1024)
def parse_expression(expression: str) -> nodes.Expr:
    """Parse a bare expression; raises ParseError."""
    if braces := _BRACES.match(expression):
        raise ParseError(f"an expression stands here: write it without `{braces[1]}` and `}}}}`", 1)
    with _problems(expression, is_template=False):
        _check_length(expression)
        parser = Parser(_ENVIRONMENT, expression, state="variable")
        parsed = parser.parse_expression()
        if not parser.stream.eos:
            token = parser.stream.current
            raise ParseError(_sentence(f"the expression ends before `{token.value}`"), token.lineno)
        _check(parsed)
    return parsed


def lines_with_dollars(template: str) -> list[int]:
    """Return the lines where a `$` stands right before a `{{`, as GitHub has it: here it is text."""
    return [
        after.lineno
        for output in _outputs(parse(template).body)
        for before, after in pairwise(output.nodes)
        if isinstance(before, nodes.TemplateData) and before.data.endswith("$")
    ]


def _outputs(body: list[nodes.Node]) -> Iterator[nodes.Output]:
    for node in body:
        if isinstance(node, nodes.Output):
            yield node
        yield from node.find_all(nodes.Output)


@contextmanager
def _problems(text: str, *, is_template: bool) -> Iterator[None]:
    """Turn whatever Jinja2 raises into a ParseError."""
    try:
        yield
    except TemplateSyntaxError as error:
        sentence = _sentence(error.message or "it cannot be read", is_template=is_template)
        raise ParseError(sentence, error.lineno) from None
    except (RecursionError, MemoryError):
        raise ParseError("it is nested too deep: split it into steps", 1) from None
    except ValueError:
        digits = _MANY_DIGITS.search(text)
        line = 1 if digits is None else text.count("\n", 0, digits.start()) + 1
        raise ParseError(_NUMBER_TOO_LONG, line) from None


def _sentence(message: str, *, is_template: bool = False) -> str:
    """Say what to do about the most common mistakes, and else what Jinja2 says."""
    sentence = message[:300].rstrip(".")
    sign = _SIGN.search(sentence)
    if sign is not None and (advice := _ADVICE.get(sign[2])):
        return advice
    if is_template and sentence.startswith(("Encountered unknown tag", "unexpected")):
        sentence += "; text that is no template stands between `{% raw %}` and `{% endraw %}`"
    return sentence


def _check_length(text: str) -> None:
    if len(text) > LONGEST_TEMPLATE:
        raise ParseError(f"it has more than {LONGEST_TEMPLATE:,} characters: make it shorter", 1)


def _check(parsed: nodes.Node) -> None:
    """Refuse what the language leaves out, and filters and tests that are not there."""
    for node in (parsed, *parsed.find_all(nodes.Node)):
        match node:
            case nodes.Template():
                continue
            case nodes.For(recursive=True):
                raise ParseError("a `for` cannot be recursive here", node.lineno)
            case nodes.Call() | nodes.Filter() | nodes.Test() if node.dyn_args or node.dyn_kwargs:
                raise ParseError("`*` and `**` are no arguments here: write them out", node.lineno)
            case nodes.Const(value=int() as number) if number.bit_length() > MOST_BITS:
                raise ParseError(_NUMBER_TOO_LONG, node.lineno)
            case nodes.Filter():
                _check_known("filter", node.name, FILTERS, node.lineno)
            case nodes.Test():
                _check_known("test", node.name, TESTS, node.lineno)
        if not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS)):
            raise ParseError(
                f"`{type(node).__name__.lower()}` is not part of this language: "
                "use `if`, `for`, `set`, `with` or `raw`",
                node.lineno,
            )


def _check_known(what: str, name: str, known: Mapping[str, object], line: int) -> None:
    if name not in known:
        near = get_close_matches(name[:60], known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(sorted(known))}"
        raise ParseError(f"there is no {what} `{name[:60]}`: {hint}", line)


def _sources(template: str, parsed: nodes.Template) -> dict[int, str]:
    """Return the source of each `{{ }}`, by the id of the node made of it: both are in the text's order."""
    texts: list[str] = []
    is_inside = False
    for _, kind, text in _ENVIRONMENT.lex(template):
        if kind == "variable_begin":
            texts.append("")
            is_inside = True
        elif kind == "variable_end":
            is_inside = False
        elif is_inside:
            texts[-1] += text
    shown = [
        child
        for output in parsed.find_all(nodes.Output)
        for child in output.nodes
        if not isinstance(child, nodes.TemplateData)
    ]
    return {id(node): text.strip() for node, text in zip(shown, texts, strict=True)}


def _whole(template: str, parsed: nodes.Template) -> nodes.Expr | None:
    match parsed.body:
        case [nodes.Output(nodes=[only])] if not isinstance(only, nodes.TemplateData):
            return only
        # A block of YAML ends with a line's end.
        case [nodes.Output(nodes=[only, nodes.TemplateData(data="\n")])]:
            return None if isinstance(only, nodes.TemplateData) else only
    return None


Scope = ChainMap[str, object]
Show = Callable[[Callable[[], object], nodes.Node], str]
"""Makes text of a value that stands in a template."""

MOST_COMPARED_NAMES = 1_000
"""Names among which the nearest one is looked for."""
MOST_LISTED = 12
"""Names that a sentence lists."""
LONGEST_NAME = 60


class Evaluation:
    """One evaluation of a template or expression, with its own limits."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self.bounds = Bounds()
        # The chain writes into its first map only, and only names are looked up in the last one.
        self._scope: Scope = ChainMap({}, names)  # type: ignore[arg-type]

    def render(self, body: list[nodes.Node], show: Show) -> Iterator[str]:
        """Yield the pieces of text that statements make."""
        return self._render(body, self._scope, show)

    def value(self, node: nodes.Expr) -> object:
        return self._value(node, self._scope)

    def known(self, value: object) -> object:
        if isinstance(value, Unknown):
            raise MissingNameError(value.message)
        return value

    def part(self, item: object, path: str) -> object:
        """Return a part inside of a value by its path, such as `a.b.0`, for filters that take one."""
        for name in path_names(path):
            item = self._look_up(item, int(name) if name.isdecimal() else name, "an item")
        return item

    def filter(self, name: str, value: object, *arguments: object, **named: object) -> object:
        self.bounds.tick(len(value) if isinstance(value, str) else 0)
        if name not in FILTERS:
            raise EvaluationError(f"there is no filter `{name[:LONGEST_NAME]}`")
        return FILTERS[name](self, value, *arguments, **named)

    def test(self, name: str, value: object, *arguments: object) -> bool:
        self.bounds.tick(len(value) if isinstance(value, str) else 0)
        if name not in TESTS:
            raise EvaluationError(f"there is no test `{name[:LONGEST_NAME]}`")
        if name not in ("defined", "undefined"):
            self.known(value)
        return TESTS[name](self.bounds, value, *arguments)

    # Statements

    def _render(self, body: list[nodes.Node], scope: Scope, show: Show) -> Iterator[str]:
        for node in body:
            self.bounds.tick()
            match node:
                case nodes.Output():
                    yield from self._output(node, scope, show)
                case nodes.If():
                    yield from self._render(self._branch(node, scope), scope, show)
                case nodes.For():
                    yield from self._loop(node, scope, show)
                case nodes.Assign():
                    self._assign(node.target, self._value(node.node, scope), scope)
                case nodes.With():
                    yield from self._with(node, scope, show)

    def _output(self, node: nodes.Output, scope: Scope, show: Show) -> Iterator[str]:
        for child in node.nodes:
            if isinstance(child, nodes.TemplateData):
                yield child.data
            else:
                yield show(partial(self._value, child, scope), child)

    def _branch(self, node: nodes.If, scope: Scope) -> list[nodes.Node]:
        for choice in (node, *node.elif_):
            if self._value(choice.test, scope):
                return choice.body
        return node.else_

    def _loop(self, node: nodes.For, scope: Scope, show: Show) -> Iterator[str]:
        items = self.bounds.items(self._chosen(node, scope))
        for index, item in enumerate(items):
            self.bounds.tick()
            inner = scope.new_child({"loop": _loop_names(items, index)})
            self._assign(node.target, item, inner)
            yield from self._render(node.body, inner, show)
        if not items:
            yield from self._render(node.else_, scope, show)

    def _chosen(self, node: nodes.For, scope: Scope) -> Iterator[object]:
        for item in iterable(self._value(node.iter, scope)):
            self.bounds.tick()
            if node.test is not None:
                inner = scope.new_child()
                self._assign(node.target, item, inner)
                if not self._value(node.test, inner):
                    continue
            yield item

    def _with(self, node: nodes.With, scope: Scope, show: Show) -> Iterator[str]:
        inner = scope.new_child()
        for target, value in zip(node.targets, node.values, strict=True):
            self._assign(target, self._value(value, scope), inner)
        yield from self._render(node.body, inner, show)

    def _assign(self, target: nodes.Node, value: object, scope: Scope) -> None:
        if isinstance(target, nodes.Name):
            scope[target.name] = value
            return
        assert isinstance(target, nodes.Tuple)
        if not isinstance(value, list | tuple) or len(value) != len(target.items):
            raise EvaluationError(f"{len(target.items)} names stand for one item, which is {kind_of(value)}")
        for name, part in zip(target.items, value, strict=True):
            self._assign(name, part, scope)

    # Expressions

    def _value(self, node: nodes.Node, scope: Scope) -> Any:
        """Return the value of an expression; raises MissingNameError for a name that is not there."""
        return self.known(self._maybe(node, scope))

    def _maybe(self, node: nodes.Node, scope: Scope) -> object:
        self.bounds.tick()
        if isinstance(node, nodes.BinExpr) and node.operator not in ("and", "or"):
            left, right = self._value(node.left, scope), self._value(node.right, scope)
            return operate(self.bounds, node.operator, left, right)
        return _EVALUATE[type(node)](self, node, scope)

    def _const(self, node: nodes.Const, scope: Scope) -> object:
        return node.value

    def _list(self, node: nodes.List | nodes.Tuple, scope: Scope) -> object:
        return self.bounds.items(self._value(item, scope) for item in node.items)

    def _dict(self, node: nodes.Dict, scope: Scope) -> object:
        pairs = ((self._value(pair.key, scope), self._value(pair.value, scope)) for pair in node.items)
        return dict(pairs)

    def _name(self, node: nodes.Name, scope: Scope) -> object:
        try:
            return scope[node.name]
        except KeyError:
            if node.name == "range":
                return Method("range", lambda *ends: number_range(self.bounds, *ends))
            return Unknown(lambda: _no_such(_shown(node.name), list(scope), ""))

    def _attribute(self, node: nodes.Getattr, scope: Scope) -> object:
        value = self._maybe(node.node, scope)
        return self._look_up(value, node.attr, _path(node.node), methods=True)

    def _item(self, node: nodes.Getitem, scope: Scope) -> object:
        value = self._maybe(node.node, scope)
        if isinstance(value, Unknown):
            return value
        if isinstance(node.arg, nodes.Slice):
            return self._slice(value, node.arg, scope)
        return self._look_up(value, self._value(node.arg, scope), _path(node.node))

    def _slice(self, value: object, part: nodes.Slice, scope: Scope) -> object:
        if not isinstance(value, str | list | tuple | range):
            raise EvaluationError(f"it is {kind_of(value)}: only texts and lists can be cut")
        ends = (part.start, part.stop, part.step)
        cut = value[slice(*(None if end is None else self._value(end, scope) for end in ends))]
        return self.bounds.text(cut) if isinstance(cut, str) else self.bounds.items(cut)

    def _look_up(self, value: object, key: Any, path: str, methods: bool = False) -> object:
        """A key of a mapping, an item of a list, or a method; keys win over methods."""
        self.bounds.tick()
        match value:
            case Unknown():
                return value
            case Mapping():
                try:
                    return value[key]
                except KeyError:
                    table = MAPPING_METHODS
                except TypeError:
                    raise EvaluationError(f"{kind_of(key)} is no key of `{path}`") from None
            case str():
                self.bounds.tick(len(value))
                table = TEXT_METHODS
            case list() | tuple() | range():
                if isinstance(value, Group) and key in Group._fields:
                    return getattr(value, key)
                table = LIST_METHODS
            case None:
                return Unknown(lambda: f"`{path}` is null: it has no `{_shown(key)}`")
            case _:
                table = {}
        if methods and key in table:
            method = table[key]
            return Method(key, lambda *given, **named: method(self.bounds, value, *given, **named))
        return _element(value, key, path)

    def _call(self, node: nodes.Call, scope: Scope) -> object:
        called = self._value(node.node, scope)
        if not isinstance(called, Method):
            raise EvaluationError(f"`{_path(node.node)}` is {kind_of(called)}, which cannot be called")
        arguments = [self._value(argument, scope) for argument in node.args]
        named = {str(keyword.key): self._value(keyword.value, scope) for keyword in node.kwargs}
        return called.function(*arguments, **named)

    def _filter(self, node: nodes.Filter, scope: Scope) -> object:
        assert node.node is not None
        value = (
            self._maybe(node.node, scope) if node.name in ("default", "d") else self._value(node.node, scope)
        )
        arguments = [self._value(argument, scope) for argument in node.args]
        named = {str(keyword.key): self._value(keyword.value, scope) for keyword in node.kwargs}
        return self.filter(node.name, value, *arguments, **named)

    def _test(self, node: nodes.Test, scope: Scope) -> object:
        value = self._maybe(node.node, scope)
        return self.test(node.name, value, *(self._value(argument, scope) for argument in node.args))

    def _condition(self, node: nodes.CondExpr, scope: Scope) -> object:
        if self._value(node.test, scope):
            return self._maybe(node.expr1, scope)
        if node.expr2 is None:
            return Unknown(lambda: "the `if` has no `else`, and its test is false: add one")
        return self._maybe(node.expr2, scope)

    def _compare(self, node: nodes.Compare, scope: Scope) -> object:
        left = self._value(node.expr, scope)
        for operand in node.ops:
            right = self._value(operand.expr, scope)
            if not compare(self.bounds, operand.op, left, right):
                return False
            left = right
        return True

    def _concat(self, node: nodes.Concat, scope: Scope) -> object:
        return join_texts(self.bounds, (self._value(part, scope) for part in node.nodes))

    def _and(self, node: nodes.And, scope: Scope) -> object:
        return self._value(node.left, scope) and self._value(node.right, scope)

    def _or(self, node: nodes.Or, scope: Scope) -> object:
        return self._value(node.left, scope) or self._value(node.right, scope)

    def _not(self, node: nodes.Not, scope: Scope) -> object:
        return not self._value(node.node, scope)

    def _negative(self, node: nodes.Neg, scope: Scope) -> object:
        return negate(self._value(node.node, scope))

    def _positive(self, node: nodes.Pos, scope: Scope) -> object:
        return self._value(node.node, scope)


_EVALUATE: dict[type[nodes.Node], Callable[[Evaluation, Any, Scope], object]] = {
    nodes.Const: Evaluation._const,
    nodes.List: Evaluation._list,
    nodes.Tuple: Evaluation._list,
    nodes.Dict: Evaluation._dict,
    nodes.Name: Evaluation._name,
    nodes.Getattr: Evaluation._attribute,
    nodes.Getitem: Evaluation._item,
    nodes.Call: Evaluation._call,
    nodes.Filter: Evaluation._filter,
    nodes.Test: Evaluation._test,
    nodes.CondExpr: Evaluation._condition,
    nodes.Compare: Evaluation._compare,
    nodes.Concat: Evaluation._concat,
    nodes.And: Evaluation._and,
    nodes.Or: Evaluation._or,
    nodes.Not: Evaluation._not,
    nodes.Neg: Evaluation._negative,
    nodes.Pos: Evaluation._positive,
}


def _loop_names(items: list[object], index: int) -> Mapping[str, object]:
    """Return the fields of `loop` inside of a `for`."""
    length = len(items)
    names: dict[str, object] = {
        "index": index + 1,
        "index0": index,
        "revindex": length - index,
        "revindex0": length - index - 1,
        "first": index == 0,
        "last": index == length - 1,
        "length": length,
        "cycle": Method("cycle", lambda *choices: choices[index % len(choices)]),
    }
    if index:
        names["previtem"] = items[index - 1]
    if index < length - 1:
        names["nextitem"] = items[index + 1]
    return names


def _element(value: object, key: object, path: str) -> object:
    """An item of a list or a text by its number, or why there is none."""
    if isinstance(value, Mapping):
        return Unknown(
            lambda: _no_such(
                _shown(key), [str(name) for name in islice(value, MOST_COMPARED_NAMES)], f"{path}."
            )
        )
    if isinstance(value, str | list | tuple | range) and isinstance(key, int):
        if -len(value) <= key < len(value):
            return value[key]
        return Unknown(lambda: f"there is no `{path}[{key}]`: `{path}` has {len(value):,} items")
    return Unknown(lambda: f"`{path}` is {kind_of(value)}: it has no `{_shown(key)}`")


def _no_such(name: str, known: list[str], before: str) -> str:
    """A sentence about a name that is not there, with the nearest one that is, or with all."""
    near = get_close_matches(name, known[:MOST_COMPARED_NAMES], n=1)
    if near:
        return f"there is no `{before}{name}`: did you mean `{before}{near[0]}`?"
    if not known:
        return f"there is no `{before}{name}`: there is nothing in `{before.rstrip('.')}` yet"
    listed = ", ".join(f"`{_shown(each)}`" for each in known[:MOST_LISTED])
    return f"there is no `{before}{name}`: there is {listed}{' …' if len(known) > MOST_LISTED else ''}"


def _path(node: nodes.Node) -> str:
    """The spelling of an expression, as far as it is made of names."""
    match node:
        case nodes.Name():
            return node.name
        case nodes.Getattr():
            return f"{_path(node.node)}.{node.attr}"
        case nodes.Getitem(arg=nodes.Const(value=key)):
            return f"{_path(node.node)}[{key!r}]"
    return "…"


def _shown(key: object) -> str:
    """Return a short key itself, and of others only the type: a part of one could be part of a secret."""
    is_short = isinstance(key, str | int | float) and len(str(key)) <= LONGEST_NAME
    return str(key) if is_short else kind_of(key)
