"""Repairs conversations that a model's server refuses, so that no message makes an end of a session.

Servers differ in what they take: some refuse an empty message, an image, a call of a tool that is not offered
any more, two messages of the user in a row. Empty messages are never sent (`sendable`). What a server refuses
all the same is mended step by step, beginning with what its error names, and the model is asked again after
each step (`RefusedRequests`). The conversation is stored as it was accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents.middleware.types import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command as StateChange

from coupler.coder.model.choice import NO_TOOLS
from coupler.coder.model.reasoning import with_reasoning, without_reasoning
from coupler.coder.model.settings import (
    REFUSALS,
    refused_arguments,
    settings_in,
    without_arguments,
)
from coupler.coder.tools.outputs import one_line, without_middle
from coupler.langchain.checkpoints import repairs
from coupler.langchain.content import MEDIA_BLOCKS
from coupler.langchain.current import current, send_warning
from coupler.langchain.errors import is_refused_request, stop_of_message
from coupler.langchain.messages import PerMessage
from coupler.langchain.middleware import ModelHandler, names_of, with_text

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

NO_ANSWER, NO_OUTPUT, NO_PROMPT = "(no answer)", "(no output)", "(nothing)"
"""Texts in the place of empty messages of a model, a tool and the user."""

LONGEST_REASON = 300
"""Characters of a server's reason in a notice."""

SHORT_RESULT = 2_000
"""Characters that are left of a tool's result when results are shortened."""

USUAL_MOST_TOOLS = 128
"""Tools that servers take which limit their number and do not say how."""

SOURCE = "lc_source"
"""LangChain's key for where a message comes from that nobody has said."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of tools that all servers take."""

_TOOLS_REFUSED = re.compile(
    r"too many (tools|functions)|schema"
    r"|\b(tools|functions)\b.{0,80}(maximum|at most|too long|too many|limit)",
    re.IGNORECASE,
)
"""Found in the reasons of servers that do not take the tools that are offered."""

_SETTINGS_REFUSED = re.compile(
    r"(unsupported|unknown|unrecogni[sz]ed|unexpected|invalid|extra).{0,40}(parameter|argument|field|input|option)"
    r"|not permitted|not supported",
    re.IGNORECASE,
)
"""Found in the reasons of servers that refuse a setting without its name."""

_REASONING_MISSING = re.compile(
    r"reasoning_content.{0,80}(missing|must be|required)|missing.{0,40}reasoning_content", re.IGNORECASE
)
"""Found in the reasons of servers that want the reasoning of every answer back."""

Tools = Sequence["BaseTool | dict[str, Any]"]


class _Sent(NamedTuple):
    """The part of a request that repairs change."""

    messages: list[AnyMessage]
    tools: Tools
    settings: dict[str, Any] = {}  # noqa: RUF012
    """Arguments of the client, with the settings of the model among them."""


class _Repair(NamedTuple):
    """A change of a request that may make a server accept it."""

    apply: Callable[[_Sent, str], _Sent]
    """Returns the request as it is to be sent, given the server's reason; equal if there is nothing to do."""
    done: str
    """Tells the user what was done."""
    words: re.Pattern[str]
    """Found in the reasons of servers that this repair is for."""


