"""A sub-agent: a coder that works on one task for another one, in the same process and session.

It has the tools, the mode and the permissions of the session, and never more. It cannot ask the user, give
work to others or change the mode, and it has so many turns and no more; in the last one it has to report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents.middleware.types import (
    AgentMiddleware,
    ModelRequest,
    ToolCallRequest,
    hook_config,
)
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime

from coupler.coder.offered_modes import LOOKING
from coupler.langchain.current import Current, current
from coupler.langchain.middleware import Result, requested_tool, with_prompt
from coupler.langchain.permission import action_of, refusal
from coupler.langchain.presentation import about_tool, kind_of

if TYPE_CHECKING:
    from coupler.coder.delegation.denials import Denials
    from coupler.coder.profile import Profile

NOT_FOR_SUB_AGENTS = frozenset({"delegate", "ask_user", "present_plan"})
"""Tools of whoever talks to the user."""

READING_KINDS = frozenset({"read", "search", "fetch", "think"})
"""The kinds of tools of a sub-agent that only looks."""

MOST_TURNS = 60
"""How often the model of a sub-agent is asked for one task."""

PROMPT = (
    "You are a sub-agent: another agent has given you one task, and the user does not see what you say. "
    "Nobody answers questions. Do the task and nothing else, as far as it can be done; where something is "
    "open, choose the most sensible way and say so. Your last message is your report, and all that the other "
    "agent gets: what you have found or changed, with paths and lines, how you have checked it, and what is "
    "left or went wrong."
)

READ_ONLY_PROMPT = (
    "You only look: you can read and search, and change nothing. Report what is there, and what you did not "
    "find."
)

LAST_TURN = (
    "You have used all turns for this task. Call no tools any more: report now what you have found or done, "
    "and what is left."
)


class SubAgent(NamedTuple):
    """What a sub-agent's graph is made of: the coder's own parts, and `middleware` behind all of theirs."""

    name: str
    profile: Profile
    is_read_only: bool
    middleware: tuple[AgentMiddleware[Any, Any, Any], ...]


class SubAgentMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps one sub-agent at one task within its bounds. It has to be the last of all middleware.

    Behind all others, it sees every tool that they have added, and what they want of the model.
    """

    def __init__(self, *, is_read_only: bool, denials: Denials, most_turns: int = MOST_TURNS) -> None:
        super().__init__()
        self.turns = 0
        """How often the model was asked."""
        self.is_stopped = False
        """Whether it was ended before it was done."""
        self._is_read_only = is_read_only
        self._denials = denials
        self.most_turns = most_turns

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Count the turn; one that goes on after its last is ended."""
        if self.turns >= self.most_turns:
            return {"jump_to": "end"}
        self.turns += 1
        self.is_stopped = self.turns == self.most_turns
        served = current()
        if served is not None and self.turns > 1:
            _begin_paragraph(served)
        return None

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Ask the model as a sub-agent, with the tools that it has."""
        tools = [tool for tool in request.tools if self._offers(tool)]
        prompt = f"{PROMPT}\n\n{READ_ONLY_PROMPT}" if self._only_reads else PROMPT
        changes: dict[str, Any] = {
            "system_message": with_prompt(request.system_message, prompt),
            "tools": [] if self.is_stopped else tools,
        }
        if self.is_stopped:
            changes["messages"] = [*request.messages, HumanMessage(LAST_TURN)]
        if not changes["tools"]:
            changes["tool_choice"] = None
        return await handler(request.override(**changes))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Run a tool that it has; models call others, too."""
        served = current()
        call = request.tool_call
        tool = request.tool if served is None else requested_tool(served, request)
        if self.is_stopped:
            return refusal(call, "all turns for this task are used")
        if tool is not None and not self._offers(tool):
            return _refused(served, request, "a sub-agent does not have this tool")
        if served is not None:
            action = action_of(served, call["name"], tool, call["args"], is_gated=False)
            if (reason := await self._denials.reason(action)) is not None:
                return _refused(served, request, f"not permitted: {reason}")
        return await handler(request)

    def _offers(self, tool: BaseTool | dict[str, Any]) -> bool:
        if not isinstance(tool, BaseTool):
            return not self._only_reads  # a tool of the provider's own
        if tool.name in NOT_FOR_SUB_AGENTS:
            return False
        # What a server claims of its tools earns them nothing.
        is_reading = kind_of(tool.name, tool) in READING_KINDS and "server" not in about_tool(tool)
        return is_reading or not self._only_reads

    @property
    def _only_reads(self) -> bool:
        """Whether it changes nothing: because of what it is, or because the session changes nothing now."""
        served = current()
        return self._is_read_only or (served is not None and served.session.mode in LOOKING)


def _refused(served: Current | None, request: ToolCallRequest, reason: str) -> ToolMessage:
    call = request.tool_call
    if served is not None:
        parent = served.call_id
        key = served.calls.key(call["id"] or "", parent)
        served.calls.announce(key, call["name"], dict(call["args"]), parent=parent)
    return refusal(call, reason)


def _begin_paragraph(served: Current) -> None:
    """What it says next is shown below what it said before."""
    key = served.call_id
    if key is not None and served.calls.is_open(key):
        served.calls.append(key, "\n\n")
