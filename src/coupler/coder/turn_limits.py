"""Ends turns that lead nowhere: the same call over and over, or more model calls than one prompt may make.

All that is known is in the conversation since the last prompt, so that a turn that continues in another
process is judged in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents.middleware.types import AgentMiddleware, hook_config
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from coupler.langchain.middleware import ToolHandler, with_text

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

MOST_REPEATS = 3
"""Times in a row that the same calls may have the same results; the next time ends the turn."""

REPEATED_KEY = "coupler_repeated"
"""Key in the metadata of a result that was the same for the last time that is allowed."""

STOP = {"finish_reason": "max_turn_requests"}
"""Metadata of the message that a turn ends with."""

NOTE = (
    "[Note of Coupler, not of the user: you have made this call {times} times in a row, and the result was "
    "the same each time. Do something else, or tell the user what is in the way: if you make it again, your "
    "turn ends.]"
)

NOT_MADE = "The call was not made: the same one has had the same result {times} times in a row."


class TurnLimits(AgentMiddleware[Any, Any, Any]):
    """Ends a turn after the same call too many times in a row, or after too many model calls.

    `outputs` is where long results are kept, each in a file of its own: its name makes no new result.
    """

    def __init__(self, most_calls: int, outputs: Path) -> None:
        super().__init__()
        self._most_calls = most_calls
        self._output_file = re.compile(rf"{re.escape(str(outputs))}\S*?\.txt")

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """End the turn if the model was asked as often as it may be."""
        if len(_steps(state["messages"], self._most_calls)) < self._most_calls:
            return None
        return _end(
            f"I have stopped: one prompt may ask the model {self._most_calls:,} times (`max_model_calls` in "
            "coupler.toml). Prompt me again to go on."
        )

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """End the turn if the model repeats a call although it was told not to."""
        steps = _steps(state["messages"], 2)
        if len(steps) < 2 or steps[-1].calls != steps[-2].calls or not steps[-2].is_marked:
            return None
        last = state["messages"][-1]
        if not isinstance(last, AIMessage) or not last.tool_calls:
            return None
        refused = [
            ToolMessage(
                NOT_MADE.format(times=MOST_REPEATS),
                tool_call_id=call["id"],
                name=call["name"],
                status="error",
            )
            for call in last.tool_calls
        ]
        named = " and ".join(f"`{name}`" for name in dict.fromkeys(call["name"] for call in last.tool_calls))
        return _end(
            f"I have stopped: I made the same call of {named} {MOST_REPEATS} times in a row with the same "
            "result, and wanted to make it again. Tell me what to do differently.",
            refused,
        )

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """Run the tool, and tell the model if it only repeats itself."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or _is_still_running(result):
            return result
        messages = request.state["messages"] if isinstance(request.state, dict) else []
        steps = _steps(messages, MOST_REPEATS)
        if len(steps) < MOST_REPEATS or any(step.calls != steps[-1].calls for step in steps):
            return result
        places = [call["id"] for call in steps[-1].message.tool_calls]
        at = places.index(result.tool_call_id) if result.tool_call_id in places else -1
        now = self._comparable(result.content)
        if at < 0 or any(self._comparable(step.result(at)) != now for step in steps[:-1]):
            return result
        told = with_text(result, NOTE.format(times=MOST_REPEATS))
        return told.model_copy(update={"response_metadata": {**told.response_metadata, REPEATED_KEY: True}})

    def _comparable(self, content: Any) -> str:
        return self._output_file.sub("", str(content))


def _end(sentence: str, before: Sequence[ToolMessage] = ()) -> dict[str, Any]:
    return {"messages": [*before, AIMessage(sentence, response_metadata=STOP)], "jump_to": "end"}


class _Step(NamedTuple):
    """An answer of the model, and the results of its calls."""

    message: AIMessage
    results: dict[str, ToolMessage]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(call["name"], call["args"]) for call in self.message.tool_calls]

    @property
    def is_marked(self) -> bool:
        """True if none of its calls has brought anything new."""
        marks = [REPEATED_KEY in each.response_metadata for each in self.results.values()]
        return bool(marks) and all(marks)

    def result(self, at: int) -> Any:
        """The content of the result of one of its calls; None if there is none."""
        found = self.results.get(str(self.message.tool_calls[at]["id"]))
        return None if found is None else found.content


def _steps(messages: Sequence[BaseMessage], most: int) -> list[_Step]:
    """Return the last steps since the last prompt, the latest at the end, and no more than so many."""
    steps: list[_Step] = []
    results: dict[str, ToolMessage] = {}
    for message in takewhile(lambda each: not isinstance(each, HumanMessage), reversed(messages)):
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message
        elif isinstance(message, AIMessage):
            steps.append(_Step(message, results))
            results = {}
            if len(steps) == most:
                break
    return steps[::-1]


def _is_still_running(result: ToolMessage) -> bool:
    """True for the output of a background command that runs: to look again is how to wait for it."""
    return isinstance(result.artifact, dict) and result.artifact.get("running") is True
