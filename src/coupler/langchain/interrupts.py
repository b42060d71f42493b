"""Answers the interrupts of a graph: reviews of tool calls, and questions of the author's own.

Reviews (LangChain's HumanInTheLoopMiddleware, all calls of a model at once or each by itself) are
permissions: the session's engine decides, and the user is asked under the call's own id. Any other value is
a question, with a form of the interrupt's schema. A client without forms gets a choice as a dialog; other
questions are put into the chat, one a turn: the turn ends, and the next prompt is the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from langgraph.types import Command, Interrupt, StateSnapshot

from coupler.agent.content import json_value
from coupler.agent.elicitation import ASKED_IN_CHAT, Form, FormError, names_secret, would_ask_in_chat
from coupler.agent.elicitation import ask as ask_user
from coupler.fields.form_fields import TextField
from coupler.langchain.answers import as_spoken, drops_question, how_to_answer, read_answer, read_list
from coupler.langchain.permission import DECISIONS, USUAL_DECISIONS, DecisionName, ToolDecision, permit
from coupler.schema.v1 import ResourceLink, TextContent, TextResourceContents

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall

    from coupler.langchain.current import Current

LONGEST_QUESTION = 4000
"""Characters of a question that is made of a value."""

NO_SECRETS = (
    "the question asks for a secret, and forms are no place for one: "
    "ask for secrets with `acp.current().turn.ask_url(…)`"
)

DROPPED = "The question is dropped, and the agent does not go on. Your next prompt begins anew."

LEFT_OUT = "The agent has asked for text, so it gets what you wrote, and not what you attached."

_QUESTIONS = ("question", "message", "prompt", "query", "description", "title", "text")
_CHOICES = ("options", "choices")

GO_ON, STOP = "Go on", "Stop here"

_NONE: Any = object()
"""Stands for a missing answer."""


async def answers_to(interrupts: Sequence[Interrupt[Any]], current: Current) -> Command[Any] | None:
    """Ask the user, and return what the graph goes on with; None if what is left has no answer now.

    All are asked at the same time, as the calls of a model run at the same time, and those that get an
    answer go on without the others. Only then is a question put into the chat: `current.asked_in_chat` names
    it, and others wait for the next turn, because one prompt answers one question.
    """
    left = [each for each in interrupts if each.id not in current.unanswered]
    for_chat = {each.id: each for each in left if _is_for_chat(each, current)}
    asked = [each for each in left if each.id not in for_chat]
    answers = await _all(_answer(interrupt, current) for interrupt in asked)
    given = {each.id: answer for each, answer in zip(asked, answers, strict=True) if answer is not _NONE}
    current.unanswered.update(each.id for each in asked if each.id not in given)
    if given:
        return Command(resume=given)
    for interrupt in [*for_chat.values()][:1]:
        await ask(interrupt, current)
        current.asked_in_chat = interrupt.id
    return None


async def answer_in_prompt(
    interrupts: Sequence[Interrupt[Any]], asked: object, current: Current
) -> Command[Any] | Literal["again", "dropped"] | None:
    """Return the prompt as the answer to the question in the chat; None if that question is not open.

    A prompt that does not fit is no answer: the user is told what is expected, and the question stays open
    until they answer or drop it.
    """
    interrupt = next((each for each in interrupts if each.id == asked), None)
    if interrupt is None:
        return None
    question, spec = _posed(interrupt)
    form: Form[Any] = Form.of(_form(spec))
    words = "\n\n".join(block.text for block in current.turn.blocks if isinstance(block, TextContent))
    if drops_question(words, question, form):
        await current.turn.say_apart(DROPPED)
        return "dropped"
    try:
        answer = read_prompt(interrupt, words, current.turn.text)
    except FormError as error:
        await current.turn.say_apart(f"That is no answer to the agent's question: {error}.")
        await ask(interrupt, current)
        current.asked_in_chat = interrupt.id
        return "again"
    await _tell_what_is_left_out(form, current)
    return Command(resume={interrupt.id: answer})


async def _tell_what_is_left_out(form: Form[Any], current: Current) -> None:
    """Say that attachments are no part of an answer, as far as they are not text for a field of text."""
    takes_text = _is_text(form)
    taken = (TextContent, ResourceLink) if takes_text else TextContent
    if any(
        not isinstance(block, taken)
        and not (takes_text and isinstance(getattr(block, "resource", None), TextResourceContents))
        for block in current.turn.blocks
    ):
        await current.turn.notice("Attachments are not part of an answer", LEFT_OUT, severity="warning")


async def may_continue(state: StateSnapshot, current: Current) -> bool:
    """Ask the user whether a graph at a breakpoint goes on. At its end nobody is asked.

    Breakpoints (`interrupt_before=`, `interrupt_after=`) carry no question of the author's and want no
    answer, so that a yes is all there is to say.
    """
    waiting = list(dict.fromkeys(_waiting_nodes(state)))
    if not waiting:
        return False
    question = f"The agent has stopped before {', '.join(waiting)}, as its breakpoints say. Is it to go on?"
    answer: object = await ask(Interrupt({"question": question, "options": [GO_ON, STOP]}), current)
    return answer == GO_ON


def _waiting_nodes(state: StateSnapshot) -> Iterator[str]:
    """Yield the nodes that are next; for a graph inside of this one, its own next nodes."""
    inner = {task.name: task.state for task in state.tasks if isinstance(task.state, StateSnapshot)}
    for node in state.next:
        below = inner.get(node)
        if below is not None and below.next:
            yield from _waiting_nodes(below)
        else:
            yield node


async def ask(interrupt: Interrupt[Any], current: Current) -> Any:
    """Ask the user an interrupt's question; returns something that equals no answer if there is none."""
    question, spec = _posed(interrupt)
    form: Form[Any] = Form.of(_form(spec))
    answer = await ask_user(current.turn, question, form, in_chat=how_to_answer(question, form))
    if answer.accepted:
        return _as_typed(interrupt, answer.value)
    if answer.reason not in (None, ASKED_IN_CHAT):
        # Not the user's wish: without a word nobody would know why the turn is over.
        await current.turn.notice("The agent's question has no answer", answer.reason, severity="warning")
    return _NONE


