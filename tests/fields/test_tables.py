"""A struct that is declared once is read from YAML and TOML, and described as a JSON Schema and in words."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
import pytest

from coupler.config.files import Origin
from coupler.config.shapes import SettingNotes
from coupler.fields.nodes import SourcePosition
from coupler.fields.shapes import WRONG, Duration, MappingOf, Names, Notes, Number, Text
from coupler.fields.tables import Inline, Key, Needs, Short, keys_of, shape_of, table, table_of, variant_of
from coupler.workflow.language.yaml_source import parse_yaml


@table("pause", "a pause", Short("length"))
class Pause(msgspec.Struct, frozen=True):
    """A time in which nothing is done."""

    length: Annotated[float, Key("How long it is.", "5m", shape=Duration())] = 60.0
    name: str = ""
    position: SourcePosition | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.length > 3600:
            yield "length", "`length` is too long to wait for"


class Limits(msgspec.Struct, frozen=True):
    most: Annotated[int | None, Key("At most.", "3", shape=Number(1, 9, is_whole=True))] = None
    least: Annotated[int | None, Key("At least.", "1", shape=Number(1, 9, is_whole=True))] = None


@table("job", "a job", Needs("most", "pause"))
class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do, as [the manual](manual.md) says.

    More about it.
    """

    what: Annotated[str, Key("What is done, see [there](there.md).", "lint", name="do", shape=Text())]
    mode: Annotated[Literal["fast", "slow"], Key("How it is done.", "slow")] = "fast"
    is_loud: Annotated[bool, Key("Whether it is heard.", "true", name="loud")] = False
    pause: Annotated[Pause | None, Key("The pause after it.", "5m", "none")] = None
    limits: Annotated[Limits, Inline()] = Limits()
    place: str = "here"
    """No key."""


JOBS = MappingOf(shape_of(Job), "a mapping of jobs", Names("^[a-z]+$", "made of small letters"))


def read_yaml(text: str) -> tuple[Any, list[str]]:
    notes = Notes()
    value = JOBS.read(parse_yaml(text, "f.yaml"), "jobs", notes)
    return value, [str(problem) for problem in notes.problems]


def read_toml(text: str) -> tuple[Any, list[str]]:
    notes = SettingNotes(lambda path: Origin("user", "f.toml", len(path)))
    value = JOBS.read(notes.node(tomllib.loads(text), ()), "jobs", notes)
    return value, [f"{'.'.join(map(str, fault.path))}{fault.message}" for fault in notes.faults]


def test_one_declaration_reads_yaml_and_toml_alike():
    from_yaml, problems = read_yaml("a: {do: lint, loud: true, pause: 5m, most: 3}")
    from_toml, faults = read_toml("a = { do = 'lint', loud = true, pause = '5m', most = 3 }")

    assert (problems, faults) == ([], [])
    job, same = from_yaml["a"], from_toml["a"]
    assert (job.what, job.mode, job.is_loud, job.limits, job.place) == (
        "lint",
        "fast",
        True,
        Limits(3),
        "here",
    )
    assert (job.pause.length, job.pause.name) == (300, "pause")
    assert job.pause.position == SourcePosition("f.yaml", 1, 34)
    assert msgspec.structs.replace(same, pause=None) == msgspec.structs.replace(job, pause=None)


@pytest.mark.parametrize(
    ("yaml", "toml", "problem", "fault"),
    [
        (
            "a: {do: x, lod: true}",
            "a = { do = 'x', lod = true }",
            "f.yaml:1:12: `lod` is no key of a job; did you mean `loud`?",
            "a.lod is unknown; did you mean `loud`?",
        ),
        ("a: {loud: true}", "a = { loud = true }", "f.yaml:1:4: a job needs `do`", "a: a job needs `do`"),
        (
            "a: {do: x, mode: slwo}",
            "a = { do = 'x', mode = 'slwo' }",
            "f.yaml:1:18: `mode` must be `fast` or `slow`; did you mean `slow`?",
            "a.mode must be `fast` or `slow`; did you mean `slow`?",
        ),
        (
            "a: {do: x, pause: [1]}",
            "a = { do = 'x', pause = [1] }",
            "f.yaml:1:19: `pause` must be a duration, such as `500ms`, `30s`, `5m` or `2h`, or a number of "
            "seconds, or a mapping with `length`, not a list",
            "a.pause must be a duration, such as `500ms`, `30s`, `5m` or `2h`, or a number of seconds, or a "
            "mapping with `length`, not a list",
        ),
        (
            "a: {do: x, pause: {length: 2h}}",
            "a = { do = 'x', pause = { length = '2h' } }",
            "f.yaml:1:28: `length` is too long to wait for",
            "a.pause.length: `length` is too long to wait for",
        ),
        (
            "a: {do: x, most: 3}",
            "a = { do = 'x', most = 3 }",
            "f.yaml:1:12: `most` goes with `pause`, which is not here",
            "a.most: `most` goes with `pause`, which is not here",
        ),
        (
            "A1: {do: x}",
            "A1 = { do = 'x' }",
            "f.yaml:1:1: a name in `jobs` must be made of small letters",
            "A1 must be made of small letters",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(yaml: str, toml: str, problem: str, fault: str) -> None:
    assert read_yaml(yaml)[1] == [problem]
    assert read_toml(toml)[1] == [fault]


def test_a_number_that_is_infinite_or_none_is_no_whole_number():
    for text in ("inf", "-inf", "nan", "1.5", "10"):
        value, faults = read_toml(f"a = {{ do = 'x', pause = 1, most = {text} }}")
        assert (value, faults) == (WRONG, ["a.most must be a whole number from 1 to 9"]), text


def test_the_schema_and_the_words_come_from_the_declaration():
    assert table_of(Job).own_schema() == {
        "type": "object",
        "description": "Something to do, as [the manual](manual.md) says.",
        "properties": {
            "do": {"description": "What is done, see there.", "type": "string", "pattern": "\\S"},
            "mode": {"description": "How it is done.", "enum": ["fast", "slow"]},
            "loud": {"description": "Whether it is heard.", "type": "boolean"},
            "pause": {
                "description": "The pause after it.",
                "anyOf": [Duration().schema(), {"$ref": "#/$defs/pause"}],
            },
            "most": {"description": "At most.", "type": "integer", "minimum": 1, "maximum": 9},
            "least": {"description": "At least.", "type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["do"],
        "allOf": [{"dependentRequired": {"most": ["pause"]}}],
        "additionalProperties": False,
    }
    defaults: Mapping[str, str] = {key.name: key.default or "" for key in keys_of(Job)}
    assert (defaults["mode"], defaults["loud"], defaults["pause"]) == ("`fast`", "false", "none")
    assert [key.default for key in keys_of(Pause)] == ["`60s`"]


def test_a_variant_has_some_of_the_keys_in_other_words():
    short = variant_of(Job, "short_job", "a short job", "A short one.", ["do"], do=Key("What.", "x"))
    assert [(key.name, key.sentence, key.shape.words) for key in short.keys] == [("do", "What.", "a text")]
    notes = Notes()
    assert short.read(parse_yaml("{do: x}", "f.yaml"), "job", notes) == Job(what="x")


def test_a_type_that_says_too_little_is_refused():
    with pytest.raises(TypeError, match="does not say what its values are"):
        shape_of(list[int])
