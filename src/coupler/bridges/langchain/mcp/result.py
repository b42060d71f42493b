"""What an MCP tool has returned, as models read it.

LangChain's tool messages take text, images and files; anything else would turn the whole result into text. So
sound is a file by its type, and what is only pointed to is named in words.
"""

from __future__ import annotations

from typing import Any

import msgspec

from coupler.mcp.tools import ToolResult
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

LONGEST_TEXT = 400_000
"""Characters of one block of text that a model gets to read."""

NO_TYPE = "application/octet-stream"


def message_content(result: ToolResult) -> str | list[dict[str, Any]]:
    """The content of the tool message: a text if there is nothing else in it."""
    blocks = [block for block in map(_block, result.content) if block is not None]
    if not blocks and result.structured is not None:
        return _cut(msgspec.json.encode(result.structured).decode())
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _block(block: ContentBlock) -> dict[str, Any] | None:
    match block:
        case TextContent(text=text):
            return _text(text)
        case ImageContent(data=data, mime_type=mime_type):
            return {"type": "image", "base64": data, "mime_type": mime_type}
        case AudioContent(data=data, mime_type=mime_type):
            return {"type": "file", "base64": data, "mime_type": mime_type}
        case EmbeddedResource(resource=TextResourceContents(text=text, uri=uri)):
            return _text(f"{uri}:\n{text}")
        case EmbeddedResource(resource=BlobResourceContents(blob=blob, mime_type=mime_type)):
            return {"type": "file", "base64": blob, "mime_type": mime_type or NO_TYPE}
        case ResourceLink(name=name, uri=uri, description=description):
            return _text(f"{name}: {uri}" + (f" ({description})" if description else ""))
    return None


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": _cut(text)}


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n… ({len(text) - LONGEST_TEXT} more characters were left out)"
