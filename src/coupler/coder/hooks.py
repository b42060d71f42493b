"""Runs the hooks of a profile: commands around tools, and when sessions and turns begin and end.

Only the user's own settings and those of a trusted project have any. A hook can object to a tool call and to
the end of a turn; the model is told why. One that fails is told to the user, and holds nothing up.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from weakref import ref

import msgspec
from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ToolCallRequest, hook_config
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command

from coupler.agent.errors import describe
from coupler.coder.setup import notify_user
from coupler.coder.tools.outputs import fenced, one_line, truncated
from coupler.langchain.current import Current, current
from coupler.langchain.middleware import ModelHandler, ToolHandler, with_prompt, with_text
from coupler.langchain.permission import refusal_message
from coupler.runtime.commands import CommandResult, run_command
from coupler.runtime.environment import Environment, SpawnError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.config.agent_tables import HookEvent

HookedResult: TypeAlias = ToolMessage | Command[Any]

MOST_OBJECTIONS = 3
"""Times that hooks can make a model continue in one turn."""

LIMIT = 60.0
"""Seconds that a hook may take."""

LONGEST = 20_000
"""Characters of a hook's text for the model."""

LARGEST_OUTPUT = 256 * 1024
OBJECTION_CODE = 2
"""The exit code by which a hook objects."""


class HooksMiddleware(AgentMiddleware[Any, Any, Any]):
    """Runs the hooks of one session; it comes first, so that nobody is asked about what a hook forbids."""

    def __init__(self, hooks: Mapping[HookEvent, Sequence[str]]) -> None:
        super().__init__()
        self._hooks = hooks
        self._has_started = False
        self._context = ""
        self._objections: tuple[ref[Turn] | None, int] = (None, 0)

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Run the hooks for the beginning of the session, or for its continuation in this process."""
        served = _at_the_top()
        if served is None or self._has_started:
            return
        self._has_started = True
        is_new = not any(isinstance(message, AIMessage) for message in state["messages"])
        replies = await self._run(served, "session_start", {"source": "new" if is_new else "loaded"})
        self._context = "\n\n".join(replies.all)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Add to the prompt what the hooks for the session's beginning said."""
        if not self._context:
            return await handler(request)
        prompt = with_prompt(request.system_message, _said(self._context))
        return await handler(request.override(system_message=prompt))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> HookedResult:
        """Run the tool, unless a hook objects."""
        served = current()
        if served is None:
            return await handler(request)
        call = request.tool_call
        about = {"tool": call["name"], "input": call["args"], "call_id": call["id"]}
        before = await self._run(served, "before_tool", about)
        if before.objection is not None:
            return refusal_message(call, f"a hook of the user objects: {before.objection}")
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
        """Run the hooks for the end of a turn; an objection makes the agent continue."""
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
                await notify_user(served.turn, f"The hook {line!r:.200} for {event} failed", result.text)
            elif result.kind == "objects":
                replies.objection = result.text
                break
            elif result.text:
                replies.context.append(result.text)
        return replies

    def _is_same(self, turn: Turn) -> bool:
        return self._objections[0] is not None and self._objections[0]() is turn


class _Replies:
    """Collects the replies of the hooks of one event; the first objection ends it."""

    def __init__(self) -> None:
        self.context: list[str] = []
        self.objection: str | None = None

    @property
    def all(self) -> list[str]:
        """All texts for the model."""
        return [*self.context, *([self.objection] if self.objection is not None else [])]


def _at_the_top() -> Current | None:
    """Return the prompt that is answered; None inside of a tool call, where a sub-agent works."""
    served = current()
    return served if served is not None and served.call_id is None else None


def _message_in(result: HookedResult) -> ToolMessage | None:
    if isinstance(result, ToolMessage):
        return result
    update = result.update if isinstance(result.update, Mapping) else {}
    return next((each for each in update.get("messages", ()) if isinstance(each, ToolMessage)), None)


def _with_more(result: HookedResult, texts: Sequence[str]) -> HookedResult:
    if not texts or not isinstance(result, ToolMessage):
        return result
    return with_text(result, "\n\n".join(map(_said, texts)))


def _said(text: str) -> str:
    return fenced("hook", text)


class HookResult(NamedTuple):
    """The result of a hook: text for the model, an objection with its reason, or a failure."""

    kind: Literal["goes on", "objects", "failed"]
    text: str


async def run_hook(line: str, session: Session, event: Mapping[str, Any]) -> HookResult:
    """Run a hook's command line, for a shell, in the session's directory and environment.

    It gets JSON on stdin. Exit code 0 lets things go on, and JSON on stdout may hold a `context` for the
    model; 2 objects, with what is written to stderr as the reason; any other says that the hook itself has
    failed.
    """
    told = {"session_id": session.id, "cwd": session.cwd, "mode": session.mode, **event}
    try:
        async with asyncio.timeout(LIMIT):
            code, output, errors = await _run(line, session, msgspec.json.encode(told))
    except TimeoutError:
        return HookResult("failed", f"it took longer than {LIMIT:g} s")
    except SpawnError as error:
        return HookResult("failed", str(error))
    if code == 0:
        return HookResult("goes on", _context(output))
    if code == OBJECTION_CODE:
        return HookResult("objects", truncated(errors.strip(), LONGEST) or "no reason was given")
    why = one_line(errors, 500)
    return HookResult("failed", f"it ended with {code}" + (f": {why}" if why else ""))


async def _run(line: str, session: Session, told: bytes) -> CommandResult:
    shell = ["cmd", "/c"] if sys.platform == "win32" else ["/bin/sh", "-c"]
    # The session's own variables: those that are withheld, such as the keys of models, are not among them.
    environ = Environment.exact({**session.env})
    return await run_command(
        [*shell, line], cwd=session.cwd, env=environ, largest=LARGEST_OUTPUT, input=told, hears_stderr=True
    )


def _context(output: str) -> str:
    """Return the `context` of a hook's JSON output; any other output is ignored."""
    try:
        told = msgspec.json.decode(output.encode()) if output.strip() else None
    except msgspec.DecodeError:
        return ""
    context = told.get("context") if isinstance(told, dict) else None
    return truncated(context.strip(), LONGEST) if isinstance(context, str) else ""
