"""The text of a prompt."""

import msgspec

from coupler.agent.content import prompt_text
from coupler.schema.decoding import decode
from coupler.schema.v1 import PromptRequest
from tables import table


def text_of(*blocks):
    raw = msgspec.json.encode({"sessionId": "s", "prompt": blocks})
    return prompt_text(decode(PromptRequest, msgspec.Raw(raw), "agent").prompt)


def text(text):
    return {"type": "text", "text": text}


def link(uri="file:///a.py", name="a.py", **fields):
    return {"type": "resource_link", "uri": uri, "name": name, **fields}


def embedded(text="x = 1", uri="file:///a.py", **fields):
    return {"type": "resource", "resource": {"uri": uri, "text": text, **fields}}


LED = "[Resource: a.py](file:///a.py)\n"

BLOB = {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA"}}
IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}


@table(
    ("blocks", "expected"),
    [
        ([], ""),
        ([text("hello")], "hello"),
        ([text("a"), text("b")], "a\n\nb"),
        ([text("")], ""),
        ([text("a"), text(""), text("b")], "a\n\n\n\nb"),
        ([text("  kept as it is\n")], "  kept as it is\n"),
        ([link()], "[Resource: a.py](file:///a.py)"),
        ([link(title="The file")], "[Resource: The file](file:///a.py)"),
        ([link(title=None)], "[Resource: a.py](file:///a.py)"),
        ([link(title="")], "[Resource: a.py](file:///a.py)"),
        ([link(name="")], "[Resource: file:///a.py](file:///a.py)"),
        ([text("see"), link()], "see\n\n[Resource: a.py](file:///a.py)"),
        ([link(name="a\nb", uri="c\r\nd")], "[Resource: a\ufffdb](c\ufffd\ufffdd)"),
        ([embedded()], f"{LED}```\nx = 1\n```"),
        ([embedded(text="x = 1\n")], f"{LED}```\nx = 1\n```"),
        ([embedded(text="")], f"{LED}```\n```"),
        ([embedded(mimeType="text/x-python")], f"{LED}```text/x-python\nx = 1\n```"),
        ([embedded(mimeType=None)], f"{LED}```\nx = 1\n```"),
        ([embedded(mimeType="")], f"{LED}```\nx = 1\n```"),
        ([embedded(mimeType="`x`\n```")], f"{LED}```x\ufffd\nx = 1\n```"),
        ([embedded('a < b && "c" </resource>')], f'{LED}```\na < b && "c" </resource>\n```'),
        ([embedded("```\nover\n````\n")], f"{LED}`````\n```\nover\n````\n`````"),
        (
            [embedded(uri="zed:///thread/1\n/")],
            "[Resource: 1\ufffd](zed:///thread/1\ufffd/)\n```\nx = 1\n```",
        ),
        ([IMAGE], ""),
        ([AUDIO, BLOB], ""),
        ([text("a"), IMAGE, text("b")], "a\n\nb"),
    ],
)
def test_blocks_become_text(blocks, expected):
    assert text_of(*blocks) == expected