async def _all(works: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run all concurrently and return their results in order; if one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _answer(interrupt: Interrupt[Any], current: Current) -> Coroutine[Any, Any, Any]:
    value = interrupt.value
    if _is_batch(value):
        return _review_batch(value, current)
    if _is_single(value):
        return _review_single(interrupt, current)
    return ask(interrupt, current)


def _is_for_chat(interrupt: Interrupt[Any], current: Current) -> bool:
    is_review = _is_batch(interrupt.value) or _is_single(interrupt.value)
    return not is_review and would_ask_in_chat(current.turn, _form(_posed(interrupt)[1]))


def _is_batch(value: object) -> bool:
    """True if this is HumanInTheLoopMiddleware's request about all calls of a model."""
    if not isinstance(value, Mapping):
        return False
    requests, configs = value.get("action_requests"), value.get("review_configs")
    return (
        isinstance(requests, Sequence)
        and isinstance(configs, Sequence)
        and all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in requests)
        and all(isinstance(each.get("args") or {}, Mapping) for each in requests)
    )


def _is_single(value: object) -> bool:
    """True if this is its request about one call."""
    return (
        isinstance(value, Mapping)
        and value.get("type") == "tool_approval"
        and isinstance(value.get("tool_call_id"), str)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("args"), Mapping)
    )


async def _review_batch(value: Mapping[str, Any], current: Current) -> dict[str, Any]:
    """Return a decision for each request; as they name no call, waiting calls are taken in order."""
    allowed = {
        str(config.get("action_name")): _known(config.get("allowed_decisions") or USUAL_DECISIONS)
        for config in value["review_configs"]
        if isinstance(config, Mapping)
    }
    taken: set[str] = set()
    reviews = []
    for request in value["action_requests"]:
        call = _waiting_call(request, current, taken)
        decisions = allowed.get(request["name"], USUAL_DECISIONS)
        reviews.append(_review(call, decisions, request.get("description"), current))
    return {"decisions": await _all(reviews)}


