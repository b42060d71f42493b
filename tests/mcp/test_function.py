"""Functions as tools: what a model is shown of them."""

import functools
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import pytest

from coupler.mcp.functions import read_docstring, tool_function
from tables import table


class Context:
    """Stands for what is not the model's to give."""


@dataclass
class Place:
    city: str


class Guide:
    def way(self, to: Place) -> str:
        """The way."""
        return to.city


def search(
    words: list[str],
    mode: Literal["all", "any"] = "all",
    most: Annotated[int, msgspec.Meta(description="how many", le=10)] = 5,
    place: Place | None = None,
    unknown=None,
) -> None:
    """Search for words.

    Takes its time.

    Args:
        words (list): what to look for,
            one by one
        mode: whether all must be there
        most: not said

    Returns:
        nothing
    """


def test_the_signature_is_the_schema_and_the_docstring_its_words():
    function = tool_function(search, Context)

    assert function.description == "Search for words.\n\nTakes its time.\n\nReturns:\n    nothing"
    properties = function.schema["properties"]
    assert properties["words"] == {
        "description": "what to look for, one by one",
        "type": "array",
        "items": {"type": "string"},
    }
    assert properties["mode"] == {
        "description": "whether all must be there",
        "enum": ["all", "any"],
        "default": "all",
    }
    assert properties["most"] == {"description": "how many", "type": "integer", "maximum": 10, "default": 5}
    assert function.schema["required"] == ["words"]
    assert function.schema["$defs"]["Place"]["required"] == ["city"]


def test_arguments_have_the_types_of_the_signature_and_defaults_are_left_to_it():
    function = tool_function(search, Context)
    assert function.arguments({"words": ["a"], "place": {"city": "Rome"}}) == {
        "words": ["a"],
        "place": Place("Rome"),
    }


def test_methods_and_partial_functions_are_functions():
    assert tool_function(Guide().way, Context).arguments({"to": {"city": "Rome"}}) == {"to": Place("Rome")}
    partial = tool_function(functools.partial(search, most=3), Context)
    assert (partial.name, partial.schema["properties"]["most"]["default"]) == ("search", 3)


def test_the_context_is_not_shown():
    def look(context: Context, at: str) -> None: ...

    function = tool_function(look, Context)
    assert [*function.schema["properties"]] == ["at"]
    assert function.context == ("context",)


def test_names_that_are_not_defined_are_said():
    def look(at: "Nowhere") -> None: ...  # noqa: F821

    with pytest.raises(TypeError, match="signature of the tool `look` cannot be read: name 'Nowhere'"):
        tool_function(look, Context)


@table(
    ("text", "description", "parameters"),
    [
        (None, "", {}),
        ("One line.", "One line.", {}),
        ("A.\n\nArgs:\n    a: x\n    b (int, optional): y: z\n", "A.", {"a": "x", "b": "y: z"}),
        ("A.\n\nParameters:\n  a: x\n\n  b: y\n\nNote: c", "A.\n\nNote: c", {"a": "x", "b": "y"}),
        ("A.\n\nArgs:\n    *words: x\n      and more\n", "A.", {"words": "x and more"}),
        ("Args:\n", "", {}),
    ],
)
def test_docstrings_are_read_with_their_section_of_parameters(text, description, parameters):
    assert read_docstring(text) == (description, parameters)