class RefusedRequests(AgentMiddleware[Any, Any, Any]):
    """Sends what every server takes, and mends what one refuses."""

    def __init__(self) -> None:
        super().__init__()
        self._sendable = PerMessage(sendable)
        self._without_tools: set[str] = set()
        """Tools that the server does not take."""
        self._without_settings: dict[int, set[str]] = {}
        """Settings that the servers of models do not take, by the ids of the models' clients."""
        self._without_reasoning: set[int] = set()
        """Models, by the ids of their clients, whose servers refuse the reasoning that they have sent."""

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Call the model; if its server refuses the request, mend it and call the model again."""
        messages = self._sendable(request.messages)
        settings = without_arguments(
            request.model_settings, self._without_settings.get(id(request.model), ())
        )
        if id(request.model) in self._without_reasoning:
            messages = [*map(without_reasoning, messages)]
        tools = [tool for tool in request.tools if not names_of([tool]) & self._without_tools]
        request = request.override(messages=messages, tools=tools, model_settings=settings)
        try:
            response = await handler(request)
        except Exception as error:
            if not _can_be_mended(error, request.model_settings):
                raise
            return await self._ask_again(request, handler, error)
        _tell_if_empty(response)
        return response

    async def _ask_again(
        self,
        request: ModelRequest[Any],
        handler: ModelHandler,
        error: Exception,
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Mend the request until it is accepted; raises the last refusal if nothing is left to mend."""
        sent = _Sent([*request.messages], request.tools, request.model_settings)
        left = [*REPAIRS]
        while (found := _next_repair(left, sent, str(error))) is not None:
            repair, sent = found
            left.remove(repair)
            _tell(error, repair.done)
            try:
                response = await handler(
                    request.override(
                        messages=sent.messages, tools=[*sent.tools], model_settings=sent.settings
                    )
                )
            except Exception as another:
                if not is_refused_request(another) and not _can_be_mended(another, sent.settings):
                    raise
                error = another
                continue
            self._without_tools |= names_of(request.tools) - names_of(sent.tools)
            if repair.apply is _without_settings:
                refused = settings_in(request.model_settings) - settings_in(sent.settings)
                self._without_settings.setdefault(id(request.model), set()).update(refused)
            if repair.apply is _plain and [*map(without_reasoning, request.messages)] != request.messages:
                # The next answer would have it again, and be refused again.
                self._without_reasoning.add(id(request.model))
            _tell_if_empty(response)
            return _with_change(response, request, sent.messages)
        raise error


def _can_be_mended(error: Exception, settings: Mapping[str, Any]) -> bool:
    """True if a request was refused for something that may be left out or said otherwise."""
    if refused_arguments(settings, str(error)):
        # LangChain's client of Anthropic refuses some settings itself, with this error.
        return is_refused_request(error) or isinstance(error, ValueError)
    return is_refused_request(error) and NO_TOOLS.search(str(error)) is None


def _next_repair(left: Sequence[_Repair], sent: _Sent, reason: str) -> tuple[_Repair, _Sent] | None:
    """Return the first repair that changes something, those first that the server's reason names."""
    for repair in sorted(left, key=lambda repair: repair.words.search(reason) is None):
        mended = repair.apply(sent, reason)
        if (
            len(mended.tools) != len(sent.tools)
            or mended.messages != sent.messages
            or mended.settings != sent.settings
        ):
            return repair, mended
    return None


def _with_change(
    response: ModelResponse[Any], request: ModelRequest[Any], messages: Sequence[AnyMessage]
) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    """Have the conversation stored as it was accepted, with the answer behind it."""
    if messages == request.messages:
        return response
    # The answer is stated again, because this change comes after it.
    stored = [RemoveMessage(REMOVE_ALL_MESSAGES), *messages, *response.result]
    return ExtendedModelResponse(response, StateChange(update={"messages": stored}))


def _tell(error: Exception, done: str) -> None:
    served = current()
    if served is not None and served.when_retried is not None:
        reason = one_line(str(error), LONGEST_REASON)
        served.call_on_loop(served.when_retried, None, error, f"({reason}) {done}")


def _tell_if_empty(response: ModelResponse[Any]) -> None:
    served = current()
    answer = response.result[-1] if response.result else None
    if served is None or not isinstance(answer, AIMessage) or not _is_empty_answer(answer):
        return
    if stop_of_message(answer) is None and served.call_id is None:
        remark = "It said nothing and called no tool. Prompt again, or choose another model."
        served.call_on_loop(send_warning, served.turn, "The model's answer is empty", remark)