async def _review_single(interrupt: Interrupt[Any], current: Current) -> dict[str, Any]:
    value = interrupt.value
    name, args = value["name"], dict(value["args"])
    call_id = current.calls.reviewed_key(value["tool_call_id"], name, args)
    call: ToolCall = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
    allowed = _known(_decisions_in(interrupt.response_schema))
    return await _review(call, allowed or USUAL_DECISIONS, value.get("description"), current)


async def _review(
    call: ToolCall, decisions: Sequence[DecisionName], description: object, current: Current
) -> dict[str, Any]:
    tool = current.tools.get(call["name"])
    message = description if isinstance(description, str) and description else None
    decision = await permit(
        current, call, tool, effect="ask", decisions=decisions, message=_own_words(message)
    )
    return _as_told(decision, call, decisions, current)


def _own_words(description: str | None) -> str | None:
    """Return the description, unless it is the usual one, which only repeats the call."""
    is_usual = description is not None and "\n\nTool: " in description and "\nArgs: " in description
    return None if is_usual else description


def _as_told(
    decision: ToolDecision, call: ToolCall, decisions: Sequence[DecisionName], current: Current
) -> dict[str, Any]:
    """Convert a decision to one that the review allows, because the middleware refuses others."""
    if decision.name == "respond":
        return {"type": "respond", "message": decision.text}
    if decision.name == "reject":
        if "reject" in decisions:
            return {"type": "reject", "message": decision.text}
        if "respond" in decisions:
            return {"type": "respond", "message": f"The call was not run: {decision.text}."}
        # The review has no way to say no: it is passed, and the tool is kept from running.
        current.calls.refuse(call["id"] or "", decision.text)
    if decision.name == "edit" or "approve" not in decisions:
        return {"type": "edit", "edited_action": {"name": call["name"], "args": decision.args}}
    return {"type": "approve"}


def _waiting_call(request: Mapping[str, Any], current: Current, taken: set[str]) -> ToolCall:
    """The model's call that a request is about."""
    name, args = request["name"], dict(request.get("args") or {})
    calls = current.calls
    waiting = [each for each in calls.open_ids if each not in taken and calls.name(each) == name]
    exact = [each for each in waiting if calls.arguments(each) == args]
    call_id = next(iter(exact or waiting), f"review_{name}_{len(taken)}")
    taken.add(call_id)
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def _decisions_in(schema: object) -> list[str]:
    """The decisions that a schema for answers lets through, wherever in it they are named."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        kind = properties.get("type") if isinstance(properties, Mapping) else None
        named = [kind["const"]] if isinstance(kind, Mapping) and isinstance(kind.get("const"), str) else []
        return named + [each for part in schema.values() for each in _decisions_in(part)]
    if isinstance(schema, list):
        return [each for part in schema for each in _decisions_in(part)]
    return []


def _known(decisions: object) -> tuple[DecisionName, ...]:
    named = decisions if isinstance(decisions, list | tuple) else ()
    return tuple(cast(DecisionName, each) for each in DECISIONS if each in named)


def _posed(interrupt: Interrupt[Any]) -> tuple[str, Any]:
    """Return the question for the user, and the form or type of its answer."""
    question, spec = _question(interrupt.value), _spec(interrupt)
    try:
        Form.of(spec)
    except ValueError:
        if any(map(names_secret, _names_in(spec))):
            raise ValueError(NO_SECRETS) from None
        # No form can show it: the schema is told instead, and the answer written as JSON.
        return f"{question}\n\nAnswer with JSON of this schema: {_as_json(spec)}", _AsJson
    return question, spec


def _names_in(schema: object) -> Iterator[str]:
    """The names of all fields that a schema has, however deep."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        yield from map(str, properties) if isinstance(properties, Mapping) else ()
        schema = [*schema.values()]
    if isinstance(schema, list):
        for part in schema:
            yield from _names_in(part)


