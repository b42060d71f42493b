"""Templates and expressions, parsed: Jinja2 reads them, and what the language leaves out is refused here.

There are `{{ }}`, `{% if %}`, `{% for %}`, `{% set %}`, `{% with %}` and `{% raw %}`. Nothing includes other
templates or defines macros, and there are no comments: `${#name}` of a shell is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser

from coupler.workflow.expressions.filters import FILTERS
from coupler.workflow.expressions.predicates import TESTS

MOST_TOKENS = 10_000
"""Words and signs inside of all tags of one template."""
LONGEST_TEMPLATE = 4 * 1024 * 1024
"""Characters."""


class ParseError(Exception):
    """A template that cannot be read."""

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


_ENVIRONMENT = Environment(
    extensions=[_CountTokens],
    # Nobody can write this into a file: comments would take `${#name}` of a shell apart.
    comment_start_string="\0{#",
    comment_end_string="#}\0",
    keep_trailing_newline=True,
    autoescape=False,
    optimized=False,
)

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
    """Whether a text is no template at all."""
    return "{{" not in text and "{%" not in text


@lru_cache(maxsize=1024)
def parse(template: str) -> Template:
    """A text with `{{ }}` and `{% %}`; raises ParseError."""
    with _problems():
        _check_length(template)
        parsed = _ENVIRONMENT.parse(template)
        _check(parsed)
        sources = _sources(template, parsed)
    return Template(parsed.body, sources, _whole(template, parsed))


@lru_cache(maxsize=1024)
def parse_expression(expression: str) -> nodes.Expr:
    """A bare expression; raises ParseError."""
    if expression.lstrip().startswith("{{"):
        raise ParseError("an expression stands here: write it without `{{` and `}}`", 1)
    with _problems():
        _check_length(expression)
        parser = Parser(_ENVIRONMENT, expression, state="variable")
        parsed = parser.parse_expression()
        if not parser.stream.eos:
            token = parser.stream.current
            raise ParseError(f"the expression ends before `{token.value}`", token.lineno)
        _check(parsed)
    return parsed


@contextmanager
def _problems() -> Iterator[None]:
    """Whatever Jinja2 says while it reads is a ParseError."""
    try:
        yield
    except TemplateSyntaxError as error:
        raise ParseError(_sentence(error.message or "it cannot be read"), error.lineno) from None
    except (RecursionError, MemoryError):
        raise ParseError("it is nested too deep: split it into steps", 1) from None


def _sentence(message: str) -> str:
    """Jinja2's words, with what to do about the most common mistake."""
    sentence = message[:300].rstrip(".")
    if sentence.startswith(("Encountered unknown tag", "unexpected")):
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
    """What each `{{ }}` says, by the node that was made of it: both come in the order of the text."""
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
