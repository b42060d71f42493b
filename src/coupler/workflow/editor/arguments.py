"""What stands behind a slash command: inputs with names, and free text that stays as it was typed.

`name=value`, `-i name=value`, `--input name=value` and `--input=name=value` may stand anywhere. A value, or a
whole word, may be in quotes; a quote inside of a word is an apostrophe. Everything else is free text, for the
input that takes the `rest`, else for the one input that is left.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from coupler.agent.content import prompt_text
from coupler.schema.v1 import (
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import as_input
from coupler.workflow.language.model import Input, Json, Workflow

if TYPE_CHECKING:
    from coupler.agent.turn import Turn


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


# What was typed in a prompt: a command's name, and behind it text in which files are mentioned.
#
# What is no text (links, embedded files) is one sign in the text, so that nothing inside of a file is taken
# for an input. A mentioned file that is all there is for an input is its path there; within text it is what
# prompts have in its place: a link, or the file's own text.


_FIRST_SIGN = 0xF0000
_SIGN = re.compile("[\U000f0000-\U000ffffd]")
_ONLY_SIGNS = re.compile(r"[\s\U000f0000-\U000ffffd]+")
_NAME_AT_END = re.compile(rf"(?:^|\s)(?:-i\s+|--input[=\s]\s*)?{NAME}=$")


class Typed(NamedTuple):
    """Text with signs, and what they stand for."""

    text: str
    blocks: tuple[ContentBlock, ...] = ()
    starts: tuple[int, ...] = ()
    """Where each block begins in the text."""

    @classmethod
    def of(cls, blocks: Iterable[ContentBlock]) -> Typed:
        """All blocks, with blank lines between; what is mentioned right behind `name=` belongs to that."""
        text, starts = "", []
        for number, block in enumerate(blocks := (*blocks,)):
            piece = _SIGN.sub("\ufffd", block.text) if isinstance(block, TextContent) else _sign(number)
            if text and not (_NAME_AT_END.search(text) and _SIGN.match(piece)):
                text += "\n\n"
            starts.append(len(text))
            text += piece
        return cls(text, blocks, (*starts,))

    def spelled(self, text: str) -> str:
        """Text with what its signs stand for in their places."""
        return _SIGN.sub(lambda found: prompt_text((self._block(found[0]),)), text)

    def meant(self, pairs: Mapping[str, str], workflow: Workflow, cwd: str) -> dict[str, str]:
        """The texts of inputs, with paths or texts in the places of the signs."""
        return {name: self._meant(text, workflow.inputs[name], cwd) for name, text in pairs.items()}

    def as_answer(self, declared: Input, cwd: str) -> str | None:
        """The paths of what is mentioned, if files or a list are asked for and something is; else None."""
        is_mentioned = _SIGN.search(self.text) is not None
        is_wanted = declared.type in ("file", "list")
        return self._meant(self.text, declared, cwd) if is_mentioned and is_wanted else None

    def hidden(self, workflow: Workflow | None) -> dict[str, str]:
        """What must not be kept of it, by names; all of it, if it is not known which workflow is meant."""
        spans = [(ARGUMENTS, 0, len(self.text))] if workflow is None else secret_spans(self.text, workflow)
        found = [each for name, start, end in spans for each in self._texts(name, start, end)]
        return {f"{name}.{number}" if number else name: text for number, (name, text) in enumerate(found)}

    def _meant(self, text: str, declared: Input, cwd: str) -> str:
        if declared.type == "list" and self.blocks and (items := self._items(text)):
            return json.dumps([self._alone(item, cwd) for item in items])
        if _SIGN.fullmatch(text.strip()) and (declared.type == "file" or not declared.rest):
            return self._alone(text.strip(), cwd)
        return self.spelled(text)

    def _items(self, text: str) -> list[str]:
        """The items of a list in which something is mentioned."""
        if _ONLY_SIGNS.fullmatch(text):
            return text.split()
        items = _read_list(text)
        return items if any(_SIGN.search(item) for item in items) else []

    def _alone(self, text: str, cwd: str) -> str:
        if not _SIGN.fullmatch(text):
            return self.spelled(text)
        path = _path_of(self._block(text))
        if path is None:
            return self.spelled(text)
        inside = os.path.relpath(path, cwd)
        return path if inside.startswith(os.pardir) else inside

    def _block(self, sign: str) -> ContentBlock:
        number = ord(sign) - _FIRST_SIGN
        return self.blocks[number] if number < len(self.blocks) else TextContent("\ufffd")

    def _texts(self, name: str, start: int, end: int) -> Iterator[tuple[str, str]]:
        """A part of the text, as the blocks have it that it is made of."""
        for block, begins in zip(self.blocks, self.starts, strict=True):
            if isinstance(block, TextContent):
                yield name, block.text[max(start - begins, 0) : max(end - begins, 0)]
            elif start <= begins < end:
                yield from ((name, text) for text in _texts_in(block))


class TypedCommand(NamedTuple):
    """A slash command by its form, whether there is such a workflow or not."""

    name: str
    arguments: Typed


def command_in(blocks: Sequence[ContentBlock]) -> TypedCommand | None:
    """The command that a prompt begins with. Editors put links to files before what was typed."""
    following = iter(blocks)
    texts = (block.text.lstrip() for block in following if isinstance(block, TextContent))
    first = next((text for text in texts if text), "")
    name = first.split(maxsplit=1)[0][1:] if first.startswith("/") else ""
    if not name or name.startswith("/"):
        return None
    rest = first[len(name) + 1 :].removeprefix("\r")[1:]
    own = (TextContent(rest),) if rest else ()
    return TypedCommand(name, Typed.of((*own, *following)))


def _sign(number: int) -> str:
    return chr(min(_FIRST_SIGN + number, 0xFFFFD))


def _read_list(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        parts = text.splitlines() if "\n" in text else text.split(",")
        return [part.strip() for part in parts if part.strip()]
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return items if isinstance(items, list) and all(isinstance(item, str) for item in items) else []


def _path_of(block: ContentBlock) -> str | None:
    """The file that is mentioned, without the lines that an editor may name behind it."""
    match block:
        case ResourceLink(uri=uri):
            pass
        case EmbeddedResource(resource=TextResourceContents(uri=uri) | BlobResourceContents(uri=uri)):
            pass
        case _:
            return None
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in path:
        return None
    return path.lstrip("/") if os.name == "nt" else path


def _texts_in(block: ContentBlock) -> Iterator[str]:
    match block:
        case ResourceLink(uri=uri, name=name):
            yield from (uri, name)
        case EmbeddedResource(resource=TextResourceContents(uri=uri, text=text)):
            yield from (uri, text)
        case EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=blob)):
            yield from (uri, blob)


# Inputs of workflows and answers to their questions as forms, for editors that show them.


FORMS = "elicitation.form"
"""What an editor offers that shows forms."""

_TYPES = {"integer": "integer", "number": "number", "boolean": "boolean"}


def wanted(workflow: Workflow, given: Mapping[str, str], cwd: str) -> list[Input]:
    """The inputs that have to be asked for: those that are missing, and those that do not fit."""
    return [
        declared
        for name, declared in workflow.inputs.items()
        if (name in given and not _fits(declared, given[name], cwd))
        or (name not in given and is_needed(declared))
    ]


async def asked_for(turn: Turn, message: str, inputs: Iterable[Input]) -> dict[str, Json] | None:
    """What the user has filled in; None if the editor shows no forms, or the user wants none.

    Secrets are not asked for: forms are no place for them.
    """
    inputs = list(inputs)
    is_secret = any(declared.secret for declared in inputs)
    if not inputs or is_secret or not turn.editor.offers(FORMS):
        return None
    try:
        answer = await turn.ask(message, _schema(inputs))
    except ValueError:
        return None  # it looks like a secret, or like no form at all
    if not answer.accepted or not isinstance(answer.value, dict):
        return None
    return {name: value for name, value in answer.value.items() if value is not None}


def _fits(declared: Input, text: str, cwd: str) -> bool:
    try:
        as_input(declared, text, cwd)
    except InputError:
        return False
    return True


def _schema(inputs: list[Input]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {declared.name: _field(declared) for declared in inputs},
        "required": [declared.name for declared in inputs if declared.default in (msgspec.UNSET, None)],
    }


def _field(declared: Input) -> dict[str, Any]:
    """A field that looks like its input; what is too much for a form is text, which is read as everywhere."""
    field: dict[str, Any] = {"type": _TYPES.get(declared.type, "string"), "title": declared.name}
    if declared.description:
        field["description"] = declared.description
    if declared.enum:
        field |= {"type": "string", "enum": [spoken(choice) for choice in declared.enum]}
    default = declared.default
    if default not in (msgspec.UNSET, None):
        field["default"] = default if field["type"] != "string" else spoken(default)
    return field


def spoken(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
