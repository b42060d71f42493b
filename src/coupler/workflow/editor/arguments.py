"""Parses what the user types behind a slash command into the inputs of a workflow.

`name=value`, `-i name=value`, `--input name=value` and `--input=name=value` may stand anywhere. A value, or a
whole word, may be in quotes; a quote inside of a word is an apostrophe. Everything else is free text, for the
input that takes the `rest`, else for the one input that is left. Inputs that are missing are asked for by a
form, in editors that show forms.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from coupler.agent.content import file_path, prompt_text
from coupler.schema.v1 import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import parse_input
from coupler.workflow.language.model import Input, Json, Workflow

if TYPE_CHECKING:
    from coupler.agent.turn import Turn


OPTIONS = ("-i", "--input")
"""The options that may stand before an input."""

NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
"""A regular expression for the name of an input."""

ARGUMENTS = "arguments"
"""Name, in what is stored of a prompt, of text that may hold the secret of any input."""

FORM_CAPABILITY = "elicitation.form"
"""The client capability of editors that show forms."""

WordKind = Literal["input", "option", "free"]
"""A word is an input, the option before one, or free text."""

ArgumentWord = tuple[re.Match[str], WordKind]

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'"
_WORD = re.compile(rf"(?P<before>(?:[^\s=\"']*=){{0,2}})(?P<quoted>{_QUOTED})(?=\s|$)|\S+", re.DOTALL)
_NAME = re.compile(rf"({NAME})=")

_FIRST_PLACEHOLDER = 0xF0000
_PLACEHOLDER = re.compile("[\U000f0000-\U000ffffd]")
_ONLY_PLACEHOLDERS = re.compile(r"[\s\U000f0000-\U000ffffd]+")
_NAME_AT_END = re.compile(rf"(?:^|\s)(?:-i\s+|--input[=\s]\s*)?{NAME}=$")

_TYPES = {"integer": "integer", "number": "number", "boolean": "boolean"}


class SlashCommand(NamedTuple):
    """A prompt that has the form of a slash command, whether there is such a workflow or not."""

    name: str
    arguments: PromptText


def slash_command_in(blocks: Sequence[ContentBlock]) -> SlashCommand | None:
    """Return the slash command that a prompt begins with. Editors put links to files before the text."""
    following = iter(blocks)
    texts = (block.text.lstrip() for block in following if isinstance(block, TextContent))
    first = next((text for text in texts if text), "")
    name = first.split(maxsplit=1)[0][1:] if first.startswith("/") else ""
    if not name or name.startswith("/"):
        return None
    rest = first[len(name) + 1 :].removeprefix("\r")[1:]
    own = (TextContent(rest),) if rest else ()
    return SlashCommand(name, PromptText.of((*own, *following)))


class PromptText(NamedTuple):
    """The text of a prompt, with one placeholder character for each block that is no text.

    Links and embedded files are placeholders so that nothing inside of a file is taken for an input. A
    mentioned file that is all there is for an input becomes its path there; within other text it becomes what
    prompts have in its place: a link, or the file's own text.
    """

    text: str
    blocks: tuple[ContentBlock, ...] = ()
    starts: tuple[int, ...] = ()
    """The position of each block in the text."""

    @classmethod
    def of(cls, blocks: Iterable[ContentBlock]) -> PromptText:
        """Join all blocks with blank lines; a file that is mentioned right behind `name=` belongs to that.

        Images are left out: they go to agents, and no input holds them.
        """
        text, starts = "", []
        for number, block in enumerate(blocks := tuple(each for each in blocks if not is_image(each))):
            piece = (
                _PLACEHOLDER.sub("\ufffd", block.text)
                if isinstance(block, TextContent)
                else _placeholder(number)
            )
            if text and not (_NAME_AT_END.search(text) and _PLACEHOLDER.match(piece)):
                text += "\n\n"
            starts.append(len(text))
            text += piece
        return cls(text, blocks, (*starts,))

    def expanded(self, text: str) -> str:
        """Return a text with what its placeholders stand for."""
        return _PLACEHOLDER.sub(lambda found: _in_text(self._block(found[0])), text)

    def meant(self, pairs: Mapping[str, str], workflow: Workflow, cwd: str) -> dict[str, str]:
        """Return the texts of inputs with paths or texts for their placeholders."""
        return {name: self._meant(text, workflow.inputs[name], cwd) for name, text in pairs.items()}

    def as_answer(self, declared: Input, cwd: str) -> str | None:
        """Return the paths of mentioned files if files or a list are asked for; None if none is mentioned."""
        is_mentioned = _PLACEHOLDER.search(self.text) is not None
        is_wanted = declared.type in ("file", "list")
        return self._meant(self.text, declared, cwd) if is_mentioned and is_wanted else None

    def hidden(self, workflow: Workflow | None) -> dict[str, str]:
        """Return the texts that must not be stored, by name; all of them if the workflow is not known."""
        spans = [(ARGUMENTS, 0, len(self.text))] if workflow is None else secret_spans(self.text, workflow)
        found = [each for name, start, end in spans for each in self._texts(name, start, end)]
        return {f"{name}.{number}" if number else name: text for number, (name, text) in enumerate(found)}

    def _meant(self, text: str, declared: Input, cwd: str) -> str:
        if declared.type == "list" and self.blocks and (items := self._items(text)):
            return json.dumps([self._item(item, cwd) for item in items])
        if _PLACEHOLDER.fullmatch(text.strip()) and (declared.type == "file" or not declared.rest):
            return self._item(text.strip(), cwd)
        return self.expanded(text)

    def _items(self, text: str) -> list[str]:
        """The items of a list in which a file is mentioned."""
        if _ONLY_PLACEHOLDERS.fullmatch(text):
            return text.split()
        items = _read_list(text)
        return items if any(_PLACEHOLDER.search(item) for item in items) else []

    def _item(self, text: str, cwd: str) -> str:
        if not _PLACEHOLDER.fullmatch(text):
            return self.expanded(text)
        path = _path_of(self._block(text))
        if path is None:
            return self.expanded(text)
        inside = os.path.relpath(path, cwd)
        return path if inside.startswith(os.pardir) else inside

    def _block(self, sign: str) -> ContentBlock:
        number = ord(sign) - _FIRST_PLACEHOLDER
        return self.blocks[number] if number < len(self.blocks) else TextContent("\ufffd")

    def _texts(self, name: str, start: int, end: int) -> Iterator[tuple[str, str]]:
        """Yield a part of the text as the texts of its blocks, each with this name."""
        for block, begins in zip(self.blocks, self.starts, strict=True):
            if isinstance(block, TextContent):
                yield name, block.text[max(start - begins, 0) : max(end - begins, 0)]
            elif start <= begins < end:
                yield from ((name, text) for text in _texts_in(block))


def is_image(block: ContentBlock) -> bool:
    """Tell whether a block is an image, which only agents can take."""
    return isinstance(block, ImageContent)


def unusable_blocks(blocks: Iterable[ContentBlock], *, takes_images: bool) -> list[str]:
    """Name what a prompt has that cannot be taken, a sentence each: no input and no answer can hold it."""
    names: dict[str, None] = {}
    for block in blocks:
        match block:
            case ImageContent() if not takes_images:
                names["an image"] = None
            case AudioContent():
                names["a recording"] = None
            case EmbeddedResource() if not _in_text(block):
                names["a file without a path"] = None
    return [f"the prompt has {name}, which a workflow cannot take" for name in names]


def _placeholder(number: int) -> str:
    return chr(min(_FIRST_PLACEHOLDER + number, 0xFFFFD))


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
    return file_path(uri)


def _in_text(block: ContentBlock) -> str:
    """What stands for a block within text: its own text, or the path of a file that is no text."""
    return prompt_text((block,)) or _path_of(block) or ""


def _texts_in(block: ContentBlock) -> Iterator[str]:
    match block:
        case ResourceLink(uri=uri, name=name):
            yield from (uri, name)
        case EmbeddedResource(resource=TextResourceContents(uri=uri, text=text)):
            yield from (uri, text)
        case EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=blob)):
            yield from (uri, blob)


class SecretSpan(NamedTuple):
    """A part of a text that may be a secret, and the name of its input."""

    name: str
    start: int
    end: int


def words_in(text: str, workflow: Workflow, *, is_message: bool = False) -> list[str]:
    """Return the arguments as `inputs_in_words` takes them: inputs as options, all free text as one word.

    What stands behind no command `is_message`: its free text is for the input that takes the rest or is
    missing, and starts a workflow that has no such input, too. Raises InputError for quotes that do not go
    around a value.
    """
    if is_message and not workflow.inputs:
        return []
    words = [*_words(text, workflow)]
    _check_quotes(words)
    inputs = _as_options(words)
    free: list[str] = []
    end = 0
    for match, kind in words:
        if kind == "free":
            free += [text[end : match.start()], match[0]]
        end = match.end()
    typed = "".join(free).strip()
    if is_message and not _is_free_text_wanted(inputs, workflow):
        return inputs
    return [*inputs, *_free_words(typed, inputs, workflow)]


def secret_spans(text: str, workflow: Workflow) -> list[SecretSpan]:
    """Find where secrets may stand; a value whose name is no input's is taken for one, too."""
    if not any(declared.secret for declared in workflow.inputs.values()):
        return []
    words = [*_words(text, workflow)]
    taker = _free_text_input(_as_options(words), workflow)
    spans: list[SecretSpan] = []
    for match, kind in words:
        if kind == "input":
            name, start = _named(match)
            if name not in workflow.inputs or workflow.inputs[name].secret:
                spans.append(SecretSpan(_span_name(name, workflow), start, match.end()))
        elif kind == "free" and (taker is None or workflow.inputs[taker].secret):
            spans.append(SecretSpan(_span_name(taker, workflow), match.start(), match.end()))
    return spans


