"""Settings with comments: what is changed is changed, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.cli.editor.jsonc import MAX_DEPTH, JsoncDocument, JsoncError
from tables import table

NAMES = st.text('abc"\\ é{}/*,', max_size=4)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // so\n", " /* so, {} */ ", "\r\n"])


@st.composite
def texts(draw: st.DrawFn, value: Any = None) -> tuple[dict[str, Any], str]:
    """An object, and a way that a person could have written it."""
    value = draw(OBJECTS)

    def gap() -> str:
        return draw(GAPS)

    def written(each: Any) -> str:
        if isinstance(each, dict):
            members = [
                f"{gap()}{json.dumps(name)}{gap()}:{gap()}{written(one)}{gap()}" for name, one in each.items()
            ]
            opening, closing = "{", "}"
        elif isinstance(each, list):
            members = [f"{gap()}{written(one)}{gap()}" for one in each]
            opening, closing = "[", "]"
        else:
            return json.dumps(each, ensure_ascii=draw(st.booleans()))
        last = "," if members and draw(st.booleans()) else ""
        return f"{opening}{','.join(members)}{last}{gap()}{closing}"

    return value, f"{gap()}{written(value)}{gap()}"


@given(texts())
def test_what_is_written_is_what_is_read(given_text):
    value, text = given_text
    assert JsoncDocument(text).get(()) == value


@given(texts(), st.lists(NAMES, min_size=1, max_size=3), VALUES)
def test_a_change_is_made_and_everything_else_stays(given_text, path, new):
    value, text = given_text
    expected = json.loads(json.dumps(value))
    place = expected
    for name in path[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            with pytest.raises(JsoncError, match="should be an object"):
                JsoncDocument(text).changed(path, new, "  ")
            return
    is_there = path[-1] in place
    place[path[-1]] = new

    changed = JsoncDocument(text).changed(path, new, "  ")

    assert JsoncDocument(changed.text).get(()) == expected
    assert changed.changed(path, new, "  ").text == changed.text
    if not is_there:
        assert is_within("".join(text.split()), "".join(changed.text.split()))


def is_within(part: str, whole: str) -> bool:
    """Whether all of a text is in another in the same order, with only insertions between."""
    letters = iter(whole)
    return all(letter in letters for letter in part)


@table(
    ("before", "after"),
    [
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("// none yet", '// none yet\n{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"z": 1}', '{"z": 1,\n  "a": {\n    "b": 1\n  }\n}'),
        ('{\n\t"z": 1\n}\n', '{\n\t"z": 1,\n\t"a": {\n\t\t"b": 1\n\t}\n}\n'),
        (
            '{\r\n    "z": 1 // one\r\n}',
            '{\r\n    "z": 1, // one\r\n    "a": {\r\n        "b": 1\r\n    }\r\n}',
        ),
        ('\ufeff{\n  "a": {\n    // none\n  },\n}', '\ufeff{\n  "a": {\n    // none\n    "b": 1\n  },\n}'),
        ('{"a": {"b": 2}, "a": {"b": 3 /* three */}}', '{"a": {"b": 2}, "a": {"b": 1 /* three */}}'),
        ('{\n  "a": {"c": [1, 2,],},\n}', '{\n  "a": {"c": [1, 2,],\n    "b": 1,\n  },\n}'),
    ],
)
def test_a_change_is_written_as_the_settings_are(before, after):
    assert JsoncDocument(before).changed(("a", "b"), 1, "  ").text == after


@table(
    ("text", "problem"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', "line 2, column 9: a comma is missing here"),
        ('{"a": }', "line 1, column 7: there should be a value, not '}'"),
        ("{'a': 1}", "line 1, column 2: there should be a name in double quotes"),
        ('{"a" 1}', "line 1, column 6: there should be a `:` after the name 'a'"),
        ('{"a": "b\n"}', "line 1, column 7: this text in quotes does not end on its line"),
        ('{"a": "\\x"}', "line 1, column 7: this text in quotes has a `\\` that means nothing"),
        ('{"a": [1 2]}', "line 1, column 9: a comma or `]` is missing here"),
        ("{\n/* so", "line 2, column 1: this comment does not end"),
        ("{} {}", "line 1, column 4: there is something after the end"),
        ('{"a": tru}', "line 1, column 7: there should be a value"),
        ("{", "line 1, column 2: there should be a name"),
        ("5", "line 1, column 1: there should be an object"),
        ("[" * (MAX_DEPTH + 2), "nested more than"),
        ('{"a": 1', "line 1, column 8: a comma is missing here"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(text, problem):
    with pytest.raises(JsoncError) as caught:
        JsoncDocument(text)
    assert problem in str(caught.value)
