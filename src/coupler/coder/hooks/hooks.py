"""Hooks of a profile: commands that run before and after tools, and when sessions and turns begin and end.

Only the user's own settings and those of a trusted project have any. A hook can object to a tool call and to
the end of a turn; the model is told why. One that fails is told to the user, and holds nothing up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ToolCallRequest, hook_config
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command

from coupler.agent.errors import describe
from coupler.coder.context.fence import fenced
from coupler.coder.hooks.hook_run import run_hook
from coupler.coder.notes import tell_note
from coupler.langchain.current import Current, current
from coupler.langchain.middleware import with_prompt, with_text
from coupler.langchain.permission import refusal

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.config.agent_tables import HookEvent

Result: TypeAlias = ToolMessage | Command[Any]

MOST_OBJECTIONS = 3
"""How often hooks can send a model on in one turn."""


class HooksMiddleware(AgentMiddleware[Any, Any, Any]):
    """Runs the hooks of one session; it comes first, so that nobody is asked about what a hook forbids."""

    def __init__(self, hooks: Mapping[HookEvent, Sequence[str]]) -> None:
        super().__init__()
        self._hooks = hooks
        self._has_started = False
        self._context = ""
        self._objections: tuple[ref[Turn] | None, int] = (None, 0)

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Run what is to run when the session begins, or goes on in this process."""
        served = _at_the_top()
        if served is None or self._has_started:
            return
        self._has_started = True
        is_new = not any(isinstance(message, AIMessage) for message in state["messages"])
        replies = await self._run(served, "session_start", {"source": "new" if is_new else "loaded"})
        self._context = "\n\n".join(replies.all)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Tell the model what the hooks of the session's beginning said."""
        if not self._context:
            return await handler(request)
        prompt = with_prompt(request.system_message, _said(self._context))
        return await handler(request.override(system_message=prompt))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Run the tool, unless a hook objects."""
        served = current()
        if served is None:
            return await handler(request)
        call = request.tool_call
        about = {"tool": call["name"], "input": call["args"], "call_id": call["id"]}
        before = await self._run(served, "before_tool", about)
        if before.objection is not None:
            return refusal(call, f"a hook of the user objects: {before.objection}")
        try:
            result = await handler(request)
        except GraphBubbleUp:
            raise  # it asks something, and runs again with the answer
        except Exception as error:
            await self._run(served, "after_tool", {**about, "output": describe(error), "is_error": True})
            raise
        message = _message_in(result)
        if message is None:
            return result
        ended = {**about, "output": str(message.text), "is_error": message.status == "error"}
        after = await self._run(served, "after_tool", ended)
        return _with_more(result, [*before.all, *after.all])

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Run what is to run when the agent is done; who objects sends it on."""
        served = _at_the_top()
        if served is None:
            return None
        again = self._objections[1] if self._is_same(served.turn) else 0
        last = state["messages"][-1] if state["messages"] else None
        answer = str(last.text) if isinstance(last, AIMessage) else ""
        replies = await self._run(served, "turn_end", {"answer": answer, "again": again})
        if replies.objection is None or again == MOST_OBJECTIONS:
            return None
        self._objections = (ref(served.turn), again + 1)
        reason = f"You are not done yet: a hook of the user objects.\n{_said(replies.objection)}"
        message = HumanMessage(reason, additional_kwargs={"lc_source": "hook"})
        return {"messages": [message], "jump_to": "model"}

    async def _run(self, served: Current, event: HookEvent, about: Mapping[str, Any]) -> _Replies:
        replies = _Replies()
        for line in self._hooks.get(event, ()):
            result = await run_hook(line, served.session, {"event": event, **about})
            if result.kind == "failed":
                await tell_note(served.turn, f"The hook {line!r:.200} for {event} failed", result.text)
            elif result.kind == "objects":
                replies.objection = result.text
                break
            elif result.text:
                replies.context.append(result.text)
        return replies

    def _is_same(self, turn: Turn) -> bool:
        return self._objections[0] is not None and self._objections[0]() is turn


class _Replies:
    """What the hooks of one event said together; the first objection ends it."""

    def __init__(self) -> None:
        self.context: list[str] = []
        self.objection: str | None = None

    @property
    def all(self) -> list[str]:
        """Everything that the model may read."""
        return [*self.context, *([self.objection] if self.objection is not None else [])]


def _at_the_top() -> Current | None:
    """The prompt that is answered; None inside of a tool call, where a sub-agent begins and ends."""
    served = current()
    return served if served is not None and served.call_id is None else None


def _message_in(result: Result) -> ToolMessage | None:
    if isinstance(result, ToolMessage):
        return result
    update = result.update if isinstance(result.update, Mapping) else {}
    return next((each for each in update.get("messages", ()) if isinstance(each, ToolMessage)), None)


def _with_more(result: Result, texts: Sequence[str]) -> Result:
    if not texts or not isinstance(result, ToolMessage):
        return result
    return with_text(result, "\n\n".join(map(_said, texts)))


def _said(text: str) -> str:
    return fenced("hook", text)
