"""Converts content blocks: a prompt's for LangChain, and LangChain's for the client.

What neither side knows breaks nothing. Text and reasoning do not pass here on their way out, because they are
streamed; neither do tool calls.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from langchain_core.messages import BaseMessage, HumanMessage
from msgspec import UNSET, to_builtins

from coupler.agent.content import prompt_text
from coupler.schema.base import Unknown
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

REASONING = "reasoning_content"
"""LangChain's key in `additional_kwargs` for what a model has thought."""

ANY_BYTES = "application/octet-stream"
HANDLED_ELSEWHERE = frozenset(
    {
        "text",
        "reasoning",
        "tool_call",
        "tool_call_chunk",
        "invalid_tool_call",
        "server_tool_call",
        "server_tool_call_chunk",
        "server_tool_result",
    }
)
"""Blocks that are shown in other ways than as content."""

MEDIA_BLOCKS = frozenset(
    {"image", "image_url", "audio", "input_audio", "video", "file", "document", "media"}
    | {"input_image", "input_file"}
)
"""Types of blocks with images, sounds and files, in LangChain's and in providers' own words."""

LARGEST_IMAGE = 5 * 1024 * 1024
"""Bytes of an image that a model is shown."""

WEB_ADDRESSES = ("https://", "http://")

ENCRYPTED = "encrypted_content"
"""Anthropic's key for the text of a page, which only its server can read and wants back."""

IMAGE_HEAD = 16
"""Bytes that tell the format of an image."""

_BEGINNINGS = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("UklGR", "audio/wav"),
    ("SUQz", "audio/mpeg"),
    ("T2dnUw", "audio/ogg"),
    ("ZkxhQw", "audio/flac"),
    ("JVBERi0", "application/pdf"),
)
"""Beginnings of files as base64, with their MIME types."""


def human_message(blocks: Iterable[ContentBlock]) -> HumanMessage:
    """Return the prompt as a message: plain text if it is nothing else."""
    said = [part for block in blocks if (part := _for_model(block)) is not None]
    if all(part["type"] == "text" for part in said):
        return HumanMessage("\n\n".join(part["text"] for part in said))
    return HumanMessage(content=[*said])


def _for_model(block: ContentBlock) -> dict[str, Any] | None:
    match block:
        case ImageContent(data=data, mime_type=mime):
            return {"type": "image", "base64": data, "mime_type": mime}
        case AudioContent(data=data, mime_type=mime):
            return {"type": "audio", "base64": data, "mime_type": mime}
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            return _blob(resource)
        case Unknown():
            return None
    return {"type": "text", "text": prompt_text((block,))}


def _blob(resource: BlobResourceContents) -> dict[str, Any]:
    """Convert a blob to a block of its media type, with the name that models are told."""
    mime = resource.mime_type or _guessed(resource.uri) or ANY_BYTES
    kind = mime.partition("/")[0]
    block = {"type": kind if kind in ("image", "audio", "video") else "file", "base64": resource.blob}
    name = _path_in(resource.uri).rpartition("/")[2] or resource.uri
    return {**block, "mime_type": mime, "extras": {"filename": name}}


def image_type(head: bytes) -> str | None:
    """Return the MIME type of an image that models take, by its first bytes; None for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else None


def checked_image(data: str) -> tuple[str | None, str | None]:
    """Return the MIME type of an image in base64, or in words why a model cannot be shown it."""
    if len(data) * 3 // 4 > LARGEST_IMAGE:
        return None, f"it has more than {LARGEST_IMAGE // 2**20} MiB"
    try:
        kind = image_type(base64.b64decode(data, validate=True)[:IMAGE_HEAD])
    except ValueError:
        return None, "its data is not base64"
    return (kind, None) if kind is not None else (None, "it is no PNG, JPEG, GIF or WebP")


def message_blocks(message: BaseMessage) -> list[dict[str, Any]]:
    """Return the content blocks of a message, reasoning first.

    LangChain leaves reasoning in `additional_kwargs` out of answers of OpenAI's client.
    """
    blocks = [dict(block) for block in message.content_blocks]
    thought = message.additional_kwargs.get(REASONING)
    if not isinstance(thought, str) or any(block.get("type") == "reasoning" for block in blocks):
        return blocks
    return [{"type": "reasoning", "reasoning": thought}, *blocks]


def client_block(block: Mapping[str, Any]) -> ContentBlock | None:
    """Return one of LangChain's content blocks for the client; None for what it cannot show."""
    kind = block.get("type")
    if kind in ("image", "audio", "video", "file"):
        return _media(str(kind), block)
    if kind == "text-plain":
        return _plain_text(block)
    if kind == "image_url":
        url = block.get("image_url")
        return _linked("image", url.get("url") if isinstance(url, Mapping) else url, block)
    return None


