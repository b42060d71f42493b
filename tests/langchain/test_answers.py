"""How plain words in the chat are read as the answer to a graph's question."""

from typing import Any, Literal

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt
from pydantic import BaseModel, TypeAdapter

from coupler.agent.elicitation import FormError
from coupler.langchain.answers import Refusal, read_review, register_refusals
from coupler.langchain.interrupts import read_prompt
from coupler.langchain.permission import arguments_form
from tables import table


class Review(BaseModel):
    decision: Literal["write", "change", "forget"]
    wish: str = ""


class Approval(BaseModel):
    approved: bool
    reason: str


class Settings(BaseModel):
    size: Literal["small", "large"]
    max_count: int = 1
    tags: list[Literal["red", "blue"]] = []


class Task(BaseModel):
    what: str
    urgency: Literal["low", "high"] = "low"


REVIEW, APPROVAL, SETTINGS, TASK = (
    TypeAdapter(each).json_schema() for each in (Review, Approval, Settings, Task)
)
MISFIT = "misfit"


def read(text: str, schema: dict[str, Any] | None = None, value: Any = "?") -> Any:
    try:
        return read_prompt(Interrupt(value, id="1", response_schema=schema), text, text)
    except FormError:
        return MISFIT


@table(
    ("schema", "text", "answer"),
    [
        (None, " me ", "me"),
        (None, "   ", MISFIT),
        ({"type": "string"}, "42", "42"),
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, "`3`.", 3),
        ({"type": "integer"}, "three", MISFIT),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "boolean"}, "maybe", MISFIT),
        ({"type": "string", "enum": ["red", "blue"]}, "BLUE", "blue"),
        ({"type": "string", "enum": ["red", "blue"]}, "green", MISFIT),
        ({"type": "string", "enum": ["approve", "reject"]}, "no", "reject"),
        ({"type": "string", "enum": ["approve", "reject"]}, "ok", "approve"),
        ({"type": "string", "enum": ["reject", "deny"]}, "no", MISFIT),
        ({"type": "array", "items": {"enum": ["red", "blue"]}}, "Red and blue", ["red", "blue"]),
        ({"type": "array", "items": {"enum": ["red", "blue"]}}, "green", MISFIT),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": 1}', {"a": 1}),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "7", {"a": 7}),
        ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, "x", MISFIT),
        ({"type": "array", "items": {"type": "integer"}}, "[1]", [1]),
        ({"type": "array", "items": {"type": "integer"}}, "1, 2", [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, "1", [1]),
        ({"type": "array", "items": {"type": "string"}}, "true", ["true"]),
        ({"type": "array", "items": {"type": "string"}}, "", MISFIT),
        ({"type": "array", "items": {"type": "string"}}, "- a, b\n- c", ["a, b", "c"]),
        ({"type": "array", "items": {"type": "integer"}}, "one", MISFIT),
        ({"type": "array", "items": {"type": "array"}}, "one", MISFIT),
        ({"type": "object", "properties": {"who": {"type": "string"}}}, "Who: Bob", {"who": "Bob"}),
        ({"type": "object", "properties": {"who": {"type": "string"}}}, "Bob: me", {"who": "Bob: me"}),
        ({"type": "object", "properties": {"who": {"type": "string"}}}, "42", {"who": "42"}),
        (REVIEW, "write", {"decision": "write", "wish": ""}),
        (REVIEW, "Decision: Write", {"decision": "write", "wish": ""}),
        (
            REVIEW,
            "**Decision:** change\n- Wish: say: less,\nand more",
            {"decision": "change", "wish": "say: less,\nand more"},
        ),
        (REVIEW, "decision=change, wish=be short", {"decision": "change", "wish": "be short"}),
        (REVIEW, "change\nwish: shorter", {"decision": "change", "wish": "shorter"}),
        (REVIEW, "Change: say you", {"decision": "change", "wish": "say you"}),
        (REVIEW, '{"Decision": "WRITE"}', {"decision": "write", "wish": ""}),
        (REVIEW, "make it so", MISFIT),
        (REVIEW, "wish: shorter", MISFIT),
        (REVIEW, "", MISFIT),
        (APPROVAL, "no, because it is late", {"approved": False, "reason": "because it is late"}),
        (APPROVAL, "no because it is late", {"approved": False, "reason": "because it is late"}),
        (APPROVAL, "yes: fine", {"approved": True, "reason": "fine"}),
        (APPROVAL, "no", MISFIT),
        (APPROVAL, "approved: no\nreason: late", {"approved": False, "reason": "late"}),
        (SETTINGS, "large", {"size": "large", "max_count": 1, "tags": []}),
        (
            SETTINGS,
            "size: small; max count: 3; tags: red",
            {"size": "small", "max_count": 3, "tags": ["red"]},
        ),
        (SETTINGS, "size: small\nmax count: many", MISFIT),
        (TASK, "buy milk, high", {"what": "buy milk, high", "urgency": "low"}),
        (TASK, "what: buy milk\nurgency: high", {"what": "buy milk", "urgency": "high"}),
    ],
)
def test_a_prompt_is_read_as_the_answer_if_it_fits(schema, text, answer):
    assert read(text, schema) == answer


