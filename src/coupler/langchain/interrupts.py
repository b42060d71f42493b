"""Answers the interrupts of a graph: reviews of tool calls, and questions of the author's own.

Reviews (LangChain's HumanInTheLoopMiddleware, all calls of a model at once or each by itself, and requests as
LangChain's Agent Inbox answers them) are permissions: the session's engine decides, and the user is asked
under the call's own id. Any other value is a question, with a form of the interrupt's schema. A client
without forms gets a choice as a dialog; other questions are put into the chat, one a turn: the turn ends, and
the next prompt is the answer, which `answers` reads. So are reviews that their user wants to say more about
than a dialog has options for. A prompt that does not fit is no answer: the question is asked again, and the
graph does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec
from langgraph.types import Command, Interrupt, StateSnapshot

from coupler.agent.content import json_value
from coupler.agent.elicitation import ASKED_IN_CHAT, Form, FormError, names_secret, would_ask_in_chat
from coupler.agent.elicitation import ask as ask_user
from coupler.agent.permission import NOT_BY_THE_USER
from coupler.fields.form_fields import TextField
from coupler.langchain.answers import (
    DROP,
    as_spoken,
    drops_question,
    how_to_answer,
    read_answer,
    read_list,
    read_review,
)
from coupler.langchain.permission import (
    DECISIONS,
    USUAL_DECISIONS,
    DecisionName,
    ToolDecision,
    approved_by_user,
    arguments_form,
    changed_by_user,
    permit,
)
from coupler.langchain.tool_calls import Nesting
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

DROPPED = "The question was dropped, and the agent has stopped. Your next prompt starts anew."

REVIEW_ANSWERS = {
    "approve": "- `approve`",
    "edit": "- `edit`, and below it the arguments to change, each as `name: value` on a line of its own",
    "reject": "- `reject`, or `reject: reason`",
    "respond": "- `respond: text`, which the model reads as the result; the tool does not run",
}
"""The words for each decision in the chat."""

INBOX_DECISIONS: dict[str, DecisionName] = {
    "allow_accept": "approve",
    "allow_edit": "edit",
    "allow_ignore": "reject",
    "allow_respond": "respond",
}
"""The decisions that the config of an Agent Inbox request allows."""

MADE_UP = "review_"
"""Prefix of the ids of calls that are shown for a review and that no model has made."""

LONGEST_ARGUMENT = 500
"""Characters of an argument that a question in the chat shows."""

HOW_TO_LIST = "Write each on a line of its own, or all with commas between them."

LEFT_OUT = "The agent has asked for text, so it gets what you wrote, and not what you attached."

_QUESTIONS = ("question", "message", "prompt", "query", "description", "title", "text")
_CHOICES = ("options", "choices")

GO_ON, STOP = "Go on", "Stop here"

_NONE: Any = object()
"""Stands for a missing answer."""


async def answers_to(interrupts: Sequence[Interrupt[Any]], current: Current) -> Command[Any] | None:
    """Ask the user, and return what the graph continues with; None if what is left has no answer now.

    All are asked at the same time, as the calls of a model run at the same time, and those that get an
    answer go on without the others. Only then is a question put into the chat: `current.asked_in_chat` names
    it, and others wait for the next turn, because one prompt answers one question.
    """
    left = [each for each in interrupts if each.id not in current.unanswered]
    reviews = current.chat_reviews
    for_chat = {each.id: each for each in left if each.id in reviews or _is_for_chat(each, current)}
    asked = [each for each in left if each.id not in for_chat]
    answers = await _all(_answer(interrupt, current) for interrupt in asked)
    given = {each.id: answer for each, answer in zip(asked, answers, strict=True) if answer is not _NONE}
    current.unanswered.update(each.id for each in asked if each.id not in given and each.id not in reviews)
    if given:
        return Command(resume=given)
    for interrupt in [each for each in left if each.id in for_chat or each.id in reviews][:1]:
        if interrupt.id in reviews:
            await _ask_review(interrupt, reviews[interrupt.id], current)
        else:
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
    asked_id = asked["id"] if isinstance(asked, Mapping) else asked
    interrupt = next((each for each in interrupts if each.id == asked_id), None)
    if interrupt is None:
        return None
    words = "\n\n".join(block.text for block in current.turn.blocks if isinstance(block, TextContent))
    if isinstance(asked, Mapping):
        current.chat_reviews.update((each["id"], each) for each in asked.get("later", ()))
        if words.strip().casefold() == DROP:
            await current.turn.say_apart(DROPPED)
            return "dropped"
        return await _review_in_prompt(interrupt, asked, words, current)
    question, form = _posed(interrupt)
    if drops_question(words, question, form):
        await current.turn.say_apart(DROPPED)
        return "dropped"
    try:
        answer = read_prompt(interrupt, words, current.turn.text)
    except FormError as error:
        problem = error.message if len(form.fields) == 1 else error
        await current.turn.say_apart(f"That is no answer to the agent's question: {problem}.")
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
    """Ask the user whether a graph at a breakpoint continues. At its end nobody is asked.

    Breakpoints (`interrupt_before=`, `interrupt_after=`) carry no question of the author's and want no
    answer, so that a yes is all there is to say.
    """
    waiting = list(dict.fromkeys(_waiting_nodes(state)))
    if not waiting:
        return False
    question = (
        f"The agent has stopped before {', '.join(waiting)}, as its breakpoints say. Should it continue?"
    )
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
    question, form = _posed(interrupt)
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
    return _review(interrupt, current) if _is_review(interrupt.value) else ask(interrupt, current)


def _is_for_chat(interrupt: Interrupt[Any], current: Current) -> bool:
    return not _is_review(interrupt.value) and would_ask_in_chat(current.turn, _posed(interrupt)[1])


def _is_review(value: object) -> bool:
    return _is_batch(value) or _is_single(value) or bool(_inbox_requests(value))


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


def _inbox_requests(value: object) -> list[Mapping[str, Any]]:
    """Return the requests of a value that Agent Inbox would show: one, or a list; none if it is another."""
    requests = value if isinstance(value, list | tuple) else [value]
    return [*requests] if all(map(_is_inbox_request, requests)) else []


def _is_inbox_request(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    action, config = value.get("action_request"), value.get("config")
    return (
        isinstance(action, Mapping)
        and isinstance(action.get("action"), str)
        and isinstance(action.get("args"), Mapping)
        and isinstance(config, Mapping)
        and any(config.get(name) is True for name in INBOX_DECISIONS)
    )


class _Review(NamedTuple):
    """A call that is reviewed, and the decisions that its author allows."""

    call: ToolCall
    allowed: tuple[DecisionName, ...]
    description: str | None

    def told(self, decision: ToolDecision, current: Current) -> dict[str, Any]:
        return _as_told(decision, self.call, self.allowed, current)


def _reviews(interrupt: Interrupt[Any], current: Current, ids: Sequence[str] | None = None) -> list[_Review]:
    """Return what an interrupt wants reviewed; `ids` are those of the calls, if they were found before."""
    value = interrupt.value
    if _is_single(value):
        name, args = value["name"], dict(value["args"])
        call_id = ids[0] if ids else current.calls.reviewed_key(value["tool_call_id"], name, args)
        call: ToolCall = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
        allowed = _known(_decisions_in(interrupt.response_schema)) or USUAL_DECISIONS
        return [_Review(call, allowed, _own_words(value.get("description")))]
    if requests := _inbox_requests(value):
        return _inbox_reviews(requests, current, ids)
    by_name = {
        str(config.get("action_name")): _known(config.get("allowed_decisions") or USUAL_DECISIONS)
        for config in value["review_configs"]
        if isinstance(config, Mapping)
    }
    taken: set[str] = set()
    found = []
    for at, request in enumerate(value["action_requests"]):
        call = _waiting_call(request, current, taken)  # as the requests name no call, these are in order
        if ids:
            call["id"] = ids[at]
        allowed = by_name.get(request["name"], USUAL_DECISIONS)
        found.append(_Review(call, allowed, _own_words(request.get("description"))))
    return found


def _inbox_reviews(
    requests: Sequence[Mapping[str, Any]], current: Current, ids: Sequence[str] | None
) -> list[_Review]:
    taken: set[str] = set()
    found = []
    for at, request in enumerate(requests):
        action, config = request["action_request"], request["config"]
        call = _waiting_call({"name": action["action"], "args": action["args"]}, current, taken)
        if ids:
            call["id"] = ids[at]
        allowed = _known([name for key, name in INBOX_DECISIONS.items() if config.get(key) is True])
        found.append(_Review(call, allowed, _own_words(request.get("description"))))
    return found


async def _review(interrupt: Interrupt[Any], current: Current) -> Any:
    """Ask about all calls of a review at once; `_NONE` if the user will decide in the chat."""
    reviews = _reviews(interrupt, current)
    decisions = await _all(
        permit(
            current,
            each.call,
            current.tools.get(each.call["name"]),
            effect="ask",
            decisions=each.allowed,
            message=each.description,
            more_to_say=True,
        )
        for each in reviews
    )
    if any(decision.is_open for decision in decisions):
        made = [None if each.is_open else [each.name, each.args, each.text] for each in decisions]
        ids = [each.call["id"] or "" for each in reviews]
        around = [[[*step] for step in current.calls.nesting(each)] for each in ids]
        current.chat_reviews[interrupt.id] = {
            "id": interrupt.id,
            "calls": ids,
            "around": around,
            "made": made,
        }
        return _NONE
    return _told(interrupt, reviews, decisions, current)


def _told(
    interrupt: Interrupt[Any], reviews: list[_Review], decisions: list[ToolDecision], current: Current
) -> dict[str, Any] | list[dict[str, Any]]:
    made = [*zip(reviews, decisions, strict=True)]
    if _inbox_requests(interrupt.value):
        for review, decision in made:
            _settle_if_made_up(review.call, decision, current)
        return [_as_told_by_inbox(review, decision) for review, decision in made]
    told = [review.told(decision, current) for review, decision in made]
    return told[0] if _is_single(interrupt.value) else {"decisions": told}


def _as_told_by_inbox(review: _Review, decision: ToolDecision) -> dict[str, Any]:
    """Convert a decision to what Agent Inbox would send. A no is never a yes, also where none is allowed."""
    if decision.name == "respond":
        return {"type": "response", "args": decision.text}
    if decision.name == "reject":
        reason = decision.text or NOT_BY_THE_USER
        if "respond" in review.allowed and ("reject" not in review.allowed or reason != NOT_BY_THE_USER):
            return {"type": "response", "args": f"The call was not run: {reason}."}
        return {"type": "ignore", "args": None}
    if decision.name == "edit" or "approve" not in review.allowed:
        return {"type": "edit", "args": {"action": review.call["name"], "args": decision.args}}
    return {"type": "accept", "args": None}


def _settle_if_made_up(call: ToolCall, decision: ToolDecision, current: Current) -> None:
    """End a call that was only shown for its review: a node has asked, and no tool will tell its end."""
    key = call["id"] or ""
    if key.startswith(MADE_UP) and current.calls.is_open(key):
        if decision.name == "reject":
            current.calls.settle(key, "failed", reason=decision.text or NOT_BY_THE_USER)
        else:
            current.calls.settle(key, "completed", reason=decision.text or None)


async def _ask_review(interrupt: Interrupt[Any], open_review: dict[str, Any], current: Current) -> None:
    """Put the first call that nobody has decided about into the chat."""
    at = open_review["made"].index(None)
    call, allowed, description = _reviews(interrupt, current, open_review["calls"])[at]
    tool = current.tools.get(call["name"])
    title = current.presentation.title(call["name"], tool, call["args"])
    written = [f"- {name}: {_as_written(value)}" for name, value in call["args"].items()]
    ways = [way for name, way in REVIEW_ANSWERS.items() if name in allowed]
    parts = (description, title, "\n".join(written), "Please answer with one of these:", "\n".join(ways))
    await current.turn.say_apart("\n\n".join([*filter(None, parts), f"Write `{DROP}` to drop the question."]))
    later = [review for each, review in current.chat_reviews.items() if each != interrupt.id]
    current.asked_in_chat = {**open_review, "later": later}


async def _review_in_prompt(
    interrupt: Interrupt[Any], asked: Mapping[str, Any], words: str, current: Current
) -> Command[Any] | Literal["again", "dropped"]:
    """Read the prompt as the decision about a call; once all are decided about, the graph continues."""
    made = [*asked["made"]]
    at = made.index(None)
    reviews = _reviews(interrupt, current, asked["calls"])
    call, allowed, _ = reviews[at]
    tool = current.tools.get(call["name"])
    try:
        said = read_review(words, allowed, arguments_form(tool, call["args"]))
    except FormError as error:
        await current.turn.say_apart(f"That is no answer to the agent's question: {error}.")
        await _ask_review(interrupt, dict(asked), current)
        return "again"
    args = call["args"] if said.args is None else said.args
    made[at] = [said.name, args, said.text]
    if None in made:
        await _ask_review(interrupt, {**asked, "made": made}, current)
        return "again"
    decided = [ToolDecision(name, args, text) for name, args, text in made]
    around = [[Nesting(*step) for step in steps] for steps in asked.get("around", [[]] * len(made))]
    decisions = [
        await _take_over(each.call, nesting, decision, current)
        for each, nesting, decision in zip(reviews, around, decided, strict=True)
    ]
    return Command(resume={interrupt.id: _told(interrupt, reviews, decisions, current)})


async def _take_over(
    call: ToolCall, nesting: Sequence[Nesting], decision: ToolDecision, current: Current
) -> ToolDecision:
    """Let a call run, or not, as the user decided in the chat, or in a dialog before it."""
    key, tool = call["id"] or "", current.tools.get(call["name"])
    if decision.runs:
        parent = current.calls.announce_nesting(nesting)
        current.calls.announce(key, call["name"], dict(call["args"]), parent=parent)
    if decision.name == "edit":
        return await changed_by_user(current, key, call, tool, decision.args)
    if decision.name == "approve":
        return approved_by_user(current, key, call)
    return decision


def _as_written(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(json_value(value)).decode()
    return text if len(text) <= LONGEST_ARGUMENT else f"{text[:LONGEST_ARGUMENT]}…"


def _own_words(description: object) -> str | None:
    """Return the description, unless it is the usual one, which only repeats the call."""
    if not isinstance(description, str) or not description:
        return None
    return None if "\n\nTool: " in description and "\nArgs: " in description else description


def _as_told(
    decision: ToolDecision, call: ToolCall, decisions: Sequence[DecisionName], current: Current
) -> dict[str, Any]:
    """Convert a decision to one that the review allows, because the middleware refuses others."""
    if decision.name == "respond":
        return {"type": "respond", "message": decision.text}
    if decision.name == "reject":
        if "reject" in decisions:
            return {"type": "reject", "message": decision.text or NOT_BY_THE_USER}
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
    call_id = next(iter(exact or waiting), None)
    if call_id is None:
        call_id = f"{MADE_UP}{name}_{len(taken)}"
        calls.free(call_id)  # the same may have been asked before
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


def _posed(interrupt: Interrupt[Any]) -> tuple[str, Form[Any]]:
    """Return the question for the user, and the form of its answer."""
    question, spec = _question(interrupt.value), _spec(interrupt)
    try:
        return question, Form.of(spec)
    except ValueError:
        if any(map(names_secret, _names_in(spec))):
            raise ValueError(NO_SECRETS) from None
        item = _item_form(spec)
        how = f"Answer with JSON of this schema: {_as_json(spec)}" if item is None else HOW_TO_LIST
        return f"{question}\n\n{how}", _WrittenForm(item)


def _names_in(schema: object) -> Iterator[str]:
    """The names of all fields that a schema has, however deep."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        yield from map(str, properties) if isinstance(properties, Mapping) else ()
        schema = [*schema.values()]
    if isinstance(schema, list):
        for part in schema:
            yield from _names_in(part)


def _item_form(schema: Mapping[str, Any]) -> Form[Any] | None:
    """Return the form of one item, if a schema is that of a list of simple values."""
    items = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, Mapping) or "properties" in items:
        return None
    try:
        return Form.of(items)
    except ValueError:
        return None


class _WrittenForm(Form[Any]):
    """A text that is JSON, or else a list of items; its question says how it is written."""

    def __init__(self, item: Form[Any] | None) -> None:
        super().__init__([*Form.of(str).fields], self._read)
        self._item = item

    def explain(self) -> str:
        return ""

    def _read(self, values: dict[str, Any]) -> Any:
        [written] = values.values()
        try:
            value = msgspec.json.decode(written)
        except (ValueError, RecursionError):
            if self._item is None:
                raise FormError("expected JSON") from None
            value = None
        if self._item is None or isinstance(value, list):
            return value
        return read_list(self._item, written)


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
    form = _posed(interrupt)[1]
    return _as_typed(interrupt, read_answer(form, whole if _is_text(form) else words))


def _is_text(form: Form[Any]) -> bool:
    return len(form.fields) == 1 and isinstance(form.fields[0], TextField) and type(form) is Form


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
