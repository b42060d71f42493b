"""Forms: what clients are told of a type or a schema, and what is believed of what they send back."""

import enum
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Annotated, Any, Generic, Literal, NotRequired, Optional, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from coupler.agent.elicitation import Form, FormError, asks_for_secret, ends_in_secret, names_secret
from coupler.schema.decoding import decode
from coupler.schema.v1 import ElicitationSchema
from tables import table


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Release:
    """What to release.

    Not part of the description.
    """

    version: Annotated[str, Meta(pattern=r"^\d+\.\d+$", description="Two numbers")]
    count: Annotated[int, Meta(ge=1, le=5)] = 2
    size: Size = Size.SMALL
    parts: list[Literal["docs", "code"]] = field(default_factory=list, metadata={"title": "What else"})
    note: str | None = None
    made: str = field(default="here", init=False)


class Settings(msgspec.Struct, rename="camel"):
    """How to go on."""

    max_rounds: Annotated[int, Meta(gt=0, lt=10)]
    ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    sizes: frozenset[Size] = frozenset()
    is_quiet: bool | msgspec.UnsetType = msgspec.UNSET


T = TypeVar("T")


@dataclass
class Pair(Generic[T]):
    """Two of a kind."""

    first: T
    second: T


class Person(TypedDict):
    name: str
    born: NotRequired[date]


class Model(pydantic.BaseModel):
    """A model."""

    name: str = pydantic.Field(min_length=2, title="Your name", description="As on the door")
    age: int | None = None
    size: Size = Size.SMALL
    level: Level = Level.LOW
    sizes: set[Size] = set()
    only: Literal["x"] = "x"
    maybe: Optional[Size] = None  # noqa: UP045
    share: Annotated[float, pydantic.Field(gt=0, lt=5)] = 2

    @pydantic.field_validator("name")
    @classmethod
    def refuse_bob(cls, value):
        if value == "Bob":
            raise ValueError("not Bob")
        return value


def told(spec) -> dict[str, Any]:
    """The schema as it goes over the wire, where it has to be one of ACP's."""
    line = msgspec.json.encode(Form.of(spec).schema)
    decode(ElicitationSchema, line, "client")
    return msgspec.json.decode(line)


def told_field(spec) -> dict[str, Any]:
    (only,) = told(spec)["properties"].values()
    return only