@table(
    ("question", "text", "is_true"),
    [
        ("Send it?", "no", False),
        ("Send it?", "No.", False),
        ("Send it?", "no, because it is late", False),
        ("Send it?", "don't do it", False),
        ("Send it?", "not yet", False),
        ("Send it?", "yes", True),
        ("Send it?", "no problem", True),
        ("Send it?", "nobody minds", True),
        ("Send it?", "change the title", True),
        ("Approve or reject?", "reject: too long", False),
        ("Do you agree? If not, say so.", "n", False),
        ("Please approve the plan.", "no", False),
        ("Continue [y/N]", "n", False),
        ({"question": "Proceed?", "plan": "x"}, "no", False),
        ({"action": "send_email", "to": "bob"}, "no", False),
        (None, "no", False),
        ("What is your last name?", "No", True),
        ("And which one?", "no", True),
        ("Any comments?", "no, it is too long", True),
        ("Enter your name", "No", True),
        ({"question": "Proceed?", "options": ["yes", "no"]}, "no", False),
    ],
)
def test_a_no_to_what_can_be_meant_as_yes_or_no_is_false_and_still_the_text(question, text, is_true):
    answer = read(text, None, question)
    assert (bool(answer), answer) == (is_true, text)


def test_a_no_with_a_declared_type_is_what_the_type_says():
    answer = read("no", {"type": "string"}, "Send it?")
    assert (answer, bool(answer)) == ("no", True)


@pytest.mark.parametrize("allowed", [True, None])
def test_a_no_is_stored_and_read_by_checkpointers_as_it_is(allowed, caplog):
    register_refusals()
    serializer = JsonPlusSerializer(allowed_msgpack_modules=allowed)

    (answer,) = serializer.loads_typed(serializer.dumps_typed([Refusal("No, thanks")]))

    assert (answer, bool(answer), repr(answer)) == ("No, thanks", False, "'No, thanks'")
    assert {"No, thanks": 1}[answer] == 1
    assert not caplog.records


LOOKUP, WRITE = (
    arguments_form(None, args) for args in ({"topic": "tea"}, {"path": "a", "mode": 1, "more": {"x": 1}})
)
ALL = ("approve", "edit", "reject", "respond")


@table(
    ("allowed", "arguments", "text", "answer"),
    [
        (ALL, LOOKUP, "OK", ("approve", "", None)),
        (ALL, LOOKUP, "yes, but later", MISFIT),
        (ALL, LOOKUP, "reject", ("reject", "", None)),
        (ALL, LOOKUP, "no - it is late", ("reject", "it is late", None)),
        (ALL, LOOKUP, "topic: coffee", ("edit", "", {"topic": "coffee"})),
        (ALL, LOOKUP, "edit: topic: coffee", ("edit", "", {"topic": "coffee"})),
        (ALL, LOOKUP, '{"topic": "coffee"}', ("edit", "", {"topic": "coffee"})),
        (ALL, LOOKUP, "edit", MISFIT),
        (ALL, WRITE, "mode: 2\nmore: {}", ("edit", "", {"path": "a", "mode": 2, "more": {}})),
        (ALL, WRITE, "edit path: b", ("edit", "", {"path": "b", "mode": 1, "more": {"x": 1}})),
        (ALL, WRITE, "edit mode: two", MISFIT),
        (ALL, LOOKUP, "respond: reject it", ("respond", "reject it", None)),
        (ALL, LOOKUP, "respond", MISFIT),
        (ALL, LOOKUP, "what is it", MISFIT),
        (("approve", "reject"), LOOKUP, "topic: coffee", MISFIT),
        (("approve", "reject"), LOOKUP, "respond: x", MISFIT),
        (("edit", "respond"), LOOKUP, "no", MISFIT),
        (("respond",), LOOKUP, "my own words", ("respond", "my own words", None)),
    ],
)
def test_a_decision_about_a_call_is_read_from_words(allowed, arguments, text, answer):
    try:
        said = read_review(text, allowed, arguments)
    except FormError:
        said = MISFIT
    assert said == answer