class _AsJson:
    """Marks an answer that is written as JSON."""


def _form(spec: Any) -> Any:
    if spec is not _AsJson:
        return spec
    text = Form.of(str)

    def build(values: dict[str, Any]) -> Any:
        [written] = values.values()
        try:
            return msgspec.json.decode(written)
        except (ValueError, RecursionError):
            raise FormError("expected JSON") from None

    return Form([*text.fields], build)


def _spec(interrupt: Interrupt[Any]) -> Any:
    """Return what is asked for: by the schema, or by choices among the value, or else a text."""
    if isinstance(interrupt.response_schema, Mapping):
        return _without_null(interrupt.response_schema)
    value = interrupt.value
    choices = (
        next((value[key] for key in _CHOICES if key in value), None) if isinstance(value, Mapping) else None
    )
    if isinstance(choices, list | tuple) and choices and all(isinstance(each, str) for each in choices):
        return {"type": "string", "enum": list(dict.fromkeys(choices))}
    return str


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema without null, because the user can decline instead."""
    options = schema.get("anyOf")
    if not isinstance(options, list):
        return schema
    wanted = [each for each in options if isinstance(each, Mapping) and each.get("type") != "null"]
    if len(wanted) != 1 or len(options) != 2:
        return schema
    return {**{key: each for key, each in schema.items() if key != "anyOf"}, **wanted[0]}


def _question(value: object) -> str:
    """The value of an interrupt, as a question to people."""
    asked = _asked_in_words(value)
    if not isinstance(value, Mapping):
        return f"The agent asks: {_as_json(value)}" if asked is None else asked[:LONGEST_QUESTION]
    said = [key for key in _QUESTIONS if asked is not None and value.get(key) == asked][:1]
    rest = {key: each for key, each in value.items() if key not in (*said, *_CHOICES)}
    text = "The agent asks for an answer." if asked is None else asked
    return f"{text}\n\n{_as_json(rest)}"[:LONGEST_QUESTION] if rest else text[:LONGEST_QUESTION]


def _as_json(value: object) -> str:
    text = msgspec.json.format(msgspec.json.encode(json_value(value)), indent=2).decode()
    return text[:LONGEST_QUESTION]


def read_prompt(interrupt: Interrupt[Any], words: str, whole: str) -> Any:
    """Convert a prompt to the interrupt's answer; raises `FormError`.

    `words` is what the user has written, `whole` also has the text of what is attached.
    """
    spec = _posed(interrupt)[1]
    form: Form[Any] = Form.of(_form(spec))
    if spec is _AsJson:
        return _read_json(_spec(interrupt), form, words)
    return _as_typed(interrupt, read_answer(form, whole if _is_text(form) else words))


def _is_text(form: Form[Any]) -> bool:
    return len(form.fields) == 1 and isinstance(form.fields[0], TextField)


def _read_json(schema: Mapping[str, Any], form: Form[Any], words: str) -> Any:
    """Parse JSON, or for a list of simple values their lines or what is between commas."""
    try:
        return read_answer(form, words)
    except FormError:
        items = schema.get("items")
        try:
            item: Form[Any] = Form.of(items if isinstance(items, Mapping) else None)
        except (ValueError, TypeError):
            item = form
        if schema.get("type") != "array" or item is form or not words.strip():
            raise
        return read_list(item, words)


def _as_typed(interrupt: Interrupt[Any], value: Any) -> Any:
    """Return an answer that nobody has declared a type for as it was meant: a no is false."""
    if interrupt.response_schema is not None or not isinstance(value, str):
        return value
    return as_spoken(value, _asked_in_words(interrupt.value))


def _asked_in_words(value: object) -> str | None:
    """Return the question that the author has written; None if there is only a value to look at."""
    if isinstance(value, str) and value.strip():
        return value
    if not isinstance(value, Mapping):
        return None
    asked = next((key for key in _QUESTIONS if isinstance(value.get(key), str) and value[key].strip()), None)
    return None if asked is None else str(value[asked])
