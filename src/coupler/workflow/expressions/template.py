"""Parses templates and expressions with Jinja2, and refuses what the language leaves out.

There are `{{ }}`, `{% if %}`, `{% for %}`, `{% set %}`, `{% with %}` and `{% raw %}`. Nothing includes other
templates or defines macros, and there are no comments: `${#name}` of a shell is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import pairwise

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.lexer import Lexer, Token, TokenStream
from jinja2.parser import Parser

from coupler.workflow.expressions.filters import FILTERS, TESTS
from coupler.workflow.expressions.values import MOST_BITS

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


def is_plain(text: str) -> bool:
    """Tell whether a text is no template at all."""
    return "{{" not in text and "{%" not in text


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
