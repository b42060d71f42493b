"""`CutCalls`: a tool call whose end is missing is not made, and the model is told so.

An answer that gets longer than a model may write breaks off, and LangChain completes what it has of a call's
arguments: half a file would be written, or a command run that means something else. `CallTexts` hears the
arguments as they were written, and marks such calls in the answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents.middleware.types import AgentMiddleware, hook_config
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration

from coupler.coder.model.unreadable_calls import MOST_IN_A_ROW, in_a_row
from coupler.langchain.errors import stop_of_message

if TYPE_CHECKING:
    from uuid import UUID

    from langchain_core.outputs import LLMResult

MARK = "coupler_cut_calls"
"""Where the answer's metadata names the calls that break off."""


class _Call(NamedTuple):
    """One call of an answer, as it is written piece by piece."""

    id: str | None
    pieces: list[str]


class CallTexts(BaseCallbackHandler):
    """Hears what a model writes, of any number of answers at once."""

    run_inline = True

    def __init__(self) -> None:
        self._written: dict[UUID, list[tuple[int | None, _Call]]] = {}

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Nothing to hear yet; LangChain would make texts of all messages for who does not say so."""

    def on_llm_new_token(self, *_: Any, chunk: Any = None, run_id: UUID, **__: Any) -> None:
        """Keep the pieces of arguments."""
        for piece in getattr(getattr(chunk, "message", None), "tool_call_chunks", None) or ():
            calls = self._written.setdefault(run_id, [])
            index, name, text = piece.get("index"), piece.get("id"), piece.get("args") or ""
            known = next((call for at, call in reversed(calls) if at is not None and at == index), None)
            if known is None or (name and known.id and name != known.id):
                calls.append((index, _Call(name, [text])))
            else:
                known.pieces.append(text)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Mark the calls that break off; the answer is the very one that goes on to the agent."""
        calls = [call for _, call in self._written.pop(run_id, ())]
        for generation in (each for some in response.generations for each in some):
            if isinstance(generation, ChatGeneration) and calls:
                message = generation.message
                is_cut = stop_of_message(message) == "max_tokens"
                broken = [call.id for call in calls if not _is_whole("".join(call.pieces), is_cut)]
                if broken:
                    message.response_metadata = {**message.response_metadata, MARK: broken}

    def on_llm_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """Forget what was written."""
        self._written.pop(run_id, None)


class CutCalls(AgentMiddleware[Any, Any, Any]):
    """Answers calls that break off in the place of their tools; others of the same answer are made."""

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Have the model asked again, unless it goes on like that."""
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


def _is_whole(text: str, is_cut: bool) -> bool:
    """Whether arguments are all there. Some models forget the last bracket of what they have finished."""
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
    """The calls of an answer that break off."""
    if not isinstance(message, AIMessage):
        return []
    broken = message.response_metadata.get(MARK, ())
    return [call for call in message.tool_calls if call["id"] in broken]