def _media(kind: str, block: Mapping[str, Any]) -> ContentBlock | None:
    data, url = block.get("base64") or block.get("data"), block.get("url")
    mime = block.get("mime_type") or (_guessed(url) if isinstance(url, str) else None)
    if not isinstance(data, str):
        return _linked(kind, url, block)
    mime = mime or _by_beginning(kind, data)
    if kind == "image":
        return ImageContent(data, str(mime or "image/png"))
    if kind == "audio":
        return AudioContent(data, str(mime or "audio/wav"))
    uri = url or f"attachment:{_name_of(block, kind)}"
    return EmbeddedResource(BlobResourceContents(data, str(uri), str(mime or ANY_BYTES)))


def _linked(kind: str, url: object, block: Mapping[str, Any]) -> ContentBlock | None:
    """Return a link to something that is elsewhere; a `data:` URL becomes inline content."""
    if not isinstance(url, str) or not url:
        return None
    if url.startswith("data:"):
        return _inline(kind, url)
    mime = block.get("mime_type") or _guessed(url)
    name = _path_in(url).rpartition("/")[2] or _name_of(block, kind)
    return ResourceLink(name, url, mime_type=str(mime) if mime else UNSET)


def _inline(kind: str, url: str) -> ContentBlock | None:
    head, comma, data = url.removeprefix("data:").partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return _media(kind, {"base64": data, "mime_type": head.removesuffix(";base64") or None})


def _plain_text(block: Mapping[str, Any]) -> ContentBlock | None:
    text, url = block.get("text"), block.get("url")
    if isinstance(text, str):
        uri = str(url or f"attachment:{_name_of(block, 'text')}")
        return EmbeddedResource(TextResourceContents(text, uri, str(block.get("mime_type") or "text/plain")))
    return _linked("text", url, block)


def citations(block: Mapping[str, Any]) -> list[ResourceLink]:
    """Return the sources that a text names, as links; those without an address are left out."""
    found = []
    for each in block.get("annotations") or ():
        url = each.get("url") if isinstance(each, Mapping) and each.get("type") == "citation" else None
        if isinstance(url, str) and url:
            title, quoted = each.get("title"), each.get("cited_text")
            found.append(
                ResourceLink(
                    str(title or url),
                    url,
                    title=str(title) if title else UNSET,
                    description=str(quoted) if quoted else UNSET,
                )
            )
    return found


def pages_found(output: object) -> list[ResourceLink]:
    """Return the pages in the result of a search that a provider has run, as links."""
    found = output.get("sources") if isinstance(output, Mapping) else output
    links: dict[str, ResourceLink] = {}
    for each in found if isinstance(found, list) else ():
        url = each.get("url") if isinstance(each, Mapping) else None
        if isinstance(url, str) and url.startswith(WEB_ADDRESSES):
            title = each.get("title")
            links.setdefault(url, ResourceLink(str(title or url), url, title=str(title) if title else UNSET))
    return [*links.values()]


def without_encrypted(output: object) -> object:
    """Return the result of a provider's tool without what only the provider can read."""
    if isinstance(output, list):
        return [without_encrypted(each) for each in output]
    if isinstance(output, Mapping):
        return {key: value for key, value in output.items() if key != ENCRYPTED}
    return output


def client_blocks(content: object) -> list[ContentBlock]:
    """Convert the output of a tool to blocks for the client; unknown blocks become their JSON."""
    parts = content if isinstance(content, list) else [content]
    return [block for part in parts if (block := _of_tool(part)) is not None]


def _of_tool(part: object) -> ContentBlock | None:
    if part is None:
        return None
    if isinstance(part, str):
        return TextContent(str.__str__(part)) if part else None
    if not isinstance(part, Mapping):
        return TextContent(str(part))
    if part.get("type") == "text":
        return TextContent(str(part.get("text", "")))
    return client_block(part) or TextContent(_as_json(part))


def _as_json(part: Mapping[str, Any]) -> str:
    # Imported on use: hardly any tool returns what nobody knows.
    import json

    return json.dumps(to_builtins(dict(part), enc_hook=str), ensure_ascii=False)


def _guessed(uri: str) -> str | None:
    return mimetypes.guess_type(_path_in(uri))[0]


def _path_in(uri: str) -> str:
    """Return the path of a URL, which a model may have written; empty if it cannot be parsed."""
    try:
        return urlsplit(uri).path
    except ValueError:
        return ""


def _by_beginning(kind: str, data: str) -> str | None:
    """Return the MIME type that the first bytes tell; `kind` decides between formats that begin alike."""
    found = (mime for start, mime in _BEGINNINGS if data.startswith(start))
    return next((mime for mime in found if kind == "file" or mime.startswith(f"{kind}/")), None)


def _name_of(block: Mapping[str, Any], kind: str) -> str:
    extras = block.get("extras")
    named = extras.get("filename") if isinstance(extras, Mapping) else None
    return str(named or block.get("title") or block.get("id") or kind)
