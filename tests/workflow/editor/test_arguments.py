"""What is typed behind a slash command, as inputs."""

from __future__ import annotations

import pytest

from coupler.schema.v1 import (
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from coupler.workflow.editor.arguments import PromptText, input_hint, slash_command_in, words_in
from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import inputs_in_words
from coupler.workflow.language.model import Workflow
from coupler.workflow.language.reader import read_text
from tables import table


def workflow(inputs: str) -> Workflow:
    return read_text(f"inputs: {inputs}\nsteps: [{{run: 'true'}}]\n", "/flows/review.yaml")


REST = "{target: {required: true}, depth: integer, notes: {rest: true}}"
TWO = "{target: {required: true}, depth: integer}"


@table(
    ("inputs", "typed", "pairs"),
    [
        (REST, "", {}),
        (REST, "target=main", {"target": "main"}),
        (REST, "-i target=main --input depth=2", {"target": "main", "depth": "2"}),
        (REST, "--input=target=a=b", {"target": "a=b"}),
        (REST, 'target="a b" depth=2', {"target": "a b", "depth": "2"}),
        (REST, "--input 'target=a b'", {"target": "a b"}),
        (REST, "--input=target='a b'", {"target": "a b"}),
        (REST, r'target="say \"hi\" \\ now"', {"target": r'say "hi" \ now'}),
        (REST, "target=don't panic, it's fine", {"target": "don't", "notes": "panic, it's fine"}),
        (REST, "look  at\n  this", {"notes": "look  at\n  this"}),
        (REST, "look at depth=3 this", {"notes": "look at this", "depth": "3"}),
        (REST, "'all of it'", {"notes": "all of it"}),
        (REST, "x=1 is no input", {"notes": "x=1 is no input"}),
        (REST, "-- target", {"notes": "-- target"}),
        (REST, '<resource uri="a b">x = 1</resource>', {"notes": '<resource uri="a b">x = 1</resource>'}),
        (TWO, "main", {"target": "main"}),
        (TWO, "the main branch", {"target": "the main branch"}),
        (TWO, "target=main 4", {"target": "main", "depth": "4"}),
        ("{all: list}", "a, b", {"all": "a, b"}),
        ("{all: list}", "all=a all=b", {"all": '["a", "b"]'}),
        (REST, "target='one\n  two' and", {"target": "one\n  two", "notes": "and"}),
        (REST, "target= depth=2", {"target": "", "depth": "2"}),
        (REST, 'target="" "', {"target": "", "notes": '"'}),
        (REST, "target=größe=1&x=%20", {"target": "größe=1&x=%20"}),
    ],
)
def test_inputs_stand_anywhere_and_free_text_stays_as_it_was_typed(
    inputs: str, typed: str, pairs: dict[str, str]
) -> None:
    declared = workflow(inputs)
    assert inputs_in_words(words_in(typed, declared), declared) == pairs


@table("typed", ['target="a b', "target='a", '--input=target="a"b', '-i target="a'])
def test_quotes_that_do_not_go_around_a_value_are_told(typed: str) -> None:
    with pytest.raises(InputError, match=r"^the quotes behind `target=` have to go around its value$"):
        words_in(typed, workflow(REST))


LINK = ResourceLink("a.py", "file:///project/src/a%20b.py#L1:20")
FILE = EmbeddedResource(TextResourceContents("x = 1 target=evil", "file:///elsewhere/b.py"))
PICTURE = EmbeddedResource(BlobResourceContents("iVBO", "file:///project/c.png"))
PAGE = ResourceLink("page", "https://example.com/x")
THREAD = EmbeddedResource(TextResourceContents("said", "zed:///agent/thread/1"))
ONE = "{what: {type: TYPE, required: true}}"
INSIDE = "src/a b.py"


@table(
    ("inputs", "blocks", "pairs"),
    [
        (ONE.replace("TYPE", "file"), ["", LINK], {"what": INSIDE}),
        (ONE.replace("TYPE", "file"), ["what=", LINK], {"what": INSIDE}),
        (ONE.replace("TYPE", "file"), [FILE], {"what": "/elsewhere/b.py"}),
        (ONE.replace("TYPE", "file"), [PICTURE], {"what": "c.png"}),
        (ONE.replace("TYPE", "file"), [PAGE], {"what": "[Resource: page](https://example.com/x)"}),
        (ONE.replace("TYPE", "string"), [LINK], {"what": INSIDE}),
        (ONE.replace("TYPE", "string"), ["see", LINK], {"what": "see\n\n[Resource: a.py](FILE)"}),
        (ONE.replace("TYPE", "list"), [LINK, PICTURE], {"what": '["src/a b.py", "c.png"]'}),
        (ONE.replace("TYPE", "list"), ["what=", LINK, "what=", PICTURE], {"what": '["src/a b.py", "c.png"]'}),
        (ONE.replace("TYPE", "list"), ["what=a,b"], {"what": "a,b"}),
        (REST, ["target=", LINK, " depth=2"], {"target": INSIDE, "depth": "2"}),
        (REST, ["--input target=", LINK, "go"], {"target": INSIDE, "notes": "go"}),
        (REST, ["target=x why", LINK], {"target": "x", "notes": "why\n\n[Resource: a.py](FILE)"}),
        (REST, [LINK], {"notes": "[Resource: a.py](FILE)"}),
        (
            REST,
            ["target=x", THREAD],
            {"target": "x", "notes": "[Resource: 1](zed:///agent/thread/1)\n```\nsaid\n```"},
        ),
        (REST, ["a\U000f0000b", LINK], {"notes": "a\ufffdb\n\n[Resource: a.py](FILE)"}),
    ],
)
def test_what_is_mentioned_is_a_path_where_it_is_all_and_text_where_it_is_not(
    inputs: str, blocks: list[str | ContentBlock], pairs: dict[str, str]
) -> None:
    declared = workflow(inputs)
    typed = PromptText.of(
        TextContent(block) if isinstance(block, str) else block for block in blocks if block
    )
    words = words_in(typed.text, declared)

    meant = typed.meant(inputs_in_words(words, declared), declared, "/project")

    assert meant == {name: text.replace("FILE", LINK.uri) for name, text in pairs.items()}


@table(
    ("blocks", "name", "text"),
    [
        (["/review"], "review", ""),
        (["  /review main\n\nplease "], "review", "main\n\nplease "),
        (["/review\r\nmain"], "review", "main"),
        ([LINK, "\n", "/review main"], "review", "main"),
        (["/größe.v2 x"], "größe.v2", "x"),
        (["//review"], None, ""),
        (["/ review"], None, ""),
        (["look at /review"], None, ""),
        ([LINK], None, ""),
        ([], None, ""),
    ],
)
def test_a_prompt_is_a_command_by_its_form(
    blocks: list[str | ContentBlock], name: str | None, text: str
) -> None:
    found = slash_command_in([TextContent(block) if isinstance(block, str) else block for block in blocks])
    assert (found.name if found else None) == name
    assert (found.arguments.text if found else "") == text


def test_text_that_could_mean_several_inputs_means_none() -> None:
    declared = workflow("{one: string, two: string}")
    assert words_in("some text", declared) == ["--", "some text"]


def test_a_hint_tells_what_is_needed_and_ends_with_the_free_text() -> None:
    inputs = (
        "{what: {rest: true, required: true}, kind: {enum: [fast, good]}, "
        "count: {type: integer, required: true}, file: file}"
    )
    assert input_hint(workflow(inputs)) == "[kind=fast|good] count=INTEGER [file=PATH] what"
