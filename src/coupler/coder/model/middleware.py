"""Middleware around the model: redacts its keys, and mends or refuses broken calls, characters and images.

A key may stand in a file of the project or in a prompt, or be read from another process. The model has no use
for it, and what it has read is kept with the conversation: so it gets the key's name instead. Errors are kept
there, too, and some servers repeat the key that they refuse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents.middleware import ModelResponse
from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, hook_config
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration
from langgraph.types import Command
from msgspec import Struct, structs

from coupler.coder.model.settings import EFFORT_OPTION, MODELS_OWN, request_arguments
from coupler.langchain.content import checked_image
from coupler.langchain.current import current, send_warning
from coupler.langchain.errors import stop_of_message
from coupler.langchain.graph_agent import GraphAgent
from coupler.langchain.messages import PerMessage
from coupler.langchain.middleware import ModelHandler
from coupler.redaction.masker import Masker
from coupler.redaction.sources import declared_secrets

if TYPE_CHECKING:
    from uuid import UUID

    from langchain.agents.middleware.types import ModelResponse
    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import LLMResult
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from coupler.agent.turn import Turn
    from coupler.coder.model.choice import ModelChoice
    from coupler.coder.model.settings import ModelSettings
    from coupler.langchain.middleware import ModelHandler, ToolHandler
    from coupler.schema.v1 import StopReason

CUT_CALLS_KEY = "coupler_cut_calls"
"""Key in an answer's metadata for the ids of truncated tool calls."""

MOST_IN_A_ROW = 3
"""Broken answers in a row after which the model is not asked again."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class KeyConcealment(AgentMiddleware[Any, Any, Any]):
    """Redacts the models' keys in instructions, and in what tools return or fail with."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._cover = _KeyRedactor(keys)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Call the model with keys redacted: files of instructions may have one."""
        system = request.system_message
        if system is not None and (content := self._cover.covered(system.content)) is not system.content:
            request = request.override(system_message=system.model_copy(update={"content": content}))
        return await handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """Run the tool, and mask what it returns."""
        try:
            return self._covered(await handler(request))
        except Exception as error:
            self._cover.conceal_in(error)
            raise

    def _covered(self, result: Any) -> Any:
        match result:
            case ToolMessage():
                content = self._cover.covered(result.content)
                if content is result.content and result.artifact is None:
                    return result
                artifact = self._cover.covered(result.artifact)
                return result.model_copy(update={"content": content, "artifact": artifact})
            case Command(update={"messages": list(messages), **others}):
                told = [self._covered(message) for message in messages]
                return replace(result, update={**others, "messages": told})
        return result


