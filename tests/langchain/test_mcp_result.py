"""What MCP tools return, as models read it, where that is not just what it was."""

from coupler.langchain.mcp_tools import LONGEST_TEXT, message_content
from coupler.mcp.tools import ToolResult
from coupler.schema.v1 import BlobResourceContents, EmbeddedResource, ResourceLink, TextContent


def test_data_without_content_is_read_as_json():
    assert message_content(ToolResult((), structured={"answer": 42})) == '{"answer":42}'


def test_nothing_is_an_empty_text():
    assert message_content(ToolResult(())) == ""


def test_texts_are_lines_of_one_text():
    assert message_content(ToolResult((TextContent("a"), TextContent("b")))) == "a\nb"


def test_a_text_that_is_too_long_is_cut_and_says_so():
    read = message_content(ToolResult((TextContent("x" * (LONGEST_TEXT + 5)),)))
    assert read == f"{'x' * LONGEST_TEXT}\n… (5 more characters were left out)"


def test_a_link_is_named_with_what_it_is():
    link = ResourceLink("docs", "https://example.com", description="the manual")
    assert message_content(ToolResult((link,))) == "docs: https://example.com (the manual)"


def test_bytes_without_a_type_are_a_file_all_the_same():
    blob = EmbeddedResource(BlobResourceContents("cGRm", "memo://1"))
    assert message_content(ToolResult((blob,))) == [
        {"type": "file", "base64": "cGRm", "mime_type": "application/octet-stream"}
    ]
