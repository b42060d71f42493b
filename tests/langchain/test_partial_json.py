"""Arguments that are still being written: read as far as they go, and quickly whatever they are."""

from __future__ import annotations

import json
import time

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk

from coupler.agent.factory import adapt
from coupler.langchain.tool_arguments import SHORT_JSON, partial_json, partial_object
from labs.langchain.scripted_model import ScriptedModel
from tables import table

LONG = 'line "quoted" \\ \n\t é😀\x01' * 20
WHOLE = {
    "path": "a.py",
    "all": [1, 2.5, True, None, {"x": LONG}],
    "content": LONG,
    "edits": [{"old": "a"}] * 3,
}


def test_wherever_a_text_ends_that_much_of_it_is_known() -> None:
    text = json.dumps(WHOLE)

    known = [partial_object(text[:end]) for end in range(SHORT_JSON, len(text) + 1)]

    assert all(each["path"] == "a.py" for each in known)
    assert known[-1] == WHOLE
    assert sorted({len(each) for each in known}) == [2, 3, 4]
    contents = [each["content"] for each in known if "content" in each]
    assert all(LONG.startswith(each.rstrip("\ud83d")) for each in contents if each)


@table(
    "text",
    [
        "x" * 1_000_000 + '"}',
        '{"a": ' + "x" * 1_000_000,
        '{"a": "' + "\\" * 1_000_001,
        '{"a": "' + "\\u00e9" * 200_000 + "\\u00",
        "{" * 300_000,
        '{"a": ' * 100_000,
        '{"a": 1' + "}" * 100_000,
        '{"a": ' + "[" * 100_000 + "}",
    ],
    ids=["a middle", "no value", "backslashes", "escapes", "braces", "nested", "closed", "crossed"],
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()

    assert len(partial_object(text)) <= 1

    assert time.process_time() - started < 5


def test_langchain_reads_the_pieces_of_a_call_as_quickly() -> None:
    adapt(create_agent(ScriptedModel(script=[["Hello"]]), []))
    piece = {"name": None, "args": "x" * 300_000, "id": None, "index": 0, "type": "tool_call_chunk"}
    started = time.process_time()

    chunk = AIMessageChunk(content="", tool_call_chunks=[piece])

    assert time.process_time() - started < 5
    assert [call["args"] for call in chunk.invalid_tool_calls] == [piece["args"]]


def test_what_is_no_object_is_none() -> None:
    assert partial_json("[" + "1, " * SHORT_JSON) is None
    assert partial_object("[" + "1, " * SHORT_JSON) == {}
