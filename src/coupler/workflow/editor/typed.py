"""What was typed in a prompt: a command's name, and behind it text in which files are mentioned.

What is no text (links, embedded files) is one sign in the text, so that nothing inside of a file is taken for
an input. A mentioned file that is all there is for an input is its path there; within text it is what prompts
have in its place: a link, or the file's own text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from coupler.agent.content import prompt_text
from coupler.schema.v1 import (
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from coupler.workflow.editor.arguments import ARGUMENTS, NAME, secret_spans
from coupler.workflow.language.definition import Input, Workflow

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
