"""Files that a prompt mentions with an @: attached in the richest form that the agent accepts."""

from __future__ import annotations

import base64
import mimetypes
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET, Struct

from coupler.cli.sessions.wording import size
from coupler.schema.v1 import (
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptCapabilities,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

LARGEST_TEXT = 256 * 1024
"""Bytes of a file that goes along with the prompt; a larger one is linked."""

LARGEST_IMAGE = 5 * 1024 * 1024

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_AFTER_A_NAME = ".,;:!?)]}'\""


class Attachment(Struct, frozen=True):
    """A file, as it goes to the agent, and how that is told."""

    block: ContentBlock
    told: str


def attached(text: str, cwd: str, accepts: PromptCapabilities) -> tuple[list[ContentBlock], list[str]]:
    """The blocks of a prompt, and a sentence for each file that goes along. The text stays as it is."""
    files = [_attachment(path, accepts) for path in dict.fromkeys(mentioned(text, cwd))]
    return [TextContent(text), *(file.block for file in files)], [file.told for file in files]


def mentioned(text: str, cwd: str) -> Iterator[Path]:
    """The files and directories that are mentioned and exist; nothing but those can be read safely."""
    for match in _MENTION.finditer(text):
        spelled = [match[1]] if match[1] else [match[2], match[2].rstrip(_AFTER_A_NAME)]
        for spelling in spelled:
            path = _existing(spelling, cwd)
            if path is not None:
                yield path
                break


def _existing(spelling: str, cwd: str) -> Path | None:
    if not spelling:
        return None
    try:
        path = Path(os.path.normpath(Path(cwd, Path(spelling).expanduser())))
        mode = path.stat().st_mode
    except (OSError, ValueError, RuntimeError):
        return None
    return path if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None


def _attachment(path: Path, accepts: PromptCapabilities) -> Attachment:
    kind = mimetypes.guess_type(path.name)[0]
    try:
        if path.is_dir():
            return _link(path, None)
        if kind in IMAGES and accepts.image and path.stat().st_size <= LARGEST_IMAGE:
            return _image(path, kind)
        if accepts.embedded_context and path.stat().st_size <= LARGEST_TEXT:
            return _embedded(path, kind)
    except (OSError, UnicodeDecodeError):
        pass  # what cannot be read here, or is no text, the agent may still be able to use
    return _link(path, kind)


def _image(path: Path, kind: str | None) -> Attachment:
    content = path.read_bytes()
    block = ImageContent(base64.b64encode(content).decode(), kind or "", uri=path.as_uri())
    return Attachment(block, f"{path.name} goes along as an image ({size(len(content))}).")


def _embedded(path: Path, kind: str | None) -> Attachment:
    text = path.read_bytes().decode()
    block = EmbeddedResource(TextResourceContents(text, path.as_uri(), kind or UNSET))
    return Attachment(block, f"{path.name} goes along ({size(len(text.encode()))}).")


def _link(path: Path, kind: str | None) -> Attachment:
    try:
        length = path.stat().st_size if path.is_file() else UNSET
    except OSError:
        length = UNSET
    block = ResourceLink(path.name or str(path), path.as_uri(), mime_type=kind or UNSET, size=length)
    return Attachment(block, f"{path.name or path} goes along as a link.")
