"""A prompt as the agent behind can take it."""

from __future__ import annotations

from collections.abc import Sequence

from coupler.schema.v1 import (
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    PromptCapabilities,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


def adapted(blocks: Sequence[ContentBlock], takes: PromptCapabilities) -> tuple[ContentBlock, ...]:
    """The blocks; embedded files are written out for an agent that does not take them."""
    if takes.embedded_context:
        return tuple(blocks)
    return tuple(_written_out(block) if isinstance(block, EmbeddedResource) else block for block in blocks)


def _written_out(block: EmbeddedResource) -> ContentBlock:
    match block.resource:
        case TextResourceContents(text=text, uri=uri):
            return TextContent(f'<file uri="{uri}">\n{text}\n</file>')
        case BlobResourceContents(uri=uri, mime_type=mime_type):
            return ResourceLink(uri.rpartition("/")[2] or uri, uri, mime_type=mime_type)
        case _:
            return TextContent("[a file was attached here in a form that cannot be passed on]")