class KeyRedactingAgent(GraphAgent):
    """A graph agent that redacts the models' keys in prompts."""

    def __init__(self, *arguments: Any, keys: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cover = _KeyRedactor(keys)

    async def perform(self, turn: Turn) -> StopReason | None:
        """Redact the keys in what the user has typed or mentioned before any of it is stored."""
        turn.blocks = tuple(self._cover.covered([*turn.blocks]))
        return await super().perform(turn)


class KeyRedactingCallback(BaseCallbackHandler):
    """Redacts the models' keys in what a model fails with; the error stays the same one."""

    run_inline = True

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._cover = _KeyRedactor(keys)

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Need nothing of a call: LangChain would make one text of all its messages otherwise."""

    def on_llm_error(self, error: BaseException, **_: Any) -> None:
        """Redact the keys in an error, which LangChain reports before it raises it."""
        self._cover.conceal_in(error)


class _KeyRedactor:
    """Replaces keys with their names."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._masker = Masker(declared_secrets(keys))

    def covered(self, value: Any) -> Any:
        """Redact a text, or the texts in a value; returns the same object if there is nothing to redact."""
        match value:
            case str():
                return self._masker.mask(value)
            case list():
                items = [self.covered(item) for item in value]
                return value if all(new is old for new, old in zip(items, value, strict=True)) else items
            case dict():
                table = {name: self.covered(item) for name, item in value.items()}
                return value if all(table[name] is value[name] for name in value) else table
            case Struct():
                fields = {name: getattr(value, name) for name in value.__struct_fields__}
                changed = {name: new for name, old in fields.items() if (new := self.covered(old)) is not old}
                return structs.replace(value, **changed) if changed else value
        return value

    def conceal_in(self, error: BaseException) -> None:
        """Redact the texts of an error and of its causes."""
        seen: set[int] = set()
        each: BaseException | None = error
        while each is not None and id(each) not in seen:
            seen.add(id(each))
            each.args = (*self.covered([*each.args]),)
            for name in ("message", "body"):
                value = getattr(each, name, None)
                if isinstance(value, str | dict) and (covered := self.covered(value)) is not value:
                    setattr(each, name, covered)
            each = each.__cause__ or each.__context__


class RequestSettings(AgentMiddleware[Any, Any, Any]):
    """Has models asked with the settings of the coder, and with the effort that the user has chosen.

    `effort` is for agents that the user's choice is not for: sub-agents whose profile has its own.
    """

    def __init__(
        self,
        models: Mapping[str, BaseChatModel],
        choices: Mapping[str, ModelChoice],
        settings: ModelSettings,
        effort: str | None = None,
    ) -> None:
        super().__init__()
        self._choices = {id(model): choices[name] for name, model in models.items()}
        self._settings = settings
        self._effort = effort
        self._told: set[str] = set()
        """Models of which the user was told that their effort cannot be set."""

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Call the model with its settings."""
        choice = self._choices.get(id(request.model))
        if choice is None:
            return await handler(request)
        settings = structs.replace(self._settings, effort=self._effort or self._chosen_effort())
        arguments = request_arguments(choice, settings)
        if settings.effort is not None and arguments == request_arguments(
            choice, structs.replace(settings, effort=None)
        ):
            self._tell(choice, settings.effort)
        return await handler(request.override(model_settings={**request.model_settings, **arguments}))

    def _chosen_effort(self) -> str | None:
        served = current()
        chosen = None if served is None else served.session.options.get(EFFORT_OPTION)
        if chosen is None:
            return self._settings.effort
        return None if chosen == MODELS_OWN else str(chosen)

    def _tell(self, choice: ModelChoice, effort: str) -> None:
        served = current()
        if served is not None and choice.name not in self._told:
            self._told.add(choice.name)
            remark = f"{choice.name} has no effort {effort!r} that is known here: it is asked without one."
            served.call_on_loop(send_warning, served.turn, "The effort is not used", remark)


class CutCalls(AgentMiddleware[Any, Any, Any]):
    """Refuses tool calls whose end is missing; the model is told so, and other calls are made.

    An answer that gets longer than a model may write breaks off, and LangChain completes what it has of a
    call's arguments: half a file would be written, or a command run that means something else.
    """

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Have the model asked again, unless there were too many such answers in a row."""
        messages = state["messages"]
        cut = _cut_in(messages[-1]) if messages else []
        if not cut:
            return None
        told = [
            ToolMessage(
                "The call was not made: it breaks off in the middle, as an answer does that is too long. "
                "Make it again, whole and shorter: a long file can be written in parts.",
                tool_call_id=call["id"],
                name=call["name"],
                status="error",
            )
            for call in cut
        ]
        is_enough = in_a_row(messages, _cut_in) > MOST_IN_A_ROW
        return {"messages": told, **({"jump_to": "end"} if is_enough else {})}


class ToolCallRecorder(BaseCallbackHandler):
    """Records the arguments of tool calls as models write them, and marks calls that break off."""

    run_inline = True

    def __init__(self) -> None:
        self._written: dict[UUID, list[tuple[int | None, _WrittenCall]]] = {}

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Do nothing; without this, LangChain would convert all messages to text."""

    def on_llm_new_token(self, *_: Any, chunk: Any = None, run_id: UUID, **__: Any) -> None:
        """Collect the pieces of arguments."""
        for piece in getattr(getattr(chunk, "message", None), "tool_call_chunks", None) or ():
            calls = self._written.setdefault(run_id, [])
            index, name, text = piece.get("index"), piece.get("id"), piece.get("args") or ""
            known = next((call for at, call in reversed(calls) if at is not None and at == index), None)
            if known is None or (name and known.id and name != known.id):
                calls.append((index, _WrittenCall(name, [text])))
            else:
                known.pieces.append(text)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Mark the truncated calls; the answer is the very object that the agent gets."""
        calls = [call for _, call in self._written.pop(run_id, ())]
        for generation in (each for some in response.generations for each in some):
            if isinstance(generation, ChatGeneration) and calls:
                message = generation.message
                is_cut = stop_of_message(message) == "max_tokens"
                broken = [call.id for call in calls if not _is_whole("".join(call.pieces), is_cut)]
                if broken:
                    message.response_metadata = {**message.response_metadata, CUT_CALLS_KEY: broken}

    def on_llm_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """Drop the collected arguments."""
        self._written.pop(run_id, None)


class _WrittenCall(NamedTuple):
    """A tool call of an answer while it is streamed."""

    id: str | None
    pieces: list[str]


def _is_whole(text: str, is_cut: bool) -> bool:
    """True if arguments are complete. Some models forget the last bracket."""
    if not text:
        return not is_cut
    for complete in (text,) if is_cut else (text, f"{text}}}"):
        try:
            json.loads(complete, strict=False)
        except ValueError:
            continue
        return True
    return False


def _cut_in(message: BaseMessage) -> list[Any]:
    """Return the truncated calls of an answer."""
    if not isinstance(message, AIMessage):
        return []
    broken = message.response_metadata.get(CUT_CALLS_KEY, ())
    return [call for call in message.tool_calls if call["id"] in broken]


class UnreadableCalls(AgentMiddleware[Any, Any, Any]):
    """Tells a model whose tool calls cannot be read so, and has it try again.

    Arguments that are no JSON object make a call that nobody can carry out. An answer with nothing else in it
    would end the turn without a word; small models write such answers now and then, and do better when told.
    """

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Have the model asked again, if its answer is nothing but such calls."""
        messages = state["messages"]
        if not messages or not _is_unreadable(messages[-1]) or _is_enough(messages):
            return None
        told = [
            ToolMessage(
                "The call was not made: its arguments are not a JSON object. Write them again, as "
                "one object with the names that the tool's description has.",
                tool_call_id=call["id"],
                name=call["name"] or "tool",
                status="error",
            )
            for call in messages[-1].invalid_tool_calls
            if call["id"]
        ]
        return {"messages": told, "jump_to": "model"} if told else None


def _is_enough(messages: Sequence[BaseMessage]) -> bool:
    return in_a_row(messages, _is_unreadable) > MOST_IN_A_ROW


def _is_unreadable(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.invalid_tool_calls) and not message.tool_calls


def in_a_row(messages: Sequence[BaseMessage], is_such: Callable[[BaseMessage], object]) -> int:
    """Count the answers at the end of the conversation that the predicate holds for."""
    count = 0
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            continue
        if not is_such(message):
            break
        count += 1
    return count


class WholeCharacters(AgentMiddleware[Any, Any, Any]):
    """Removes halves of characters (lone surrogates) from what models and tools say.

    JSON can hold the half of a pair that is one character in UTF-16, and UTF-8 cannot. A model that writes
    one in an answer, or a tool that finds one in a file's name, would make the conversation one that can
    never be sent again. Two halves that belong together are joined; one alone becomes the mark for what
    cannot be shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self._mended = PerMessage(_mended)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> ModelResponse[Any]:
        """Remove lone surrogates from what the model is sent, and from its answer."""
        messages = self._mended(request.messages)
        if any(new is not old for new, old in zip(messages, request.messages, strict=True)):
            request = request.override(messages=messages)
        response = await handler(request)
        return replace(response, result=[*map(_mended, response.result)])

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """Remove lone surrogates from what a tool returns."""
        match await handler(request):
            case ToolMessage() as message:
                return _mended(message)
            case Command(update={"messages": list(messages), **others}) as command:
                return replace(command, update={**others, "messages": [*map(_mended, messages)]})
            case result:
                return result


def _mended(message: Any) -> Any:
    """Return the message without lone surrogates; the same object if there are none."""
    if not isinstance(message, BaseMessage):
        return message
    names = ["content", "additional_kwargs"]
    names += ["tool_calls", "invalid_tool_calls"] if isinstance(message, AIMessage) else []
    names += ["artifact"] if isinstance(message, ToolMessage) else []
    values = {name: getattr(message, name) for name in names}
    mended = {name: new for name, old in values.items() if (new := without_surrogates(old)) is not old}
    return message.model_copy(update=mended) if mended else message


def without_surrogates(value: Any) -> Any:
    """Remove lone surrogates from a text, or a value with texts; the same object if there are none."""
    match value:
        case str():
            return _joined(value) if _SURROGATE.search(value) else value
        case list():
            items = [without_surrogates(item) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        case dict():
            table = {without_surrogates(name): without_surrogates(item) for name, item in value.items()}
            is_same = all(name in table and table[name] is item for name, item in value.items())
            return value if is_same else table
    return value


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


NO_IMAGES = "this model takes no images"

_DOUBTFUL = {"image": "image_inputs", "pdf": "pdf_inputs"}
"""Inputs that most models take, with LangChain's names: only those that are known not to get none."""

_RARE = {"audio": "audio_inputs", "video": "video_inputs"}
"""Inputs that few models take: only those that are known to get them."""


class CheckedImages(AgentMiddleware[Any, Any, Any]):
    """Puts words in the place of images and files that the model cannot use."""

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[frozenset[str], PerMessage[AnyMessage]] = {}

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> ModelResponse[Any]:
        """Call the model without the images and files that it cannot use."""
        taken = _taken_by(request.model)
        if taken not in self._checked:
            self._checked[taken] = PerMessage(partial(_checked, taken=taken))
        messages = self._checked[taken](request.messages)
        if any(new is not old for new, old in zip(messages, request.messages, strict=True)):
            request = request.override(messages=messages)
        return await handler(request)


def _taken_by(model: BaseChatModel) -> frozenset[str]:
    """Return the kinds of inputs besides text that the model takes, as far as that is known."""
    known: Any = model.profile or {}
    usual = {kind for kind, name in _DOUBTFUL.items() if known.get(name) is not False}
    return frozenset(usual | {kind for kind, name in _RARE.items() if known.get(name) is True})


def _checked(message: AnyMessage, *, taken: frozenset[str]) -> AnyMessage:
    if not isinstance(message.content, list):
        return message
    parts = [_checked_part(part, taken) for part in message.content]
    is_same = all(new is old for new, old in zip(parts, message.content, strict=True))
    return message if is_same else message.model_copy(update={"content": parts})


def _checked_part(part: Any, taken: frozenset[str]) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("type") == "file" and "base64" in part:
        return _checked_file(part, taken)
    return _checked_image(part, taken) if part.get("type") == "image" else part


def _checked_file(part: dict[str, Any], taken: frozenset[str]) -> Any:
    """Return a file if the model takes its kind: servers refuse one that they do not know by its type."""
    mime_type = str(part.get("mime_type"))
    if mime_type.startswith("image/"):
        return _checked_image({**part, "type": "image"}, taken)
    kind = "pdf" if mime_type == "application/pdf" else mime_type.partition("/")[0]
    if kind in taken:
        return part
    return {"type": "text", "text": f"[A file was left out: this model takes no {mime_type}.]"}


def _checked_image(part: dict[str, Any], taken: frozenset[str]) -> Any:
    problem: str | None = None if "image" in taken else NO_IMAGES
    data = part.get("base64")
    if problem is None and isinstance(data, str):
        kind, problem = checked_image(data)
        if problem is None and kind != part.get("mime_type"):
            return {**part, "mime_type": kind}
    return part if problem is None else {"type": "text", "text": f"[An image was left out: {problem}.]"}