def sendable(message: BaseMessage) -> Any:
    """Return a message that no server refuses for being empty; the same object if it is not."""
    if isinstance(message, AIMessage):
        return with_text(message, NO_ANSWER) if _is_empty_answer(message) else message
    if isinstance(message, ToolMessage) and _is_blank(message):
        return message.model_copy(update={"content": NO_OUTPUT})
    if isinstance(message, HumanMessage) and _is_blank(message):
        return message.model_copy(update={"content": NO_PROMPT})
    return message


def _is_empty_answer(message: AIMessage) -> bool:
    return not message.tool_calls and not message.invalid_tool_calls and _is_blank(message)


def _is_blank(message: BaseMessage) -> bool:
    blocks = _blocks(message)
    return not str(message.text).strip() and not any(_is_media(each) or _is_search(each) for each in blocks)


def _blocks(message: BaseMessage) -> list[Any]:
    content: Any = message.content
    return content if isinstance(content, list) else []


def _is_search(part: Any) -> bool:
    """True for the calls and results of tools that a provider has run itself."""
    kinds = ("server_tool_use", "web_search_tool_result", "web_search_call")
    return isinstance(part, dict) and part.get("type") in kinds


def _is_media(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in MEDIA_BLOCKS


def _without_settings(sent: _Sent, reason: str) -> _Sent:
    """Leave out the settings of the model that the server names, or all of them."""
    if failing := refused_arguments(sent.settings, reason):
        return sent._replace(settings=without_arguments(sent.settings, failing))
    is_about_them = _SETTINGS_REFUSED.search(reason) is not None
    names = settings_in(sent.settings) if is_about_them else ()
    return sent._replace(settings=without_arguments(sent.settings, names))


def _with_pairs(sent: _Sent, _: str) -> _Sent:
    """Put each call's one result right behind it, and drop results without a call."""
    messages = sent.messages
    added = repairs(messages)
    complete = added[1:] if added and isinstance(added[0], RemoveMessage) else [*messages, *added]
    results: dict[int, list[ToolMessage]] = {}
    asking, open_ids = -1, set[str]()
    for at, message in enumerate(complete):
        if isinstance(message, AIMessage):
            calls: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
            asking, open_ids = at, {str(call["id"]) for call in calls if call.get("id")}
        elif isinstance(message, ToolMessage) and message.tool_call_id in open_ids:
            open_ids.discard(message.tool_call_id)
            results.setdefault(asking, []).append(message)
    paired: list[Any] = []
    for at, message in enumerate(complete):
        if not isinstance(message, ToolMessage):
            paired += [message, *results.get(at, ())]
    return sent._replace(messages=paired)


def _without_unknown_tools(sent: _Sent, _: str) -> _Sent:
    """Turn calls of tools that are not offered, or have names that servers refuse, into text."""
    offered = names_of(sent.tools)
    return sent._replace(
        messages=_as_text(sent.messages, lambda name: name not in offered or not _TOOL_NAME.fullmatch(name))
    )


def _in_turns(sent: _Sent, _: str) -> _Sent:
    """Join messages of one side in a row, and have the user begin."""
    joined: list[Any] = []
    for message in sent.messages:
        if isinstance(message, SystemMessage):
            message = HumanMessage(message.content, id=message.id)
        before = joined[-1] if joined else None
        is_answer = isinstance(message, AIMessage) and isinstance(before, AIMessage)
        is_prompt = isinstance(message, HumanMessage) and isinstance(before, HumanMessage)
        if before is not None and (is_prompt or (is_answer and not before.tool_calls)):
            joined[-1] = message.model_copy(update={"content": joined_content(before, message)})
        elif joined or isinstance(message, HumanMessage):
            joined.append(message)
    return sent._replace(messages=joined)


def joined_content(first: BaseMessage, second: BaseMessage) -> Any:
    """Return the content of two messages of one side as that of one message."""
    if isinstance(first.content, str) and isinstance(second.content, str):
        return f"{first.content}\n\n{second.content}"
    # Not LangChain's standard blocks: among those are the calls, which stand beside the content.
    return [part for message in (first, second) for part in _parts(message)]


def _parts(message: BaseMessage) -> list[Any]:
    parts = [message.content] if isinstance(message.content, str) else message.content
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts if part]


