"""Content blocks of LangChain as clients are shown them, one by one."""

from coupler.langchain.content import client_block, client_blocks
from coupler.schema.v1 import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from tables import table

PDF = "application/pdf"


@table(
    "block, shown",
    [
        ({"type": "image", "base64": "aa", "mime_type": "image/gif"}, ImageContent("aa", "image/gif")),
        ({"type": "image", "base64": "aa"}, ImageContent("aa", "image/png")),
        (
            {"type": "image", "base64": "aa", "url": "https://example.com/a.webp"},
            ImageContent("aa", "image/webp"),
        ),
        (
            {"type": "image", "url": "https://example.com/a.png"},
            ResourceLink("a.png", "https://example.com/a.png", mime_type="image/png"),
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}},
            ImageContent("aa", "image/png"),
        ),
        ({"type": "image_url", "image_url": {"url": "data:image/png,aa"}}, None),
        ({"type": "image", "base64": "/9j/4A=="}, ImageContent("/9j/4A==", "image/jpeg")),
        ({"type": "image", "base64": "UklGRg=="}, ImageContent("UklGRg==", "image/webp")),
        ({"type": "audio", "base64": "UklGRg=="}, AudioContent("UklGRg==", "audio/wav")),
        ({"type": "audio", "base64": "SUQzBA=="}, AudioContent("SUQzBA==", "audio/mpeg")),
        (
            {"type": "file", "base64": "JVBERi0="},
            EmbeddedResource(BlobResourceContents("JVBERi0=", "attachment:file", PDF)),
        ),
        ({"type": "audio", "base64": "aa"}, AudioContent("aa", "audio/wav")),
        (
            {"type": "audio", "url": "https://example.com/"},
            ResourceLink("audio", "https://example.com/"),
        ),
        (
            {"type": "video", "base64": "aa", "mime_type": "video/mp4"},
            EmbeddedResource(BlobResourceContents("aa", "attachment:video", "video/mp4")),
        ),
        (
            {"type": "file", "base64": "aa", "mime_type": PDF, "extras": {"filename": "a.pdf"}},
            EmbeddedResource(BlobResourceContents("aa", "attachment:a.pdf", PDF)),
        ),
        ({"type": "file", "file_id": "file-1"}, None),
        (
            {"type": "text-plain", "text": "words", "title": "notes"},
            EmbeddedResource(TextResourceContents("words", "attachment:notes", "text/plain")),
        ),
        (
            {"type": "text-plain", "url": "https://example.com/a.txt"},
            ResourceLink("a.txt", "https://example.com/a.txt", mime_type="text/plain"),
        ),
        ({"type": "image", "url": "http://[not"}, ResourceLink("image", "http://[not")),
        ({"type": "hologram"}, None),
        ({}, None),
    ],
)
def test_blocks_are_shown_as_what_they_are(block, shown):
    assert client_block(block) == shown


@table(
    "content, shown",
    [
        ("", []),
        ("text", [TextContent("text")]),
        (["one", {"type": "text", "text": "two"}], [TextContent("one"), TextContent("two")]),
        ([{"type": "hologram", "value": 1}], [TextContent('{"type": "hologram", "value": 1}')]),
        ([3], [TextContent("3")]),
        (3, [TextContent("3")]),
        (None, []),
        ({"type": "image", "base64": "aa", "mime_type": "image/gif"}, [ImageContent("aa", "image/gif")]),
        ({"done": 0.5}, [TextContent('{"done": 0.5}')]),
    ],
)
def test_everything_that_a_tool_returns_can_be_shown(content, shown):
    assert client_blocks(content) == shown
