"""A tool call's arguments as a form: what can be changed, and what is refused."""

from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool

from coupler.fields.form_fields import FormError
from coupler.langchain.permission import arguments_form


@tool
def order(item: str, count: int = 1, token: str = "", note: str | None = None) -> str:
    """Order something."""
    return item


def defaults(tool: BaseTool | None, args: dict[str, Any]) -> dict[str, Any]:
    form = arguments_form(tool, args)
    assert form is not None
    return {field.name: field.default for field in form.fields}


def test_fields_come_from_the_tool_and_values_from_the_model_and_secrets_are_left_out():
    form = arguments_form(order, {"item": "tea", "token": "t"})

    assert form is not None
    assert [(field.name, field.required) for field in form.fields] == [
        ("item", True),
        ("count", False),
        ("note", False),
    ]
    assert form.parse({"item": "coffee"}) == {"item": "coffee", "count": 1, "token": "t"}


def test_what_the_model_wrote_and_does_not_fit_is_not_filled_in():
    form = arguments_form(order, {"item": "tea", "count": "many"})

    assert form is not None
    assert form.parse({"item": "tea", "count": 2})["count"] == 2


def test_what_the_tool_would_refuse_is_asked_again():
    @tool
    def pick(sizes: list[int]) -> str:
        """Pick."""
        return ""

    form = arguments_form(pick, {"sizes": [1]})

    assert form is not None
    assert form.parse({"sizes": "[2, 3]"}) == {"sizes": [2, 3]}
    with pytest.raises(FormError, match="sizes"):
        form.parse({"sizes": '["a"]'})


def test_a_tool_that_is_not_known_has_the_fields_that_the_model_wrote():
    args = {"text": "a", "count": 1, "share": 0.5, "really": True, "deep": {"a": [1]}}

    assert defaults(None, args) == {**args, "deep": '{"a":[1]}'}


def test_a_tool_with_a_json_schema_has_its_fields():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    weather = StructuredTool.from_function(
        lambda **_: "", name="weather", description="Tell the weather.", args_schema=schema
    )

    assert defaults(weather, {"city": "Rome"}) == {"city": "Rome"}


def test_a_tool_without_arguments_has_no_form():
    @tool
    def now() -> str:
        """Tell the time."""
        return ""

    assert arguments_form(now, {}) is None
    assert arguments_form(None, {"password": "x"}) is None