def _without_media(sent: _Sent, _: str) -> _Sent:
    """Put a text into the place of each image, sound and file."""
    return sent._replace(messages=[_with_names_of_media(message) for message in sent.messages])


def _with_names_of_media(message: Any) -> Any:
    if not any(map(_is_media, _blocks(message))):
        return message
    parts = [_name_of_media(part) if _is_media(part) else part for part in _blocks(message)]
    return message.model_copy(update={"content": parts})


def _name_of_media(part: Any) -> dict[str, str]:
    kind = str(part["type"]).removeprefix("input_").removesuffix("_url")
    article = "an" if kind[0] in "aeiou" else "a"
    return {"type": "text", "text": f"[{article} {kind} was here, which the model's server did not take]"}


def _with_reasoning(sent: _Sent, reason: str) -> _Sent:
    """Give answers of other models some reasoning, if the server wants that."""
    if not _REASONING_MISSING.search(reason):
        return sent
    return sent._replace(messages=[*map(with_reasoning, sent.messages)])


def _plain(sent: _Sent, _: str) -> _Sent:
    """Leave nothing in answers but text and calls: other models' reasoning and signatures are not taken."""
    return sent._replace(messages=[_plain_answer(message) for message in sent.messages])


def _plain_answer(message: Any) -> Any:
    if not isinstance(message, AIMessage):
        return message
    text = str(message.text)
    if message.content == text and not message.additional_kwargs:
        return message
    calls = message.tool_calls
    return AIMessage(text, tool_calls=calls, id=message.id, usage_metadata=message.usage_metadata)


def _shortened(sent: _Sent, _: str) -> _Sent:
    """Cut the results of tools, but for those that the model has not seen yet."""
    last = max((at for at, each in enumerate(sent.messages) if isinstance(each, AIMessage)), default=0)
    messages = [
        _short_result(message) if isinstance(message, ToolMessage) and at < last else message
        for at, message in enumerate(sent.messages)
    ]
    return sent._replace(messages=messages)


def _short_result(message: ToolMessage) -> ToolMessage:
    text = str(message.text)
    if len(text) <= SHORT_RESULT and isinstance(message.content, str):
        return message
    return message.model_copy(update={"content": without_middle(text, SHORT_RESULT), "artifact": None})


def _fewer_tools(sent: _Sent, reason: str) -> _Sent:
    """Leave out the tools that the server names, or those that are too many for it."""
    if not _TOOLS_REFUSED.search(reason):
        return sent
    names = [*names_of(sent.tools)]
    refused = {name for name in names if re.search(rf"['\"`]{re.escape(name)}['\"`]", reason)}
    if refused:
        return sent._replace(tools=[tool for tool in sent.tools if not names_of([tool]) & refused])
    limits = [number for each in re.findall(r"\d+", reason) if 0 < (number := int(each)) < len(names)]
    # The coder's own tools come first.
    return sent._replace(tools=sent.tools[: max(limits, default=USUAL_MOST_TOOLS)])


def _calls_as_text(sent: _Sent, _: str) -> _Sent:
    """Tell what was called, and what that gave, in words."""
    return sent._replace(messages=_as_text(sent.messages, lambda name: True))


