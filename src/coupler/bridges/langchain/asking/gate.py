"""The rules of `coupler.toml` before every tool of a graph, whoever runs it.

The guard stands before the tools of the served graph itself. Agents inside of its tools have nodes of their
own, and nodes may run tools by themselves; nothing can be put around those. But LangChain reports every tool
before it runs, wherever that is, and a listener that raises keeps it from running. There are two, because
only one that is awaited can ask the user, and only one that is not is heard by code that awaits nothing.
They stand there only if a rule, a choice or a review is against something.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.prebuilt.tool_node import ToolInvocationError

from coupler.bridges.langchain.asking.permission import (
    Decision,
    judge_now,
    permit,
    permit_and_wait,
    refusal,
)

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall

    from coupler.bridges.langchain.current import Current

judged_call: ContextVar[str | None] = ContextVar("coupler_judged_call", default=None)
"""The id of the call that was decided about, and is about to run."""


class ToolNotPermittedError(ToolInvocationError):
    """A tool may not run. What runs tools tells the model so, as of arguments that do not fit."""

    def __init__(self, call: ToolCall, reason: str) -> None:
        self.message = refusal(call, reason).text
        Exception.__init__(self, self.message)


class _Gate(BaseCallbackHandler):
    """Hears of tools before they run, and of nothing else."""

    run_inline = True
    raise_error = True
    ignore_llm = ignore_chat_model = ignore_chain = ignore_retriever = True
    ignore_retry = ignore_custom_event = True

    def __init__(self, current: Current) -> None:
        self._current = current

    def _call(
        self, serialized: Mapping[str, Any] | None, given: str, told: Mapping[str, Any]
    ) -> ToolCall | None:
        """The call that a tool is run for; None for one that was decided about, or asks for itself."""
        about = (told.get("metadata") or {}).get("coupler")
        if isinstance(about, Mapping) and ("server" in about or about.get("asks") is True):
            return None
        call_id = str(told.get("tool_call_id") or told["run_id"])
        if judged_call.get() == call_id:
            return None
        inputs = told.get("inputs")
        return {
            "name": str((serialized or {}).get("name") or told.get("name") or "tool"),
            "args": dict(inputs) if isinstance(inputs, Mapping) else {"input": given},
            "id": call_id,
            "type": "tool_call",
        }

    def _refuse(self, call: ToolCall, reason: str) -> None:
        parent = self._current.call_id
        self._current.call_on_loop(self._show_refusal, call, parent, reason)
        raise ToolNotPermittedError(call, reason)

    def _show_refusal(self, call: ToolCall, parent: str | None, reason: str) -> None:
        calls = self._current.calls
        key = calls.key(call["id"] or "", parent)
        calls.announce(key, call["name"], call["args"], parent=parent)
        calls.settle(key, "failed", reason=reason)


class AskingGate(_Gate):
    """Asks the user, where code is awaited."""

    async def on_tool_start(
        self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **more: Any
    ) -> None:
        if not self._current.is_on_loop:
            return  # this was not awaited: the other one decides
        call = self._call(serialized, input_str, {"run_id": run_id, **more})
        if call is not None:
            decision: Decision = await permit(self._current, call, None, effect=None)
            if not decision.runs:
                self._refuse(call, decision.text)


class Gate(_Gate):
    """Has the last word, also where nobody can be asked."""

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **more: Any) -> None:
        call = self._call(serialized, input_str, {"run_id": run_id, **more})
        judged_call.set(None)  # what the tool runs itself is another matter
        if call is None:
            return
        if self._current.is_on_loop:
            reason = judge_now(self._current, call)
        else:
            decision = permit_and_wait(self._current, call, None, effect=None)
            reason = None if decision.runs else decision.text
        if reason is not None:
            self._refuse(call, reason)


async def gates(current: Current) -> list[BaseCallbackHandler]:
    """What has to stand before the tools of a prompt."""
    if current.calls.refused or await current.session.project.permitting().may_refuse():
        return [AskingGate(current), Gate(current)]
    return []