def _words(text: str, workflow: Workflow) -> Iterator[ArgumentWord]:
    is_awaited = False
    for match in _WORD.finditer(text):
        kind: WordKind = "free"
        if is_awaited or _is_input(_unquoted(match), workflow):
            kind = "input"
        elif match[0] in OPTIONS:
            kind = "option"
        is_awaited = kind == "option"
        yield match, kind


def _check_quotes(words: list[ArgumentWord]) -> None:
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


def _as_options(words: list[ArgumentWord]) -> list[str]:
    """Return the inputs as `--input=` options; an option that nothing follows stays, to be reported."""
    inputs = [_unquoted(match) for match, kind in words if kind == "input"]
    alone = [match[0] for match, kind in words[-1:] if kind == "option"]
    return [*(word if word.startswith("--input=") else f"--input={word}" for word in inputs), *alone]


def _named(match: re.Match[str]) -> tuple[str, int]:
    """Return the name in an input and where its value begins; without a name all of it is the value."""
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
    taker = _free_text_input(inputs, workflow)
    return ["--", text] if taker is None or workflow.inputs[taker].rest else [f"--input={taker}={text}"]


def _free_text_input(inputs: list[str], workflow: Workflow) -> str | None:
    """The input that the free text is for: the one for the rest, or the one left; none if several are."""
    for declared in workflow.inputs.values():
        if declared.rest:
            return declared.name
    named = {found[1] for each in inputs if (found := _NAME.match(each.removeprefix("--input=")))}
    left = [declared for name, declared in workflow.inputs.items() if name not in named]
    needed = [declared for declared in left if is_needed(declared)]
    meant = needed if len(needed) == 1 else left
    return meant[0].name if len(meant) == 1 else None