def _as_text(messages: Sequence[AnyMessage], is_meant: Callable[[str], bool]) -> list[AnyMessage]:
    """Turn answers with calls that are meant, and the results of all their calls, into text of the model."""
    told: list[Any] = []
    inside: set[str] = set()
    for message in messages:
        if isinstance(message, AIMessage):
            calls: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
            is_told = any(is_meant(str(call["name"])) for call in calls)
            inside = {str(call["id"]) for call in calls} if is_told else set()
            told.append(AIMessage("\n".join(_told_calls(message)), id=message.id) if is_told else message)
        elif isinstance(message, ToolMessage) and message.tool_call_id in inside:
            text = without_middle(str(message.text), SHORT_RESULT)
            told[-1] = with_text(told[-1], f"[Result of {message.name or 'a tool'}: {text}]")
        else:
            told.append(message)
    if told == [*messages]:
        return told
    if isinstance(told[-1], AIMessage):
        # Not every server goes on with an answer that it is given the beginning of.
        told.append(HumanMessage("(Go on.)", id=f"after-{told[-1].id}", additional_kwargs={SOURCE: "repair"}))
    return _in_turns(_Sent(told, ()), "").messages


def _told_calls(message: AIMessage) -> Iterator[str]:
    if text := str(message.text).strip():
        yield text
    for call in (*message.tool_calls, *message.invalid_tool_calls):
        arguments = call["args"] if isinstance(call["args"], str) else json.dumps(call["args"], default=str)
        yield f"[Called {call['name']}: {without_middle(arguments, SHORT_RESULT)}]"


def _without_earlier_turns(sent: _Sent, _: str) -> _Sent:
    """Begin with the last prompt."""
    return sent._replace(messages=sent.messages[_last_prompt(sent.messages) :])


def _prompt_alone(sent: _Sent, _: str) -> _Sent:
    """Keep nothing but the last prompt."""
    last = _last_prompt(sent.messages)
    return sent._replace(messages=sent.messages[last : last + 1])


def _last_prompt(messages: Sequence[AnyMessage]) -> int:
    return max((at for at, each in enumerate(messages) if _is_prompt(each)), default=0)


def _is_prompt(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and SOURCE not in message.additional_kwargs


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_ANY_SETTING = re.compile("|".join(words.pattern for words in REFUSALS.values()), re.IGNORECASE)

REPAIRS = (
    _Repair(
        _without_settings,
        "Settings that its server does not take are left out: effort, temperature or output length.",
        _ANY_SETTING,
    ),
    _Repair(
        _with_pairs,
        "Tool calls without a result, or results without a call, were put in order.",
        _words(r"tool_call|tool call|tool_use|tool_result|tool message|role.{0,3}tool"),
    ),
    _Repair(
        _without_unknown_tools,
        "Calls of tools that are gone were turned into text.",
        _words(
            r"(unknown|no such|not found|undefined|invalid|does not exist|not in).{0,60}(tool|function)"
            r"|(tool|function).{0,60}(unknown|not found|undefined|does not exist|invalid|not in)"
        ),
    ),
    _Repair(
        _fewer_tools,
        "Tools that its server does not take were left out.",
        _TOOLS_REFUSED,
    ),
    _Repair(
        _in_turns,
        "Messages of one side in a row were joined.",
        _words(r"\brole|alternat|consecutive|order of"),
    ),
    _Repair(
        _without_media,
        "Images and files were taken out of the conversation.",
        _words(r"image|vision|multimodal|multi-modal|audio|media|\bfile|\bpdf|content.{0,30}(string|type)"),
    ),
    _Repair(
        _with_reasoning,
        "Answers of other models are sent with a placeholder for their reasoning.",
        _REASONING_MISSING,
    ),
    _Repair(
        _plain,
        "What answers held besides text and tool calls was taken out.",
        _words(r"thinking|reasoning|signature|content block|unexpected (field|key)|extra (inputs|fields)"),
    ),
    _Repair(
        _shortened,
        "Earlier results of tools were shortened.",
        _words(r"context|too long|too large|token|length|payload"),
    ),
    _Repair(_calls_as_text, "Earlier tool calls were turned into text.", _words(r"(?!)")),
    _Repair(
        _without_earlier_turns,
        "The earlier turns were left out: the model does not know them any more.",
        _words(r"(?!)"),
    ),
    _Repair(
        _prompt_alone,
        "All but your last prompt was left out: the model does not know the rest any more.",
        _words(r"(?!)"),
    ),
)
"""Repairs, those first that cost the conversation least."""
