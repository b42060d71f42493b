"""A model for agents that do all they can in one turn.

It thinks, calls the tools that it is to call, and says what is done. A prompt with the word "slow" makes it
talk until it is cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from labs.langchain.scripted_model import Answer, ScriptedModel, call, think, used, wait

TODOS = [
    {"content": "Look", "status": "completed"},
    {"content": "Count", "status": "in_progress"},
]


def count(number: int) -> str:
    """Count up to a number."""
    return " ".join(map(str, range(number)))


def model_that_calls(*calls: tuple[str, dict[str, Any]]) -> ScriptedModel:
    """Calls these tools at each prompt."""

    def answer(messages: Sequence[BaseMessage]) -> Answer:
        last = messages[-1]
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        if isinstance(last, HumanMessage) and "slow" in last.text.lower():
            return [piece for _ in range(1000) for piece in ("and so on, ", wait(0.05))]
        if isinstance(last, HumanMessage):
            made = [
                call(name, f"call_{turn}_{index}", index=index, **arguments)
                for index, (name, arguments) in enumerate(calls)
            ]
            return [think("I should count. "), "Let me ", "count. ", *made, used(50, 10)]
        return ["That is ", "done.", used(100, 20)]

    return ScriptedModel(script=answer, profile={"max_input_tokens": 100_000})