def _is_free_text_wanted(inputs: list[str], workflow: Workflow) -> bool:
    """Tell whether an input takes the rest, or has to be given and is left."""
    taker = _free_text_input(inputs, workflow)
    return taker is not None and (workflow.inputs[taker].rest or is_needed(workflow.inputs[taker]))


def input_hint(workflow: Workflow) -> str:
    """Return the inputs in one line, the optional ones in brackets."""
    return " ".join(_hints(workflow))


def _hints(workflow: Workflow) -> Iterator[str]:
    # What takes the free text is mostly typed last.
    for declared in sorted(workflow.inputs.values(), key=lambda each: each.rest):
        spelled = declared.name if declared.rest else f"{declared.name}={_example(declared)}"
        yield spelled if is_needed(declared) else f"[{spelled}]"


def is_needed(declared: Input) -> bool:
    """Tell whether a run cannot start without this input."""
    return declared.required and declared.default is msgspec.UNSET


def _example(declared: Input) -> str:
    if declared.enum:
        return "|".join(str(choice) for choice in declared.enum[:6])
    return {"string": "TEXT", "list": "ITEMS", "object": "JSON", "file": "PATH"}.get(
        declared.type, declared.type.upper()
    )


def inputs_to_ask(workflow: Workflow, given: Mapping[str, str], cwd: str) -> list[Input]:
    """Return the inputs that have to be asked for: those that are missing, and those that do not fit."""
    return [
        declared
        for name, declared in workflow.inputs.items()
        if (name in given and not _fits(declared, given[name], cwd))
        or (name not in given and is_needed(declared))
    ]


async def ask_for_inputs(turn: Turn, message: str, inputs: Iterable[Input]) -> dict[str, Json] | None:
    """Ask for inputs by a form; None if the editor shows no forms, or the user wants none.

    Secrets are not asked for: forms are no place for them.
    """
    inputs = list(inputs)
    is_secret = any(declared.secret for declared in inputs)
    if not inputs or is_secret or not turn.editor.offers(FORM_CAPABILITY):
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
        parse_input(declared, text, cwd)
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
    """A field like its input; what is too much for a form is text, which is parsed as everywhere."""
    field: dict[str, Any] = {"type": _TYPES.get(declared.type, "string"), "title": declared.name}
    if declared.description:
        field["description"] = declared.description
    field |= _bounds(declared)
    if declared.enum:
        field |= {"type": "string", "enum": [value_as_text(choice) for choice in declared.enum]}
    default = declared.default
    if default not in (msgspec.UNSET, None):
        field["default"] = default if field["type"] != "string" else value_as_text(default)
    return field


def _bounds(declared: Input) -> dict[str, Any]:
    """The bounds of a number, or of the length of a text, as a form has them."""
    if declared.type in ("integer", "number"):
        names, bounds = ("minimum", "maximum"), (declared.min, declared.max)
    elif declared.type == "string" and not declared.enum:
        names, bounds = ("minLength", "maxLength"), (declared.min, declared.max)
    else:
        return {}
    is_whole = declared.type != "number"
    told = {name: bound for name, bound in zip(names, bounds, strict=True) if bound is not None}
    return {name: int(bound) if is_whole and bound == int(bound) else bound for name, bound in told.items()}


def value_as_text(value: Json) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