class TestWhatClientsAreTold:
    def test_of_a_dataclass(self):
        assert told(Release) == {
            "type": "object",
            "description": "What to release.",
            "required": ["version"],
            "properties": {
                "version": {
                    "type": "string",
                    "title": "Version",
                    "description": "Two numbers",
                    "pattern": r"^\d+\.\d+$",
                },
                "count": {"type": "integer", "title": "Count", "minimum": 1, "maximum": 5, "default": 2},
                "size": {
                    "type": "string",
                    "title": "Size",
                    "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
                    "default": "s",
                },
                "parts": {
                    "type": "array",
                    "title": "What else",
                    "items": {"type": "string", "enum": ["docs", "code"]},
                    "default": [],
                },
                "note": {"type": "string", "title": "Note"},
            },
        }

    def test_of_a_struct(self):
        assert told(Settings) == {
            "type": "object",
            "description": "How to go on.",
            "required": ["maxRounds"],
            "properties": {
                "maxRounds": {"type": "integer", "title": "MaxRounds", "minimum": 1, "maximum": 9},
                "ratio": {"type": "number", "title": "Ratio", "minimum": 0, "maximum": 1, "default": 0.5},
                "sizes": {
                    "type": "array",
                    "title": "Sizes",
                    "items": {"anyOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
                    "default": [],
                },
                "isQuiet": {"type": "boolean", "title": "IsQuiet"},
            },
        }

    def test_of_a_typed_dict(self):
        assert told(Person) == {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "title": "Name"},
                "born": {"type": "string", "title": "Born", "format": "date"},
            },
        }

    def test_of_a_pydantic_model(self):
        properties = told(Model)["properties"]

        assert told(Model)["title"] == "Model"
        assert told(Model)["required"] == ["name"]
        assert properties == {
            "name": {
                "type": "string",
                "title": "Your name",
                "description": "As on the door",
                "minLength": 2,
            },
            "age": {"type": "integer", "title": "Age"},
            "size": {"type": "string", "title": "Size", "enum": ["s", "l"], "default": "s"},
            "level": {"type": "string", "title": "Level", "enum": ["1", "2"], "default": "1"},
            "sizes": {
                "type": "array",
                "title": "Sizes",
                "items": {"type": "string", "enum": ["s", "l"]},
                "default": [],
            },
            "only": {"type": "string", "title": "Only", "enum": ["x"], "default": "x"},
            "maybe": {"type": "string", "title": "Maybe", "enum": ["s", "l"]},
            "share": {"type": "number", "title": "Share", "minimum": 0, "maximum": 5, "default": 2},
        }

    @table(
        ("spec", "expected"),
        [
            (bool, {"type": "boolean"}),
            (int, {"type": "integer"}),
            (float, {"type": "number"}),
            (str, {"type": "string"}),
            (date, {"type": "string", "format": "date"}),
            (datetime, {"type": "string", "format": "date-time"}),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
            (Literal[1, 2], {"type": "string", "enum": ["1", "2"]}),
            (
                Level,
                {
                    "type": "string",
                    "oneOf": [{"const": "LOW", "title": "Low"}, {"const": "HIGH", "title": "High"}],
                },
            ),
            (set[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
            (
                Annotated[list[Literal["a", "b"]], Meta(min_length=1, max_length=2)],
                {
                    "type": "array",
                    "items": {"type": "string", "enum": ["a", "b"]},
                    "minItems": 1,
                    "maxItems": 2,
                },
            ),
            (
                Annotated[str, Meta(min_length=1, max_length=9, extra_json_schema={"format": "email"})],
                {"type": "string", "minLength": 1, "maxLength": 9, "format": "email"},
            ),
            (
                {"type": "string", "format": "uri", "title": "T", "x-more": 1},
                {"type": "string", "format": "uri", "title": "T"},
            ),
            ({"type": "string", "format": "hostname"}, {"type": "string"}),
            ({"type": ["string", "null"]}, {"type": "string"}),
            (
                {"type": "string", "oneOf": [{"const": "a", "title": "A!", "description": "d"}]},
                {"type": "string", "oneOf": [{"const": "a", "title": "A!", "description": "d"}]},
            ),
            (
                {"type": "integer", "exclusiveMinimum": 0.5, "exclusiveMaximum": 3, "maximum": 9},
                {"type": "integer", "minimum": 1, "maximum": 2},
            ),
        ],
    )
    def test_of_one_value(self, spec, expected):
        assert told_field(spec) == {"title": "Value", **expected}
        assert set(told(spec)["properties"]) == {"value"}

    def test_a_docstring_that_python_made_up_is_not_shown(self):
        @dataclass
        class Plain:
            x: int

        class Child(Settings):
            pass

        assert "description" not in told(Plain)
        assert "description" not in told(Child)

    def test_a_schema_keeps_its_labels_and_references(self):
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "T",
            "description": "D",
            "type": "object",
            "properties": {
                "a": {"$ref": "#/$defs/A", "description": "own"},
                "b": {"allOf": [{"$ref": "#/$defs/A"}], "default": "x"},
            },
            "required": ["a"],
            "additionalProperties": False,
            "$defs": {"A": {"title": "Ours", "type": "string", "enum": ["x", "y"], "description": "shared"}},
        }

        assert told(schema) == {
            "type": "object",
            "title": "T",
            "description": "D",
            "required": ["a"],
            "properties": {
                "a": {"type": "string", "title": "A", "description": "own", "enum": ["x", "y"]},
                "b": {
                    "type": "string",
                    "title": "B",
                    "description": "shared",
                    "enum": ["x", "y"],
                    "default": "x",
                },
            },
        }

    def test_choices_stay_in_the_order_in_which_they_are_written(self):
        class Ordered(msgspec.Struct):
            x: Annotated[Literal["z", "a"] | None, Meta(title="T")] = None
            y: list[Literal["b", "c", "a"]] = []

        properties = told(Ordered)["properties"]

        assert properties["x"]["enum"] == ["z", "a"]
        assert properties["y"]["items"]["enum"] == ["b", "c", "a"]
        assert told_field(Literal["z", 3, "a", 1])["enum"] == ["z", "3", "a", "1"]

    def test_a_form_is_a_spec_itself(self):
        form = Form.of(bool)
        assert Form.of(form) is form


def one(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


@dataclass
class Inner:
    x: int


class TestWhatNoFormCanBe:
    @table(
        ("kind", "problem"),
        [
            (Inner, "'x' is an object itself: a form is flat"),
            (Settings, "'x' is an object itself"),
            (Person, "'x' is an object itself"),
            (dict[str, str], "'x' is an object itself"),
            (list[str], "'x' is a list of anything"),
            (list[Inner], "'x' is a list of anything"),
            (list[list[Literal["a"]]], "'x' is a list of anything"),
            (bytes, r"'x' cannot be part of a form \(Bytes\)"),
            (Any, "'x' cannot be part of a form"),
            (object, "'x' cannot be part of a form"),
            (int | str, "'x' is of several types"),
            (Annotated[int, Meta(multiple_of=2)], "'x': forms know no `multiple_of`"),
            (Annotated[str, Meta(pattern="(?=a)")], "'x': the pattern uses assert"),
            (Literal["1", 1], "two choices of the field 'x' are written the same"),
        ],
    )
    def test_a_type_is_refused_by_the_name_of_its_field(self, kind, problem):
        outer = msgspec.defstruct("Outer", [("x", kind)])

        with pytest.raises(ValueError, match=problem):
            Form.of(outer)

    @table(
        ("spec", "problem"),
        [
            (one(type="object"), "'x' is an object itself"),
            (one(type="array", items={"type": "string"}), "'x' is a list of anything"),
            (one(type="array"), "'x' is a list of anything"),
            (one(type="array", items=[1]), "'x' is a schema"),
            (one(type="null"), "'x' is of the type 'null'"),
            (one(type=["string", "integer"]), "'x' is of several types"),
            (one(type=[]), "'x' is of several types"),
            (one(type={}), "'x' is of the type"),
            (one(), "'x' has no `type`"),
            (one(anyOf=[{"type": "string"}, {"type": "integer"}]), "'x' is of several types or kinds"),
            (one(anyOf="a"), "`anyOf` is a list"),
            (one(enum="ab"), "`enum` is a list"),
            (one(enum=[]), "'x' has nothing to choose from"),
            (one(enum=[{}]), "'x' has a choice that is neither"),
            (one(enum=["1", 1]), "two choices of the field 'x'"),
            (one(type="string", contentEncoding="base64"), "'x': a form cannot express `contentEncoding`"),
            (one(type="string", **{"not": {}}), "'x': a form cannot express `not`"),
            (one(type="number", multipleOf=2), "'x': a form cannot express `multipleOf`"),
            (one(type="string", pattern=5), "'x': `pattern` is text"),
            (one(type="string", pattern="("), "'x': the pattern cannot be read"),
            (one(type="string", minLength=-1), "'x': `minLength` is a whole number"),
            (one(type="string", minLength=True), "'x': `minLength` is a whole number"),
            (one(type="number", minimum="1"), "'x': `minimum` is a number"),
            (one(type="number", minimum=math.nan), "'x': `minimum` is a number"),
            (one(type="integer", maximum=10**400), "'x': `maximum` is a number"),
            (one(type="string", default=5), "the default of the field 'x' does not fit"),
            (one(type="integer", maximum=3, default=5), "the default of the field 'x' does not fit"),
            (one(enum=["a"], default="b"), "the default of the field 'x' does not fit"),
            (one(enum=[1], default=True), "the default of the field 'x' does not fit"),
            (one(**{"$ref": "#/$defs/Nothing"}), "'x' refers to '#/\\$defs/Nothing', which is not in"),
            (one(**{"$ref": "https://example.com/schema"}), "'x' refers to 'https://"),
            (one(**{"$ref": 5}), "'x' refers to 5"),
            (
                {**one(**{"$ref": "#/$defs/A"}), "$defs": {"A": {"$ref": "#/$defs/A"}}},
                "'x' refers to itself or too far",
            ),
            ({"type": "object", "properties": {"x": True}}, "'x' is a schema, that is an object"),
            ({"type": "object", "properties": {" ": {"type": "string"}}}, "the name of a field is text"),
            ({"type": "object", "properties": {}}, "the form has no field"),
            ({"type": "object"}, "the form has no `properties`"),
            ({"type": "object", "properties": []}, "the form has no `properties`"),
            ({**one(type="string"), "required": ["y"]}, "requires the field 'y'"),
            ({**one(type="string"), "required": "x"}, "`required` of the form is a list"),
            ({**one(type="string"), "if": {}}, "the form: a form cannot express `if`"),
            ({**one(type="string"), "minProperties": 1}, "cannot express `minProperties`"),
            ({"properties": {f"f{i}": {"type": "string"} for i in range(101)}}, "more than 100 fields"),
            (one(enum=["a", math.inf]), "neither text nor a number"),
            (one(enum=[f"v{i}" for i in range(1_001)]), "more than 1000 choices"),
            (5, "no form can be made of 5"),
            (pydantic.RootModel[int], "has no fields of its own"),
        ],
    )
    def test_a_schema_is_refused_by_the_name_of_its_field(self, spec, problem):
        with pytest.raises(ValueError, match=problem):
            Form.of(spec)

    def test_a_default_has_to_fit(self):
        @dataclass
        class Wrong:
            x: Annotated[int, Meta(le=3)] = 5

        with pytest.raises(
            ValueError, match="the default of the field 'x' does not fit: x: expected at most 3"
        ):
            Form.of(Wrong)


class TestSecrets:
    @table(
        "name",
        [
            *("password", "Password", "db_password", "passwordAgain", "userpassword", "PASSWD", "pwd"),
            *("token", "github_token", "accessToken", "auth-token", "tokens", "APIToken", "client_secret"),
            *("api_key", "apiKey", "APIKey", "apikey", "privateKey", "ssh key", "passphrase", "credentials"),
            *("otp", "pin", "cvv", "recovery_code", "\uff50assword"),
        ],
    )
    def test_a_text_with_the_name_of_a_secret_is_refused(self, name):
        assert names_secret(name)
        with pytest.raises(ValueError, match=r"looks like a secret.*ask for secrets with turn\.ask_url"):
            Form.of({"properties": {name: {"type": "string"}}})
        with pytest.raises(ValueError, match="looks like a secret"):
            Form.of({"properties": {"x": {"type": "string", "title": name}}})

    @table(
        "name",
        ["name", "secretary", "tokenizer", "keyboard", "author", "spin", "pinned", "key", "monkey_keys"],
    )
    def test_other_names_are_not(self, name):
        Form.of({"properties": {name: {"type": "string"}}})

    @pytest.mark.parametrize(
        "schema",
        [{"type": "boolean"}, {"enum": ["a"]}, {"type": "array", "items": {"enum": ["a"]}}],
    )
    def test_what_is_chosen_gives_no_secret_away(self, schema):
        Form.of({"properties": {"token": schema}})

    @pytest.mark.parametrize(("name", "refused"), [("max_tokens", False), ("tokens", False), ("pin", True)])
    def test_numbers_count_tokens_but_can_be_a_pin(self, name, refused):
        if not refused:
            Form.of({"properties": {name: {"type": "integer"}}})
            return
        with pytest.raises(ValueError, match="looks like a secret"):
            Form.of({"properties": {name: {"type": "integer"}}})

    def test_pydantics_secret_is_one(self):
        class Hidden(pydantic.BaseModel):
            x: pydantic.SecretStr

        with pytest.raises(ValueError, match="looks like a secret"):
            Form.of(Hidden)

    @table(
        ("text", "asks"),
        [
            ("Enter your password", True),
            ("Your GitHub token?", True),
            ("Please paste the API key here", True),
            ("Type in the PIN of the card", True),
            ("Which file holds the token parser?", False),
            ("Your name. The password page comes later", False),
            ("What is the tokenizer called?", False),
        ],
    )
    def test_a_description_that_asks_for_one_is_refused(self, text, asks):
        assert asks_for_secret(text) is asks
        if asks:
            with pytest.raises(ValueError, match="looks like a secret"):
                Form.of({"properties": {"x": {"type": "string", "description": text}}})

    @table(
        ("name", "is_secret"),
        [
            ("access_token", True),
            ("token", True),
            ("api_key", True),
            ("token_access_type", False),
            ("", False),
        ],
    )
    def test_in_an_address_the_last_words_count(self, name, is_secret):
        assert ends_in_secret(name) is is_secret


class TestWhatComesBack:
    @table(
        ("spec", "content", "value"),
        [
            (bool, {"value": False}, False),
            (int, {"value": 3}, 3),
            (int, {"value": 3.0}, 3),
            (float, {"value": 3}, 3.0),
            (float, {"value": 0.5}, 0.5),
            (str, {"value": ""}, ""),
            (str, {"value": "é\n😀"}, "é\n😀"),
            (Size, {"value": "l"}, Size.LARGE),
            (Level, {"value": "HIGH"}, Level.HIGH),
            (Literal[1, 2], {"value": "2"}, 2),
            (str | None, {}, None),
            (Literal["a", None], {}, None),
            (Literal["a"] | None, {"value": "a"}, "a"),
            (date, {"value": "2030-12-31"}, date(2030, 12, 31)),
            (
                datetime,
                {"value": "2030-12-31T01:02:03Z"},
                datetime(2030, 12, 31, 1, 2, 3, tzinfo=UTC),
            ),
            (list[Size], {"value": ["l", "s"]}, [Size.LARGE, Size.SMALL]),
            (set[Size], {"value": ["l"]}, {Size.LARGE}),
            (tuple[Size, ...], {"value": ()}, ()),
            (
                Release,
                {"version": "1.2", "size": "l", "parts": ["code"], "note": "n", "more": {"hostile": [1]}},
                Release("1.2", 2, Size.LARGE, ["code"], "n"),
            ),
            (Release, {"version": "1.2"}, Release("1.2")),
            (Settings, {"maxRounds": 9, "sizes": ["s"]}, Settings(9, 0.5, frozenset({Size.SMALL}))),
            (Pair[Size], {"first": "l", "second": "s"}, Pair(Size.LARGE, Size.SMALL)),
            (Person, {"name": "A"}, {"name": "A"}),
            (Person, {"name": "A", "born": "2000-01-01"}, {"name": "A", "born": date(2000, 1, 1)}),
            (
                Model,
                {"name": "Al", "level": "2", "sizes": ["l"], "maybe": "l"},
                Model(name="Al", level=Level.HIGH, sizes={Size.LARGE}, maybe=Size.LARGE),
            ),
            (one(type="integer"), {}, {}),
            (one(type="integer", default=3), {}, {"x": 3}),
            (one(enum=[1, 2.5, True]), {"x": "2.5"}, {"x": 2.5}),
            (one(enum=[1, 2.5, True]), {"x": "true"}, {"x": True}),
            ({"type": "string"}, {"value": "a"}, "a"),
        ],
    )
    def test_becomes_what_was_asked_for(self, spec, content, value):
        parsed = Form.of(spec).parse(content)

        assert parsed == value
        assert type(parsed) is type(value)

    @table(
        ("kind", "values", "problem"),
        [
            (str, [5, None, True, ["a"], {}, b"a"], "expected text"),
            (bool, [0, 1, "true", "yes", None, []], "expected true or false"),
            (int, ["3", 3.5, True, None, math.nan, math.inf, 2**63, 1e300, [3]], "expected a whole number"),
            (float, ["3", True, None, math.nan, math.inf, 10**400, -(10**30), {}], "expected a number"),
            (Size, ["x", "SMALL", "Small", Size.SMALL, 0, None, ["s"], {}], "expected one of Small, Large"),
            (Literal[1, 2], [1, "3", "1.0", True], "expected one of 1, 2"),
            (list[Size], ["s", None, {"s": 1}, ["x"], [["s"]], [5], [None]], "expected a list with any of"),
            (list[Size], [["s", "s"], ["s", "l", "s"], ["s"] * 100_000], "expected each choice at most once"),
            (Annotated[list[Size], Meta(min_length=1)], [[]], "expected at least 1 of the choices"),
            (Annotated[list[Size], Meta(max_length=1)], [["s", "l"]], "expected at most 1 of the choices"),
            (Annotated[str, Meta(min_length=2)], ["", "a"], "expected at least 2 characters"),
            (Annotated[str, Meta(max_length=2)], ["abc", "a" * 10**6], "expected at most 2 characters"),
            (Annotated[str, Meta(pattern="^a+$")], ["b", "a\n", ""], r"matches the pattern \^a\+\$"),
            (Annotated[str, Meta(pattern="(a+)+$")], ["a" * 10**6], "expected at most 4096 characters"),
            (Annotated[str, Meta(pattern="(a+)+$")], ["a" * 4000 + "!"], "matches the pattern"),
            (Annotated[int, Meta(ge=1)], [0, -1, -(2**63)], "expected at least 1"),
            (Annotated[int, Meta(lt=9)], [9, 10], "expected at most 8"),
            (Annotated[float, Meta(gt=0)], [0, 0.0, -1], "expected more than 0"),
            (Annotated[float, Meta(lt=1)], [1, 1.5], "expected less than 1"),
            (
                date,
                ["", "today", "2030-13-01", "20301231", "2030-W01-1", "2030-12-31T00:00", "٢٠٣٠-١٢-٣١", 5],
                "expected",
            ),
            (datetime, ["", "2030-12-31", "2030-12-31 01:02", "2030-12-31T99:00", "x" * 10**6], "expected"),
        ],
    )
    def test_is_refused_by_the_name_of_its_field_if_it_does_not_fit(self, kind, values, problem):
        form = Form.of(msgspec.defstruct("Asked", [("x", kind)]))

        for value in values:
            with pytest.raises(FormError, match=f"^x: .*{problem}") as raised:
                form.parse({"x": value})
            assert raised.value.field == "x"
            assert len(str(raised.value)) < 200

    @table(
        ("format", "good", "bad"),
        [
            ("email", ["a@b", "a.b+c@d.example"], ["", "@", "a@", "@b", "a b@c", "a@b\n", "a" * 400 + "@b"]),
            (
                "uri",
                ["https://example.com/a?b#c", "mailto:a@b"],
                ["", "a", "//a", "https://", "https://a b", "a:"],
            ),
            ("date", ["2030-02-28"], ["2030-02-30"]),
            ("date-time", ["2030-02-28T10:00:00", "2030-02-28T10:00:00+02:00"], ["2030-02-28"]),
            ("hostname", ["anything goes", ""], []),
        ],
    )
    def test_the_formats_of_acp_are_checked_and_others_bind_nobody(self, format, good, bad):
        form = Form.of(one(type="string", format=format))

        for text in good:
            assert form.parse({"x": text}) == {"x": text}
        for text in bad:
            with pytest.raises(FormError, match="x: expected"):
                form.parse({"x": text})

    @table("content", [None, 5, "x", [], ["version"], [("version", "1.2")], True])
    def test_has_to_be_an_object(self, content):
        with pytest.raises(FormError, match="expected the values of the form's fields"):
            Form.of(Release).parse(content)

    def test_has_to_have_what_is_required(self):
        with pytest.raises(FormError, match=r"^version: is missing$"):
            Form.of(Release).parse({"count": 3, "Version": "1.2", 5: 6})

    def test_null_is_no_value_even_of_what_is_optional(self):
        with pytest.raises(FormError, match=r"^note: expected text$"):
            Form.of(Release).parse({"version": "1.2", "note": None})

    def test_the_value_is_not_repeated(self):
        with pytest.raises(FormError) as raised:
            Form.of(Size).parse({"value": "hunter2"})
        assert "hunter2" not in str(raised.value)

    def test_what_a_type_checks_itself_counts(self):
        @dataclass
        class Range:
            low: int
            high: int

            def __post_init__(self):
                if self.low > self.high:
                    raise ValueError("low is above high")

        with pytest.raises(FormError, match=r"^low is above high$"):
            Form.of(Range).parse({"low": 2, "high": 1})

    def test_what_a_model_checks_itself_counts_and_names_the_field(self):
        with pytest.raises(FormError, match=r"^name: .*not Bob$") as raised:
            Form.of(Model).parse({"name": "Bob"})
        assert raised.value.field == "name"

    def test_a_type_with_a_field_that_python_sets_alone_gets_no_value_for_it(self):
        assert Form.of(Release).parse({"version": "1.2", "made": "elsewhere"}).made == "here"

    @given(
        st.dictionaries(
            st.sampled_from(["version", "count", "size", "parts", "note"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
                max_leaves=4,
            ),
        )
    )
    def test_nothing_but_a_release_or_an_error_comes_of_anything(self, content):
        try:
            release = Form.of(Release).parse(content)
        except FormError:
            return
        assert msgspec.convert(msgspec.to_builtins(release), Release) == release


class TestWithoutAForm:
    @table(
        ("spec", "titles"),
        [
            (bool, ["Yes", "No"]),
            (Size, ["Small", "Large"]),
            (Literal["a", "b"], ["a", "b"]),
            (one(enum=["p", "q"]), ["p", "q"]),
            (str, None),
            (int, None),
            (list[Size], None),
            (Release, None),
        ],
    )
    def test_a_sole_choice_can_be_asked_for_in_other_ways(self, spec, titles):
        options = Form.of(spec).sole_choice

        assert (options and [option.title for option in options]) == titles

    def test_a_choice_becomes_what_was_asked_for(self):
        @dataclass
        class Wanted:
            size: Size

        form = Form.of(Wanted)
        assert form.choose(form.sole_choice[1]) == Wanted(Size.LARGE)

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            (int, "Please answer with a whole number."),
            (date, "Please answer with a date such as 2030-12-31."),
            (
                Release,
                "Please answer with:\n\n- Version: text. Two numbers\n- Count: a whole number (optional)\n"
                "- Size: one of Small, Large (optional)\n- What else: any of docs, code (optional)\n"
                "- Note: text (optional)",
            ),
        ],
    )
    def test_a_form_can_be_said(self, spec, text):
        assert Form.of(spec).explain() == text
