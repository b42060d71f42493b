"""What stands behind a slash command: inputs with names, and free text that stays as it was typed.

`name=value`, `-i name=value`, `--input name=value` and `--input=name=value` may stand anywhere. A value, or a
whole word, may be in quotes; a quote inside of a word is an apostrophe. Everything else is free text, for the
input that takes the `rest`, else for the one input that is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from coupler.workflow.errors import InputError
from coupler.workflow.language.definition import Input, Workflow

OPTIONS = ("-i", "--input")

NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
"""What may be the name of an input, as a pattern."""

ARGUMENTS = "arguments"
"""The name of text that may hold a secret of whichever input, in what is kept of a prompt."""

Kind = Literal["input", "option", "free"]
"""What a word is: an input, the option before one, or free text."""

Word = tuple[re.Match[str], Kind]

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'"
_WORD = re.compile(rf"(?P<before>(?:[^\s=\"']*=){{0,2}})(?P<quoted>{_QUOTED})(?=\s|$)|\S+", re.DOTALL)
_NAME = re.compile(rf"({NAME})=")


class Span(NamedTuple):
    """A part of a text, and the name of what it is."""

    name: str
    start: int
    end: int


def words_in(text: str, workflow: Workflow) -> list[str]:
    """The arguments as `pairs_in` takes them: inputs as options, and all free text as one word.

    Raises InputError for quotes that do not go around a value.
    """
    words = [*_words(text, workflow)]
    _check_quotes(words)
    inputs = _as_options(words)
    free: list[str] = []
    end = 0
    for match, kind in words:
        if kind == "free":
            free += [text[end : match.start()], match[0]]
        end = match.end()
    return [*inputs, *_free_words("".join(free).strip(), inputs, workflow)]


def secret_spans(text: str, workflow: Workflow) -> list[Span]:
    """Where secrets stand, or may stand: what has a name that no input has is taken for one, too."""
    if not any(declared.secret for declared in workflow.inputs.values()):
        return []
    words = [*_words(text, workflow)]
    taker = _taker(_as_options(words), workflow)
    spans: list[Span] = []
    for match, kind in words:
        if kind == "input":
            name, start = _named(match)
            if name not in workflow.inputs or workflow.inputs[name].secret:
                spans.append(Span(_span_name(name, workflow), start, match.end()))
        elif kind == "free" and (taker is None or workflow.inputs[taker].secret):
            spans.append(Span(_span_name(taker, workflow), match.start(), match.end()))
    return spans


def hint_of(workflow: Workflow) -> str:
    """The inputs in a line; those that may be left out are in brackets."""
    return " ".join(_hints(workflow))


def _hints(workflow: Workflow) -> Iterator[str]:
    # What takes the free text is mostly typed last.
    for declared in sorted(workflow.inputs.values(), key=lambda each: each.rest):
        spelled = declared.name if declared.rest else f"{declared.name}={_example(declared)}"
        yield spelled if is_needed(declared) else f"[{spelled}]"


def is_needed(declared: Input) -> bool:
    """Whether there is no run without it."""
    return declared.required and declared.default is msgspec.UNSET


def _example(declared: Input) -> str:
    if declared.enum:
        return "|".join(str(choice) for choice in declared.enum[:6])
    return {"string": "TEXT", "list": "ITEMS", "object": "JSON", "file": "PATH"}.get(
        declared.type, declared.type.upper()
    )


def _words(text: str, workflow: Workflow) -> Iterator[Word]:
    is_awaited = False
    for match in _WORD.finditer(text):
        kind: Kind = "free"
        if is_awaited or _is_input(_unquoted(match), workflow):
            kind = "input"
        elif match[0] in OPTIONS:
            kind = "option"
        is_awaited = kind == "option"
        yield match, kind


def _check_quotes(words: list[Word]) -> None:
    names = [_named(match)[0] for match, kind in words if kind == "input" and _is_half_quoted(match)]
    if names:
        # What is in them may be a secret, and is not repeated.
        raise InputError(
            "\n".join(f"the quotes behind `{name}=` have to go around its value" for name in names)
        )


def _is_half_quoted(match: re.Match[str]) -> bool:
    name, start = _named(match)
    value = match[0][start - match.start() :]
    return bool(name) and match["quoted"] is None and value.startswith(('"', "'"))


def _as_options(words: list[Word]) -> list[str]:
    """The inputs, each behind its option; an option that nothing follows stays alone, to be complained of."""
    inputs = [_unquoted(match) for match, kind in words if kind == "input"]
    alone = [match[0] for match, kind in words[-1:] if kind == "option"]
    return [*(word if word.startswith("--input=") else f"--input={word}" for word in inputs), *alone]


def _named(match: re.Match[str]) -> tuple[str, int]:
    """The name in an input, and where its value begins in the text; without a name all of it is value."""
    found = _NAME.match(_unquoted(match).removeprefix("--input="))
    if found is None:
        return "", match.start()
    return found[1], match.start() + match[0].index(found[0]) + len(found[0])


def _span_name(name: str | None, workflow: Workflow) -> str:
    return f"inputs.{name}" if name in workflow.inputs else ARGUMENTS


def _unquoted(match: re.Match[str]) -> str:
    quoted = match["quoted"]
    if quoted is None:
        return match[0]
    inside = quoted[1:-1]
    if quoted[0] == '"':
        inside = re.sub(r"\\([\"\\])", r"\1", inside)
    return f"{match['before']}{inside}"


def _is_input(word: str, workflow: Workflow) -> bool:
    if word.startswith("--input="):
        return True
    named = _NAME.match(word)
    return named is not None and (named[1] in workflow.inputs or not _takes_free_text(workflow))


def _takes_free_text(workflow: Workflow) -> bool:
    return any(declared.rest for declared in workflow.inputs.values()) or len(workflow.inputs) == 1


def _free_words(free: str, inputs: list[str], workflow: Workflow) -> list[str]:
    if not free:
        return []
    whole = _WORD.fullmatch(free)
    text = free if whole is None else _unquoted(whole)
    taker = _taker(inputs, workflow)
    return ["--", text] if taker is None or workflow.inputs[taker].rest else [f"--input={taker}={text}"]


def _taker(inputs: list[str], workflow: Workflow) -> str | None:
    """The input that the free text is for: the one for the rest, or the one left; none if several are."""
    for declared in workflow.inputs.values():
        if declared.rest:
            return declared.name
    named = {found[1] for each in inputs if (found := _NAME.match(each.removeprefix("--input=")))}
    left = [declared for name, declared in workflow.inputs.items() if name not in named]
    needed = [declared for declared in left if is_needed(declared)]
    meant = needed if len(needed) == 1 else left
    return meant[0].name if len(meant) == 1 else None
