"""A prompt's blocks as the plain text that most agents want."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from coupler.schema.v1 import (
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


def prompt_text(blocks: Iterable[ContentBlock]) -> str:
    """Text blocks, links and embedded text, joined by blank lines; nothing is fetched.

    Images, audio and binary resources have no text and are left out.
    """
    return "\n\n".join(text for block in blocks if (text := _text_of(block)) is not None)


def _text_of(block: ContentBlock) -> str | None:
    match block:
        case TextContent(text=text):
            return text
        case ResourceLink(uri=uri, name=name, title=title):
            label = title if title is not UNSET and title else name or uri
            return f"[Resource: {label}]({uri})"
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return _embedded(resource)
        case _:
            return None


def _embedded(resource: TextResourceContents) -> str:
    # Imported here: an agent's first answer should not wait for it.
    from html import escape

    attributes = f'uri="{escape(resource.uri)}"'
    if resource.mime_type is not UNSET and resource.mime_type:
        attributes += f' mime-type="{escape(resource.mime_type)}"'
    return f"<resource {attributes}>{escape(resource.text, quote=False)}</resource>"
